"""The plugins, set up for the small models that the servers have."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from nanomem_core.http import Body
from nanomem_core.interfaces import ChatMessage
from nanomem_plugins.openai.embedder import OpenAIEmbedder
from nanomem_plugins.openai.generator import OpenAIGenerator

__all__ = ["CHAT_MODEL", "PASSAGES", "QUESTIONS", "Brief", "Slots", "bounded", "make_embedder", "make_generator"]

CHAT_MODEL = "gemma3-270m"
PASSAGES, QUESTIONS = "e5-passage", "e5-query"
"""Names by which the server takes a text for one that is stored, or for a question."""

_LONGEST_ANSWER = 200
"""Tokens; a base model does not come to an end by itself."""


def bounded(schema: Any) -> Any:
    """`schema` with an end for each list and text, and none of them empty: a base model that began to repeat itself
    would fill its whole context.
    """
    if isinstance(schema, list):
        return [bounded(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {key: bounded(value) for key, value in schema.items()}
    if schema.get("type") == "array":
        inner |= {"minItems": 1, "maxItems": 2}
    elif schema.get("type") == "string" and "enum" not in schema:
        inner |= {"minLength": 5, "maxLength": 40}
    return inner


class Brief(OpenAIGenerator):
    """The plugin, asking for short answers."""

    def body(
        self,
        messages: Sequence[ChatMessage],
        temperature: float,
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
        stream: bool,
    ) -> Body:
        limit = min(max_tokens or _LONGEST_ANSWER, _LONGEST_ANSWER)
        return super().body(messages, temperature, limit, None if schema is None else bounded(schema), stream)


def make_generator(url: str, kind: type[OpenAIGenerator] = OpenAIGenerator, **options: Any) -> OpenAIGenerator:
    return kind(CHAT_MODEL, **{"base_url": url, "api_key": None, "timeout": 300.0} | options)


def make_embedder(url: str, model: str = PASSAGES, **options: Any) -> OpenAIEmbedder:
    return OpenAIEmbedder(model, **{"base_url": url, "api_key": None, "timeout": 300.0} | options)


class Slots:
    """The requests that the chat server is working on."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def busy(self) -> int:
        return sum(slot["is_processing"] for slot in self._client.get("/slots").raise_for_status().json())

    def wait_until(self, busy: int, seconds: float = 60.0) -> bool:
        """Wait until it works on so many; False if it took longer."""
        deadline = time.monotonic() + seconds
        while self.busy() != busy:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True
