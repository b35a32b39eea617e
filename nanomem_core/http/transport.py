"""httpx as this package uses it: transports without the client around them, so that nothing follows redirects, keeps
cookies, or logs a URL; and its exceptions as errors of this library.
"""

from __future__ import annotations

import socket
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpcore
import httpx

from ..errors import BadResponseError, ConfigError, EndpointTimeoutError, UnreachableError
from .answers import Answer
from .endpoint import Endpoint
from .exchange import Send
from .urls import proxy_for

__all__ = ["LARGEST", "Transport", "answer_of", "build_request", "check_size", "deadline", "errors_of", "proxy_option"]

LARGEST = 1 << 28
"""Bytes of an answer, decompressed, at most."""

_now = threading.local()


def proxy_option(endpoint: Endpoint) -> str | None:
    """The proxy to use: the one that is set, or else the environment's."""
    return endpoint.proxy or proxy_for(endpoint.url)


def build_request(endpoint: Endpoint, send: Send) -> httpx.Request:
    read = endpoint.timeout if endpoint.read_timeout is None else min(endpoint.read_timeout, endpoint.timeout)
    connect = min(endpoint.connect_timeout, endpoint.timeout)
    return httpx.Request(
        "POST",
        endpoint.target(),
        headers=endpoint.all_headers(),
        content=send.content,
        extensions={"timeout": {"connect": connect, "pool": endpoint.timeout, "read": read, "write": read}},
    )


def answer_of(response: httpx.Response, content: Iterable[bytes] = ()) -> Answer:
    return Answer(response.status_code, dict(response.headers.items()), b"".join(content))


def check_size(endpoint: Endpoint, size: int) -> None:
    """Raises BadResponseError for an answer that is too large."""
    if size > LARGEST:
        raise BadResponseError(
            f"{endpoint.shown}: expected an answer of at most {LARGEST >> 20} MiB; found a larger one",
            url=endpoint.shown,
            status=200,
        )


@contextmanager
def errors_of(endpoint: Endpoint) -> Iterator[None]:
    """Turns what httpx raises into errors of this library."""
    shown = endpoint.shown
    try:
        yield
    except (httpx.TimeoutException, TimeoutError) as error:
        if isinstance(error, EndpointTimeoutError):
            raise
        if isinstance(error, httpx.ConnectTimeout):
            text = f"{shown}: no connection within {endpoint.connect_timeout:g} s (connect_timeout)"
        else:
            limits = f"timeout: {endpoint.timeout:g} s"
            if endpoint.read_timeout is not None:
                limits += f", read_timeout: {endpoint.read_timeout:g} s"
            text = f"{shown}: no complete answer in time ({limits})"
        raise EndpointTimeoutError(text, url=shown) from error
    except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
        raise BadResponseError(f"{shown}: the answer breaks off, or is no HTTP: {_reason(error)}", url=shown) from error
    except (httpx.TransportError, httpx.StreamError) as error:
        text = f"{shown} can't be reached: {endpoint.mask(_reason(error))}. Is the server running, and the URL right?"
        raise UnreachableError(text, url=shown) from error
    except (httpx.InvalidURL, ImportError) as error:
        raise ConfigError(f"{shown}: {endpoint.mask(str(error))}") from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# httpx limits each read, not the whole of a request: a server that sends a byte now and then would keep it for ever.
# So the connections below know of a deadline, and no wait of theirs is longer than what is left.


@contextmanager
def deadline(at: float) -> Iterator[None]:
    """Within it, connections of this thread wait until ``time.monotonic()`` is `at`, at most."""
    before = getattr(_now, "deadline", None)
    _now.deadline = at
    try:
        yield
    finally:
        _now.deadline = before


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    at: float | None = getattr(_now, "deadline", None)
    if at is None:
        return timeout
    left = at - time.monotonic()
    if left <= 0:
        raise error("the time is up")
    return left if timeout is None else min(timeout, left)


class Transport(httpx.HTTPTransport):
    """A pool of connections that keep to the `deadline` of the thread."""

    def __init__(self, proxy: str | None) -> None:
        super().__init__(proxy=proxy)
        # The pool of httpcore takes a backend, but httpx does not hand one through.
        self._backend = _Backend(self._pool._network_backend)
        self._pool._network_backend = self._backend

    def close(self) -> None:
        """Close every connection; requests that other threads wait for fail at once."""
        self._backend.shut_down()
        super().close()


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend
        self._streams: weakref.WeakSet[_Stream] = weakref.WeakSet()
        self._lock = threading.Lock()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        limit = _left(timeout, httpcore.ConnectTimeout)
        return self.keep(self._backend.connect_tcp(host, port, limit, local_address, socket_options))

    def keep(self, stream: httpcore.NetworkStream) -> _Stream:
        kept = _Stream(stream, self)
        with self._lock:
            self._streams.add(kept)
        return kept

    def shut_down(self) -> None:
        # To close a socket does not wake a thread that reads from it.
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            with suppress(OSError):
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, backend: _Backend) -> None:
        self._stream = stream
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        limit = _left(timeout, httpcore.ConnectTimeout)
        return self._backend.keep(self._stream.start_tls(ssl_context, server_hostname, limit))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
