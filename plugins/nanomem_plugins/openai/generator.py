"""Texts from ``/chat/completions``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nanomem_core.errors import GeneratorError, RefusedError
from nanomem_core.http import Body, HttpGenerator, Key, StreamReader, count, peek, server_events, text_of, with_schema
from nanomem_core.interfaces import ChatMessage, Completion

from .server import endpoint

__all__ = ["OpenAIGenerator"]

_FORMATS = ("json_schema", "json_object", "text")
"""Ways to ask for JSON, the strictest first."""

_ABOUT_FORMAT = re.compile(r"response_?format|json_schema|json_object|json mode|structured output|schema|grammar", re.I)


class OpenAIGenerator(HttpGenerator):
    """Asks OpenAI, Azure, or any server that speaks OpenAI's interface: vLLM, LM Studio, llama.cpp and others.

    https://platform.openai.com/docs/api-reference/chat

    JSON is asked for by its schema. A server that does not know that is asked for any JSON object, with the schema in
    words, and one that does not know that either is only told in words; likewise for ``max_tokens``, which newer models
    call ``max_completion_tokens``, a temperature that a model does not take, and the usage at the end of a stream. What
    a server refused is remembered as long as this object lives.

    Args:
        model: the model's name; Azure calls it a deployment.
        base_url, api_key: as in the embedder ``openai``.
        timeout, connect_timeout, read_timeout, retries, proxy, headers: as in `Endpoint`.
    """

    name: ClassVar[str] = "openai"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: Key | None = None,
        timeout: float = 120.0,
        connect_timeout: float = 5.0,
        read_timeout: float | None = None,
        retries: int = 2,
        proxy: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            endpoint(
                "chat/completions",
                base_url,
                api_key,
                headers,
                timeout=timeout,
                connect_timeout=connect_timeout,
                read_timeout=read_timeout,
                retries=retries,
                proxy=proxy,
            ),
            model,
        )
        self._format = 0
        self._limit = "max_tokens"
        self._refused: set[str] = set()

    def body(
        self,
        messages: Sequence[ChatMessage],
        temperature: float,
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
        stream: bool,
    ) -> Body:
        turns = list(messages)
        body: dict[str, Any] = {"model": self.model}
        if schema is not None:
            form = _FORMATS[self._format]
            if form == "json_schema":
                body["response_format"] = {
                    "type": form,
                    "json_schema": {"name": "answer", "schema": schema, "strict": _is_strict(schema)},
                }
            else:
                turns = with_schema(turns, schema)
                body["response_format"] = {"type": form}
            if form == "text":
                del body["response_format"]
        body["messages"] = [{"role": turn["role"], "content": turn["content"]} for turn in turns]
        if max_tokens is not None:
            body[self._limit] = max_tokens
        if "temperature" not in self._refused:
            body["temperature"] = temperature
        if stream:
            body["stream"] = True
            if "stream_options" not in self._refused:
                body["stream_options"] = {"include_usage": True}
        return body

    def adapt(self, error: RefusedError, body: Body) -> bool:
        said = f"{error.parameter or ''} {error}"
        if "max_tokens" in body and (error.parameter == "max_tokens" or "max_completion_tokens" in said):
            self._limit = "max_completion_tokens"
            return True
        for name in ("temperature", "stream_options"):
            if name in body and name in said:
                self._refused.add(name)
                return True
        form = body.get("response_format")
        if form is not None and _ABOUT_FORMAT.search(said):
            self._format = max(self._format, _FORMATS.index(form["type"]) + 1)
            return True
        return False

    def read(self, answer: Any) -> Completion:
        if peek(answer, "choices", 0, "message", "refusal"):
            raise GeneratorError(f"{self.endpoint.shown}: the model {self.model!r} declines to answer this")
        model, usage = peek(answer, "model"), peek(answer, "usage")
        return Completion(
            text_of(self.endpoint, answer, "choices", 0, "message", "content"),
            model if isinstance(model, str) else None,
            count(usage, "prompt_tokens"),
            count(usage, "completion_tokens"),
        )

    def reader(self) -> StreamReader:
        return _Reader(self.endpoint)


class _Reader(StreamReader):
    """Chunks of a completion as server-sent events, ``[DONE]`` at the end."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.finished = False

    def line(self, line: str) -> str | None:
        data = server_events(line)
        if data == "[DONE]":
            self.ended = True
            return None
        return None if data is None else super().line(data)

    def event(self, data: Any) -> str | None:
        if problem := peek(data, "error"):
            raise self.fail(problem)
        if isinstance(model := peek(data, "model"), str):
            self.model = model
        if (usage := peek(data, "usage")) is not None:
            self.input_tokens = count(usage, "prompt_tokens")
            self.output_tokens = count(usage, "completion_tokens")
        self.finished = self.finished or peek(data, "choices", 0, "finish_reason") is not None
        piece = peek(data, "choices", 0, "delta", "content")
        return piece if isinstance(piece, str) else None

    def completion(self) -> Completion:
        self.ended = self.ended or self.finished  # not every server sends [DONE]
        return super().completion()


def _is_strict(schema: Any) -> bool:
    """True if the schema keeps to what OpenAI demands of a strict one: no object takes properties that are not named,
    and each named one is required.
    """
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False
        or set(schema.get("required", ())) != set(schema.get("properties", ()))
    ):
        return False
    return all(_is_strict(value) for value in schema.values())
