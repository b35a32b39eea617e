"""A server on this machine that answers as it is told, on real sockets: also too late, never, in drops, or half."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    """A request as it came; header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    """An answer.

    Attributes:
        body: bytes or text as they are; anything else as JSON; a list or an iterator of bytes is sent piece by piece,
            chunked.
        missing: bytes that are announced but never sent.
        drip: seconds between one byte and the next; the server never ends such an answer.
        wait: what must happen before anything is sent; None waits for nothing.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    drip: float | None = None
    drip_headers: bool = False
    wait: threading.Event | None = None


Script = Callable[[Received], Reply] | Iterable[Reply]


class ScriptedServer:
    """Answers with each reply of `script` in turn, the last one for ever, or with what a function makes of a request.

    Attributes:
        received: every request, in order.
        gone: set when a client left an answer before its end.
    """

    def __init__(self, script: Script) -> None:
        self._replies = None if callable(script) else list(script)
        self._answer = script if callable(script) else self._next
        self.received: list[Received] = []
        self.gone = threading.Event()
        self.closing = threading.Event()
        server = self

        class Handler(_Handler):
            owner = server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, request: Received) -> Reply:
        with self._lock:
            self.received.append(request)
        return self._answer(request)

    def _next(self, request: Received) -> Reply:
        assert self._replies is not None
        return self._replies[min(len(self.received), len(self._replies)) - 1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: ScriptedServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.owner.answer(
            Received(self.command, path, query, headers, json.loads(content) if content else None)
        )
        try:
            self._send(reply)
        except OSError:
            self.owner.gone.set()
            self.close_connection = True

    do_GET = do_POST

    def _send(self, reply: Reply) -> None:
        if reply.wait is not None:
            while not reply.wait.wait(0.01):
                if self.owner.closing.is_set():
                    self.close_connection = True
                    return
        body = reply.body
        pieces = (
            body
            if isinstance(body, Iterator) or (isinstance(body, list) and body and isinstance(body[0], bytes))
            else None
        )
        if pieces is None and not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        lines = [f"HTTP/1.1 {reply.status} X"]
        lines += [
            f"{name}: {value}" for name, value in ({"content-type": "application/json"} | dict(reply.headers)).items()
        ]
        if pieces is not None:
            lines.append("transfer-encoding: chunked")
        else:
            lines.append(f"content-length: {len(body) + reply.missing}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        if reply.drip is not None:
            self.close_connection = True
            endless = b"x" if reply.drip_headers else b" "
            start = head[:-4] + b"\r\nx-drip: " if reply.drip_headers else head
            self.wfile.write(start)
            while not self.owner.closing.wait(reply.drip):
                self.wfile.write(endless)
            return
        self.wfile.write(head)
        for piece in pieces if pieces is not None else [body]:
            self.wfile.write(piece if pieces is None else b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        if pieces is not None and not reply.missing:
            self.wfile.write(b"0\r\n\r\n")
        if reply.missing:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(1)
