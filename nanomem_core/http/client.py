"""The client that blocks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ClosedError, EndpointError
from .answers import Answer
from .endpoint import Endpoint
from .exchange import Call, Send, Steps, Wait, exchange, opening
from .lines import Lines

if TYPE_CHECKING:
    import httpx

    from .transport import Transport

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """Asks one endpoint. Connects at the first call, and may be shared by threads; a forked process connects anew."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._transports: dict[int, Transport] = {}  # by process; those of a parent stay, so that nothing closes them
        self._closed = threading.Event()

    def run(self, call: Call[T]) -> T:
        """What `call` returns.

        Raises:
            EndpointError: the endpoint can't be used. ClosedError: the client was closed, maybe meanwhile.
        """
        steps = exchange(self.endpoint, call)
        with closing(steps):
            return self._drive(steps, [])

    def lines(self, call: Call[Any]) -> Generator[str, None, None]:
        """The lines of the stream that answers the first body of `call` that the server accepts.

        Whoever stops early closes the iterator, which frees the connection.

        Raises:
            EndpointError: the endpoint can't be used, or the stream breaks off.
        """
        opened: list[httpx.Response] = []
        steps = opening(self.endpoint, call)
        try:
            with closing(steps):
                self._drive(steps, opened)
            yield from self._read_lines(opened[-1])
        finally:
            for response in opened:
                response.close()

    def close(self) -> None:
        """Close every connection; calls of other threads end with ClosedError. May be called more than once."""
        self._closed.set()
        if (transport := self._transports.pop(os.getpid(), None)) is not None:
            transport.close()

    def _drive(self, steps: Steps[T], opened: list[httpx.Response]) -> T:
        try:
            step = next(steps)
            while True:
                if isinstance(step, Wait):
                    self._wait(step.seconds)
                    step = next(steps)
                    continue
                try:
                    answer = self._send(step, opened)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _wait(self, seconds: float) -> None:
        # Of a client that is closed meanwhile, the next request tells.
        self._closed.wait(seconds)

    def _send(self, send: Send, opened: list[httpx.Response]) -> Answer:
        transport = self._transport()
        from .transport import answer_of, build_request, check_size, deadline

        with self._errors(), deadline(time.monotonic() + self.endpoint.timeout):
            response = transport.handle_request(build_request(self.endpoint, send))
            if send.stream and response.is_success:
                opened.append(response)
                return answer_of(response)
            content, size = [], 0
            with closing(response):
                for piece in response.iter_bytes():
                    size += len(piece)
                    check_size(self.endpoint, size)
                    content.append(piece)
            return answer_of(response, content)

    def _transport(self) -> Transport:
        if self._closed.is_set():
            raise self._closed_error()
        transport = self._transports.get(os.getpid())
        if transport is None:
            from .transport import Transport, proxy_option

            with self._errors():
                made = Transport(proxy_option(self.endpoint))
            transport = self._transports.setdefault(os.getpid(), made)
            if transport is not made:  # another thread was faster
                made.close()
        return transport

    def _read_lines(self, response: httpx.Response) -> Iterator[str]:
        from .transport import deadline

        lines = Lines(self.endpoint)
        pieces = response.iter_bytes()
        left = self.endpoint.timeout
        while True:
            began = time.monotonic()
            with self._errors(), deadline(began + left):
                piece = next(pieces, None)
            left -= time.monotonic() - began  # what the caller does between two pieces takes no time of the server's
            if piece is None:
                break
            yield from lines.feed(piece)
        yield from lines.end()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from .transport import errors_of

        try:
            with errors_of(self.endpoint):
                yield
        except EndpointError as error:
            if self._closed.is_set():  # so the endpoint is not to blame
                raise self._closed_error() from error
            raise

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"the client of {self.endpoint.shown} is closed; make another one")
