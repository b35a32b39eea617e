"""Models asked by awaiting: the same plugins, without a thread that waits.

Runs in the asyncio loop of its caller, and has none of its own. An object belongs to the loop in which
it was first used; close it there::

    async with AsyncGenerator(plugins.build("generator", {"use": "openai", "model": "gpt-5-mini"})) as generator:
        completion = await generator.complete(messages)

A component that is no HTTP client works too: it runs in a worker thread.

A `Memory` is not asynchronous: its work is on files and arrays, not on waiting. Call it as
``await asyncio.to_thread(memory.search, question)``; it may be shared by threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator as AsyncGeneratorType
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from .changes import Vectors
from .errors import ClosedError
from .http.answers import Answer
from .http.embedder import HttpEmbedder
from .http.endpoint import Endpoint
from .http.exchange import Call, Send, Steps, Wait, exchange, opening
from .http.generator import HttpGenerator
from .http.lines import Lines
from .interfaces import ChatMessage, Completion, Embedder, Generator
from .interfaces.generator import ToItsEnd

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncClient", "AsyncEmbedder", "AsyncGenerator", "AsyncStream"]

T = TypeVar("T")


class _Async:
    """A context manager around `close`."""

    async def close(self) -> None:
        """Release what is held. May be called more than once."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncClient(_Async):
    """Asks one endpoint, as `nanomem_core.http.Client` does."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._closed = False

    async def run(self, call: Call[T]) -> T:
        """What `call` returns; a cancelled one frees its connection.

        Raises:
            EndpointError: the endpoint can't be used. ClosedError: the client was closed.
        """
        steps = exchange(self.endpoint, call)
        with closing(steps):
            return await self._drive(steps, [])

    async def lines(self, call: Call[Any]) -> AsyncGeneratorType[str, None]:
        """The lines of the stream that answers the first body of `call` that the server accepts.

        Raises:
            EndpointError: the endpoint can't be used, or the stream breaks off.
        """
        opened: list[httpx.Response] = []
        steps = opening(self.endpoint, call)
        try:
            with closing(steps):
                await self._drive(steps, opened)
            async with aclosing(self._read_lines(opened[-1])) as lines:
                async for line in lines:
                    yield line
        finally:
            for response in opened:
                await response.aclose()

    async def close(self) -> None:
        self._closed = True
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def _drive(self, steps: Steps[T], opened: list[httpx.Response]) -> T:
        try:
            step = next(steps)
            while True:
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                    step = next(steps)
                    continue
                try:
                    answer = await self._send(step, opened)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _send(self, send: Send, opened: list[httpx.Response]) -> Answer:
        from .http.transport import answer_of, build_request, check_size, errors_of

        with errors_of(self.endpoint):
            async with asyncio.timeout(self.endpoint.timeout):
                response = await self._pool().handle_async_request(build_request(self.endpoint, send))
                if send.stream and response.is_success:
                    opened.append(response)
                    return answer_of(response)
                content, size = [], 0
                try:
                    async for piece in response.aiter_bytes():
                        size += len(piece)
                        check_size(self.endpoint, size)
                        content.append(piece)
                finally:
                    await response.aclose()
                return answer_of(response, content)

    def _pool(self) -> httpx.AsyncHTTPTransport:
        if self._closed:
            raise ClosedError(f"the client of {self.endpoint.shown} is closed; make another one")
        if self._transport is None:
            import httpx

            from .http.transport import proxy_option

            self._transport = httpx.AsyncHTTPTransport(proxy=proxy_option(self.endpoint))
        return self._transport

    async def _read_lines(self, response: httpx.Response) -> AsyncGeneratorType[str, None]:
        from .http.transport import errors_of

        lines = Lines(self.endpoint)
        left = self.endpoint.timeout
        async with aclosing(response.aiter_bytes()) as pieces:  # type: ignore[type-var]
            while True:
                began = time.monotonic()
                with errors_of(self.endpoint):
                    async with asyncio.timeout(left):
                        piece = await anext(pieces, None)
                left -= time.monotonic() - began
                if piece is None:
                    break
                for line in lines.feed(piece):
                    yield line
            for line in lines.end():
                yield line


class AsyncEmbedder(_Async):
    """`embedder`, awaited. Closing this leaves `embedder` itself open."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._client = AsyncClient(embedder.endpoint) if isinstance(embedder, HttpEmbedder) else None

    async def embed_batch(self, texts: Sequence[str]) -> Vectors:
        """As `Embedder.embed_batch`."""
        if isinstance(self.embedder, HttpEmbedder) and self._client is not None and texts:
            rows = await self._client.run(self.embedder.encoding(list(texts)))
            return self.embedder._checked(rows, len(texts))
        return await asyncio.to_thread(self.embedder.embed_batch, texts)

    async def embed(self, text: str) -> npt.NDArray[np.float32]:
        """As `Embedder.embed`."""
        vector: npt.NDArray[np.float32] = (await self.embed_batch([text]))[0]
        return vector

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """As `Embedder.embed_query`."""
        if isinstance(self.embedder, HttpEmbedder) and self._client is not None:
            rows = await self._client.run(self.embedder.encoding([text], query=True))
            vector: npt.NDArray[np.float32] = self.embedder._checked(rows, 1)[0]
            return vector
        return await asyncio.to_thread(self.embedder.embed_query, text)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class AsyncStream(ToItsEnd, _Async, AsyncIterator[str]):
    """As `nanomem_core.interfaces.Stream`, awaited; made by `AsyncGenerator.stream`."""

    def __init__(self, pieces: AsyncGeneratorType[str | Completion, None]) -> None:
        self._pieces = pieces

    async def __anext__(self) -> str:
        piece = await anext(self._pieces)
        if isinstance(piece, Completion):
            self._completion = piece
            raise StopAsyncIteration
        return piece

    async def close(self) -> None:
        """Take no more pieces, which frees the connection. May be called more than once."""
        await self._pieces.aclose()


