"""Vectors from ``/api/embed``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy.typing as npt

from nanomem_core.http import Body, HttpEmbedder, Key, count, field

from .server import bare_name, endpoint

__all__ = ["OllamaEmbedder"]


class OllamaEmbedder(HttpEmbedder):
    """Asks an Ollama server. https://docs.ollama.com/api/embed

    Ollama cuts a text that is too long for the model.

    Args:
        model: the model's name; ``nomic-embed-text`` wants ``search_document: `` and ``search_query: `` as prefixes.
        base_url: the server; ``OLLAMA_HOST`` or ``http://localhost:11434`` if it is not given.
        api_key: the key, where the server wants one; ``OLLAMA_API_KEY`` is read unless another server is given.
        dim, dimensions, batch_size, batch_tokens, document_prefix, query_prefix: as in `HttpEmbedder`.
        timeout, connect_timeout, read_timeout, retries, proxy, headers: as in `Endpoint`.
    """

    name: ClassVar[str] = "ollama"

    def __init__(
        self,
        model: str = "nomic-embed-text",
        *,
        base_url: str | None = None,
        api_key: Key | None = None,
        dim: int | None = None,
        dimensions: int | None = None,
        batch_size: int = 16,
        batch_tokens: int = 32_000,
        document_prefix: str = "",
        query_prefix: str = "",
        timeout: float = 120.0,
        connect_timeout: float = 5.0,
        read_timeout: float | None = None,
        retries: int = 2,
        proxy: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            endpoint(
                "embed",
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
            dim=dim,
            dimensions=dimensions,
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            document_prefix=document_prefix,
            query_prefix=query_prefix,
        )

    def body(self, texts: Sequence[str]) -> Body:
        body: dict[str, Any] = {"model": self.model, "input": list(texts)}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        return body

    def read(self, answer: Any) -> tuple[npt.ArrayLike, int | None]:
        return field(self.endpoint, answer, "embeddings"), count(answer, "prompt_eval_count")
