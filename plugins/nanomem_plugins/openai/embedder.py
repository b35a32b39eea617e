"""Vectors from ``/embeddings``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import BadResponseError
from nanomem_core.http import Body, HttpEmbedder, Key, count, field, peek

from .server import endpoint

__all__ = ["OpenAIEmbedder"]


class OpenAIEmbedder(HttpEmbedder):
    """Asks OpenAI, Azure, or any server that speaks OpenAI's interface: vLLM, LM Studio, llama.cpp and others.

    https://platform.openai.com/docs/api-reference/embeddings

    Args:
        model: such as ``text-embedding-3-small``; Azure calls it a deployment.
        base_url: the server, ``https://api.openai.com/v1`` if neither this nor ``OPENAI_BASE_URL`` is set; or the
            full URL of the endpoint, with ``?api-version=…`` where Azure wants that.
        api_key: the key; ``OPENAI_API_KEY`` is read for OpenAI's own URL only, ``AZURE_OPENAI_API_KEY`` for Azure's.
        encoding_format: how vectors travel; ``base64`` takes a third of the bytes where the server knows it.
        dim, dimensions, batch_size, batch_tokens, document_prefix, query_prefix: as in `HttpEmbedder`.
        timeout, connect_timeout, read_timeout, retries, proxy, headers: as in `Endpoint`.
    """

    name: ClassVar[str] = "openai"

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        base_url: str | None = None,
        api_key: Key | None = None,
        encoding_format: Literal["float", "base64"] = "float",
        dim: int | None = None,
        dimensions: int | None = None,
        batch_size: int = 64,
        batch_tokens: int = 32_000,
        document_prefix: str = "",
        query_prefix: str = "",
        timeout: float = 60.0,
        connect_timeout: float = 5.0,
        read_timeout: float | None = None,
        retries: int = 2,
        proxy: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            endpoint(
                "embeddings",
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
            dim=dim,
            dimensions=dimensions,
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            document_prefix=document_prefix,
            query_prefix=query_prefix,
        )
        self._encoding_format = encoding_format

    def body(self, texts: Sequence[str]) -> Body:
        body: dict[str, Any] = {"model": self.model, "input": list(texts), "encoding_format": self._encoding_format}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        return body

    def read(self, answer: Any) -> tuple[npt.ArrayLike, int | None]:
        data = field(self.endpoint, answer, "data")
        items = data if isinstance(data, list) else []
        rows = [self._row(field(self.endpoint, item, "embedding")) for item in items]
        # Answers may come in any order. Servers that give no index keep that of the texts.
        places = [peek(item, "index") for item in items]
        if any(place is not None for place in places):
            if not all(type(place) is int for place in places) or sorted(places) != list(range(len(places))):
                raise self._bad(f"each index from 0 to {len(places) - 1} once in data", "others")
            rows = [rows[place] for place in np.argsort(places)]
        return rows, count(peek(answer, "usage"), "prompt_tokens")

    def _row(self, embedding: Any) -> Any:
        if not isinstance(embedding, str):
            return embedding
        try:
            return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
        except (binascii.Error, ValueError) as error:
            raise self._bad("a vector in base64", "something else") from error

    def _bad(self, expected: str, found: str) -> BadResponseError:
        shown = self.endpoint.shown
        return BadResponseError(f"{shown}: expected {expected}; found {found}", url=shown, status=200)