class AsyncGenerator(_Async):
    """`generator`, awaited. Closing this leaves `generator` itself open."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self._client = AsyncClient(generator.endpoint) if isinstance(generator, HttpGenerator) else None

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """As `Generator.complete`."""
        if isinstance(self.generator, HttpGenerator) and self._client is not None:
            return await self._client.run(self.generator.completing(messages, temperature, max_tokens, schema))

        def complete() -> Completion:
            return self.generator.complete(messages, temperature=temperature, max_tokens=max_tokens, schema=schema)

        return await asyncio.to_thread(complete)

    async def generate_json(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, Any],
        check: Callable[[Any], None] | None = None,
        temperature: float = 0.0,
        max_tokens: int | None = None,
    ) -> Any:
        """As `Generator.generate_json`."""
        turns = self.generator.json_turns(messages, schema, check)
        try:
            asked = next(turns)
            while True:
                completion = await self.complete(asked, temperature=temperature, max_tokens=max_tokens, schema=schema)
                asked = turns.send(completion.text)
        except StopIteration as stop:
            return stop.value

    def stream(
        self, messages: Sequence[ChatMessage], *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> AsyncStream:
        """As `Generator.stream`; from a generator that is no HTTP client the answer comes in one piece."""

        async def pieces() -> AsyncGeneratorType[str | Completion, None]:
            if isinstance(self.generator, HttpGenerator) and self._client is not None:
                reader = self.generator.reader()
                call = self.generator.completing(messages, temperature, max_tokens, None, stream=True)
                async with aclosing(self._client.lines(call)) as lines:
                    async for line in lines:
                        for piece in reader.take(line):
                            yield piece
                yield reader.completion()
            else:
                completion = await self.complete(messages, temperature=temperature, max_tokens=max_tokens)
                yield completion.text
                yield completion

        return AsyncStream(pieces())

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
