"""Texts from ``/api/chat``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nanomem_core.http import Body, HttpGenerator, Key, StreamReader, count, peek, text_of
from nanomem_core.interfaces import ChatMessage, Completion

from .server import bare_name, endpoint

__all__ = ["OllamaGenerator"]


class OllamaGenerator(HttpGenerator):
    """Asks an Ollama server, JSON by its schema. https://docs.ollama.com/api/chat

    Args:
        model: the model's name.
        base_url, api_key: as in the embedder ``ollama``.
        num_ctx: tokens that the model reads and writes in all; None is the server's own number. Ollama cuts what goes
            beyond, from the start of the conversation, and does not say so.
        timeout, connect_timeout, read_timeout, retries, proxy, headers: as in `Endpoint`.
    """

    name: ClassVar[str] = "ollama"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: Key | None = None,
        num_ctx: int | None = None,
        timeout: float = 300.0,
        connect_timeout: float = 5.0,
        read_timeout: float | None = None,
        retries: int = 2,
        proxy: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            endpoint(
                "chat",
                base_url,
                api_key,
                headers,
                timeout=timeout,
                connect_timeout=connect_timeout,
                read_timeout=read_timeout,
                retries=retries,
                proxy=proxy,
            ),
            bare_name(model),
        )
        self._num_ctx = num_ctx

    def body(
        self,
        messages: Sequence[ChatMessage],
        temperature: float,
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
        stream: bool,
    ) -> Body:
        options: dict[str, Any] = {"temperature": temperature}
        if max_tokens is not None:
            options["num_predict"] = max_tokens
        if self._num_ctx is not None:
            options["num_ctx"] = self._num_ctx
        body = {
            "model": self.model,
            "messages": [{"role": turn["role"], "content": turn["content"]} for turn in messages],
            "stream": stream,
            "options": options,
        }
        return body if schema is None else {**body, "format": schema}

    def read(self, answer: Any) -> Completion:
        model = peek(answer, "model")
        return Completion(
            text_of(self.endpoint, answer, "message", "content"),
            model if isinstance(model, str) else None,
            count(answer, "prompt_eval_count"),
            count(answer, "eval_count"),
        )

    def reader(self) -> StreamReader:
        return _Reader(self.endpoint)


class _Reader(StreamReader):
    """One JSON object a line; the last one is ``done``."""

    def event(self, data: Any) -> str | None:
        if problem := peek(data, "error"):
            raise self.fail(problem)
        if isinstance(model := peek(data, "model"), str):
            self.model = model
        if peek(data, "done") is True:
            self.ended = True
            self.input_tokens = count(data, "prompt_eval_count")
            self.output_tokens = count(data, "eval_count")
        piece = peek(data, "message", "content")
        return piece if isinstance(piece, str) else None
