"""An embedder that asks another one only for what it has not kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nanomem_core.changes import Vectors
from nanomem_core.interfaces import Embedder

from .store import EmbeddingCache, Space

__all__ = ["CachedEmbedder"]


class CachedEmbedder(Embedder):
    """`embedder`, which is asked for a text only if `store` has no vector of it under the embedder's id and width.

    Everything else is the embedder's own: its name, its id, and what attributes it has besides.
    """

    name: ClassVar[str] = "cached"

    def __init__(self, embedder: Embedder, store: EmbeddingCache) -> None:
        self.name = embedder.name  # type: ignore[misc]  # messages and settings are about the embedder
        self._embedder = embedder
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._embedder, name)

    @property
    def id(self) -> str:
        return self._embedder.id

    @property
    def dim(self) -> int:
        return self._embedder.dim

    def encode(self, texts: Sequence[str]) -> Vectors:
        return self._known(texts, False, self._embedder.embed_batch)

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        return self._known([text], True, lambda texts: self._embedder.embed_query(texts[0])[np.newaxis])

    def close(self) -> None:
        self._store.close()
        self._embedder.close()

    def _known(self, texts: Sequence[str], questions: bool, embed: Callable[[Sequence[str]], Vectors]) -> Vectors:
        space = Space(self.id, self.dim, questions)
        known = self._store.find(space, texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            # Checked by the embedder's own core: rows of another number or width raise, and are not kept.
            fresh = dict(zip(missing, embed(missing), strict=True))
            self._store.keep(space, fresh)
            known |= fresh
        return np.stack([known[text] for text in texts])
