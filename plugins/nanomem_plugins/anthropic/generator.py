"""Texts from ``/v1/messages``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nanomem_core.errors import ConfigError, GeneratorError, RefusedError
from nanomem_core.http import (
    Body,
    Endpoint,
    HttpGenerator,
    Key,
    StreamReader,
    complete_url,
    count,
    field,
    find_key,
    in_domain,
    parse_url,
    peek,
    server_events,
    with_schema,
)
from nanomem_core.interfaces import ChatMessage, Completion

__all__ = ["AnthropicGenerator"]

_DEFAULT_URL = "https://api.anthropic.com"
_VERSION = "2023-06-01"
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicGenerator(HttpGenerator):
    """Asks Claude. https://docs.claude.com/en/api/messages

    JSON is asked for in words.

    Args:
        model: the model's name.
        base_url: the server, ``https://api.anthropic.com`` if neither this nor ``ANTHROPIC_BASE_URL`` is set; or the
            full URL of the endpoint.
        api_key: the key; ``ANTHROPIC_API_KEY`` is read for Anthropic's own URL only.
        max_tokens: tokens of an answer where the caller sets no limit; the interface demands one.
        timeout, connect_timeout, read_timeout, retries, proxy, headers: as in `Endpoint`.
    """

    name: ClassVar[str] = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: Key | None = None,
        max_tokens: int = 4096,
        timeout: float = 120.0,
        connect_timeout: float = 5.0,
        read_timeout: float | None = None,
        retries: int = 2,
        proxy: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        if max_tokens < 1:
            raise ConfigError(f"max_tokens: expected 1 or more; found {max_tokens}", key="max_tokens")
        url = parse_url(base_url or os.environ.get("ANTHROPIC_BASE_URL") or _DEFAULT_URL)
        own = base_url is None or in_domain(url.hostname or "", "anthropic.com")
        key, key_help = find_key(api_key, "ANTHROPIC_API_KEY", own)
        super().__init__(
            Endpoint(
                "anthropic",
                complete_url(url, "/v1", "messages"),
                headers={"anthropic-version": _VERSION, **({"x-api-key": key} if key else {}), **(headers or {})},
                key_help=key_help,
                timeout=timeout,
                connect_timeout=connect_timeout,
                read_timeout=read_timeout,
                retries=retries,
                proxy=proxy,
            ),
            model,
        )
        self._max_tokens = max_tokens
        self._takes_temperature = True

    def body(
        self,
        messages: Sequence[ChatMessage],
        temperature: float,
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
        stream: bool,
    ) -> Body:
        turns = list(messages) if schema is None else with_schema(messages, schema)
        system = "\n\n".join(turn["content"] for turn in turns if turn["role"] == "system")
        others = [{"role": turn["role"], "content": turn["content"]} for turn in turns if turn["role"] != "system"]
        if not others:  # the interface demands a turn of the user
            system, others = "", [{"role": "user", "content": system}]
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self._max_tokens if max_tokens is None else max_tokens,
            "messages": others,
        }
        if system:
            body["system"] = system
        if self._takes_temperature:
            body["temperature"] = min(temperature, 1.0)
        if stream:
            body["stream"] = True
        return body

    def adapt(self, error: RefusedError, body: Body) -> bool:
        if "temperature" in body and "temperature" in str(error):
            self._takes_temperature = False
            return True
        return False

    def read(self, answer: Any) -> Completion:
        if peek(answer, "stop_reason") == "refusal":
            raise GeneratorError(f"{self.endpoint.shown}: the model {self.model!r} declines to answer this")
        blocks = field(self.endpoint, answer, "content")
        texts = [
            field(self.endpoint, block, "text")
            for block in (blocks if isinstance(blocks, list) else ())
            if peek(block, "type") == "text"
        ]
        model, usage = peek(answer, "model"), peek(answer, "usage")
        return Completion(
            "".join(text for text in texts if isinstance(text, str)),
            model if isinstance(model, str) else None,
            count(usage, *_INPUT),
            count(usage, "output_tokens"),
        )

    def reader(self) -> StreamReader:
        return _Reader(self.endpoint)


class _Reader(StreamReader):
    """Server-sent events; each datum names its own type. https://docs.claude.com/en/docs/build-with-claude/streaming"""

    def line(self, line: str) -> str | None:
        data = server_events(line)
        return None if data is None else super().line(data)

    def event(self, data: Any) -> str | None:
        kind = peek(data, "type")
        if kind == "error":
            raise self.fail(peek(data, "error"))
        if kind == "message_start":
            model = peek(data, "message", "model")
            self.model = model if isinstance(model, str) else None
            self.input_tokens = count(peek(data, "message", "usage"), *_INPUT)
        elif kind == "message_delta":
            self.output_tokens = count(peek(data, "usage"), "output_tokens")
            if peek(data, "delta", "stop_reason") == "refusal":
                raise GeneratorError(f"{self.endpoint.shown}: the model declines to go on")
        elif kind == "message_stop":
            self.ended = True
        elif kind == "content_block_delta" and peek(data, "delta", "type") == "text_delta":
            piece = peek(data, "delta", "text")
            return piece if isinstance(piece, str) else None
        return None
