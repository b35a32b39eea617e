"""`nanomem_core`, as a user gets it: a `Vault` with its defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nanomem_core import Vault
from nanomem_core.interfaces import Embedder

from ..data import K, Material
from .base import Arm

__all__ = ["Product"]

_FILE = "memory.dat"


class _GivenEmbedder(Embedder):
    """Looks up the vectors of the questions, so that the cost of embedding is no part of a search."""

    name = "given"
    id = "given"
    dim = 0

    def __init__(self, material: Material) -> None:
        self._material = material
        self.dim = material.dim

    def encode(self, texts: Sequence[str]) -> npt.ArrayLike:
        return np.stack([self.encode_query(text) for text in texts])

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        return self._material.by_question[text]


class Product(Arm):
    settings = 'Vault(path), float16 vectors, fsync; search in mode="vector" with decompose=False unless said'
    shared = True
    derived = (".derived", ".index", ".lock")

    def open(self) -> None:
        self._vault = Vault(self.folder / _FILE, _GivenEmbedder(self.material))

    def close(self) -> None:
        self._vault.close()

    def add_many(self, positions: range) -> None:
        vectors = self.material.matrix(positions)
        self._vault.add_many([self._item(p, row) for p, row in zip(positions, vectors, strict=True)])

    def _item(self, position: int, vector: npt.NDArray[np.float32]) -> dict[str, Any]:
        return {
            "id": str(position),
            "text": self.material.text(position),
            "metadata": {"bucket": self.material.bucket(position)},
            "source": "bench",
            "timestamp": float(position),
            "entity": self.material.entity(position),
            "vectors": vector,
        }

    def stored(self) -> npt.NDArray[np.float32]:
        columns = self._vault.storage.columns(self._vault.scope)
        rows = np.flatnonzero(columns.live)
        vectors, owners = columns.source.vectors(rows)
        result = np.empty_like(vectors)
        result[[int(id) for id in columns.source.ids(owners)]] = vectors
        return result

    # Operations.

    def search(self, number: int) -> list[int]:
        return self._search(number)

    def search_filtered(self, number: int) -> list[int]:
        return self._search(number, filter={"bucket": self.material.bucket(number)})

    def search_hybrid(self, number: int) -> list[int]:
        return self._search(number, mode="hybrid")

    def _search(self, number: int, **options: Any) -> list[int]:
        question = self.material.question(number)
        options.setdefault("mode", "vector")
        return [int(hit["id"]) for hit in self._vault.search(question, K, decompose=False, **options)]

    def get(self, number: int) -> None:
        assert self._vault.get(str(number)) is not None

    def add(self, number: int) -> None:
        self._vault.add_many([self._item(number, self.material.vector(number))])

    def delete(self, number: int) -> None:
        assert self._vault.delete(str(number)) == 1

    def history(self, number: int) -> None:
        assert self._vault.history(id=str(number))

    def history_asked(self, number: int) -> None:
        assert self._vault.history(self.material.question(number), mode="vector")

    def changes(self, number: int) -> None:
        assert self._vault.changes(since=float(len(self.material) - 11), limit=10)

    def volatility(self, number: int) -> None:
        self._vault.volatility()

    def compact(self, number: int) -> None:
        self._vault.compact()
