"""What the generators of all HTTP providers share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import BadResponseError, ConfigError, ContextLengthError, RefusedError
from ..interfaces import ChatMessage, Completion, Generator, Stream
from .answers import parse_json
from .client import Client
from .endpoint import Endpoint
from .exchange import Body, Call

__all__ = ["HttpGenerator", "StreamReader", "count", "field", "peek", "server_events", "text_of", "with_schema"]

_ADAPTIONS = 6
"""How often one call lets a server refuse what it doesn't know."""


class StreamReader:
    """Reads the lines of one stream: a provider subclasses it and implements `event`.

    Attributes:
        pieces: the pieces of the text so far.
        model, input_tokens, output_tokens: as in `Completion`; `event` sets them.
        ended: whether the answer came to its end; `event` sets it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.pieces: list[str] = []
        self.model: str | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.ended = False

    def event(self, data: Any) -> str | None:
        """The piece of text in one JSON value of the stream, if there is one."""
        raise NotImplementedError

    def line(self, line: str) -> str | None:
        """The piece of text in one line, if there is one. Lines are JSON values here; see also `server_events`."""
        return self.event(parse_json(self.endpoint, line.encode())) if line.strip() else None

    def take(self, line: str) -> Iterator[str]:
        """The piece of text in one line, kept and handed on."""
        if not self.ended and (piece := self.line(line)):
            self.pieces.append(piece)
            yield piece

    def completion(self) -> Completion:
        """The whole answer.

        Raises:
            BadResponseError: the stream ended before the answer did.
        """
        if not self.ended:
            shown = self.endpoint.shown
            raise BadResponseError(f"{shown}: the stream ended before the answer did", url=shown)
        return Completion("".join(self.pieces), self.model, self.input_tokens, self.output_tokens)

    def fail(self, problem: Any) -> BadResponseError:
        """The error for a problem that the server tells of in the middle of a stream."""
        text = peek(problem, "message") or problem
        shown = self.endpoint.shown
        return BadResponseError(f"{shown} broke the stream off: {self.endpoint.mask(str(text))[:300]}", url=shown)


def server_events(line: str) -> str | None:
    """The data in one line of a stream of server-sent events; None if the line holds none.

    https://html.spec.whatwg.org/multipage/server-sent-events.html; the providers put each datum on one line.
    """
    return line[5:].strip() or None if line.startswith("data:") else None


class HttpGenerator(Generator):
    """A generator that asks an endpoint. A provider implements `body`, `read`, and `reader` for streams.

    `nanomem_core.aio.AsyncGenerator` awaits what this does by blocking.
    """

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        if not model.strip():
            raise ConfigError("model: expected the name of a model; found an empty one", key="model")
        self.endpoint = endpoint
        self.model = model
        self._client = Client(endpoint)

    @abstractmethod
    def body(
        self,
        messages: Sequence[ChatMessage],
        temperature: float,
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
        stream: bool,
    ) -> Body:
        """The request for the model's next turn."""

    @abstractmethod
    def read(self, answer: Any) -> Completion:
        """The completion in the JSON of an `answer`; `field` and its like check what is used of it."""

    @abstractmethod
    def reader(self) -> StreamReader:
        """A reader for one stream."""

    def adapt(self, error: RefusedError, body: Body) -> bool:
        """Leave out from now on what the server refused of `body`; False if there is nothing of the kind."""
        return False

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        return self._client.run(self.completing(messages, temperature, max_tokens, schema))

    def stream(
        self, messages: Sequence[ChatMessage], *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> Stream:
        def pieces() -> abc.Generator[str, None, Completion]:
            reader = self.reader()
            lines = self._client.lines(self.completing(messages, temperature, max_tokens, None, stream=True))
            try:
                for line in lines:
                    yield from reader.take(line)
            finally:
                lines.close()
            return reader.completion()

        return Stream(pieces())

    def completing(
        self,
        messages: Sequence[ChatMessage],
        temperature: float,
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
        stream: bool = False,
    ) -> Call[Completion]:
        """The call of `complete`; with `stream` only its requests matter."""
        for left in reversed(range(_ADAPTIONS)):
            body = self.body(messages, temperature, max_tokens, schema, stream)
            try:
                answer = yield body
            except RefusedError as error:
                hopeless = error.status not in (400, 422) or isinstance(error, ContextLengthError)
                if hopeless or not left or not self.adapt(error, body):
                    raise
            else:
                return self.read(answer)
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._client.close()


def with_schema(messages: Sequence[ChatMessage], schema: Mapping[str, Any]) -> list[ChatMessage]:
    """`messages` with the wish for JSON in words, for models that take no schema."""
    wish = "Answer with JSON alone, without any other text, following this JSON Schema:\n" + json.dumps(
        schema, ensure_ascii=False
    )
    first, *rest = messages or [ChatMessage(role="system", content="")]
    if first["role"] != "system":
        return [{"role": "system", "content": wish}, first, *rest]
    return [{"role": "system", "content": f"{first['content']}\n\n{wish}".strip()}, *rest]


# Reading answers, which may be anything.


def peek(value: Any, *path: str | int) -> Any:
    """What stands at `path` in a JSON value; None if there is no such place."""
    for key in path:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and 0 <= key < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def field(endpoint: Endpoint, value: Any, *path: str | int) -> Any:
    """What stands at `path` in a JSON value.

    Raises:
        BadResponseError: there is no such place, or null.
    """
    found = peek(value, *path)
    if found is None:
        where = ".".join(map(str, path))
        raise BadResponseError(
            f"{endpoint.shown}: expected {where} in the answer; found none. Does the server speak the protocol of "
            f"{endpoint.provider}?",
            url=endpoint.shown,
            status=200,
        )
    return found


def text_of(endpoint: Endpoint, value: Any, *path: str | int) -> str:
    """The text at `path`.

    Raises:
        BadResponseError: there is none.
    """
    found = field(endpoint, value, *path)
    if not isinstance(found, str):
        where = ".".join(map(str, path))
        raise BadResponseError(
            f"{endpoint.shown}: expected a text at {where} of the answer; found {type(found).__name__}",
            url=endpoint.shown,
            status=200,
        )
    return found


def count(value: Any, *names: str) -> int | None:
    """The sum of the counts of tokens under `names` in an object; None if the first one is missing or no count."""
    counts = [peek(value, name) for name in names]
    if type(counts[0]) is not int:
        return None
    total = sum(each for each in counts if type(each) is int)
    return total if total >= 0 else None
