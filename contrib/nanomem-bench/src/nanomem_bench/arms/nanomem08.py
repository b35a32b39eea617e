"""The PyPI package nanomem 0.8."""

from __future__ import annotations

from typing import Any

import nanomem
import numpy as np
import numpy.typing as npt

from ..data import K, Material
from .base import Arm

__all__ = ["Product"]


class _GivenEmbedder:
    def __init__(self, material: Material) -> None:
        self._material = material
        self.dim = material.dim

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        return self._material.by_question[text]

    def embed_batch(self, texts: list[str]) -> npt.NDArray[np.float32]:
        return np.stack([self._material.by_question[text] for text in texts])


class Product(Arm):
    settings = (
        "Vault(path), float16 vectors, with its sidecar (written by an earlier open); decompose=False; "
        "one record is made durable by add_batch of one, which flushes"
    )
    shared = True
    derived = (".arena", ".lock")

    def open(self) -> None:
        self._vault = nanomem.Vault(str(self.folder / "memory.dat"), embedder=_GivenEmbedder(self.material))

    def close(self) -> None:
        self._vault.close()

    def add_many(self, positions: range) -> None:
        rows = self.material.matrix(positions)
        # Nothing needs to be embedded, so one batch saves time and changes nothing else.
        records = [self._record(p, row) for p, row in zip(positions, rows, strict=True)]
        self._vault.add_batch(records, batch_size=len(records))

    def _record(self, position: int, vector: npt.NDArray[np.float32]) -> dict[str, Any]:
        entity = self.material.entity(position)
        return {
            "id": str(position),
            "text": self.material.text(position),
            "metadata": {"bucket": self.material.bucket(position)} | ({} if entity is None else {"entity": entity}),
            "source": "bench",
            "timestamp": float(position),
            "embedding": vector,
        }

    def stored(self) -> npt.NDArray[np.float32]:
        records = self._vault.get_all_records()
        result = np.empty((len(records), self.material.dim), np.float32)
        for record in records:
            result[int(record["id"])] = record["embedding"]
        return result

    # Operations.

    def search(self, number: int) -> list[int]:
        return self._search(number)

    def search_filtered(self, number: int) -> list[int]:
        return self._search(number, filter={"bucket": self.material.bucket(number)})

    def _search(self, number: int, **options: Any) -> list[int]:
        question = self.material.question(number)
        # Its default floor of 0 leaves out what points the other way, which the other products return.
        hits = self._vault.search(question, top_k=K, decompose=False, min_score=-1.0, **options)
        return [int(hit["id"]) for hit in hits]

    def get(self, number: int) -> None:
        assert self._vault.get(str(number)) is not None

    def add(self, number: int) -> None:
        self._vault.add_batch([self._record(number, self.material.vector(number))])

    def delete(self, number: int) -> None:
        assert self._vault.delete(str(number)) == 1

    def history_asked(self, number: int) -> None:
        assert self._vault.history(self.material.question(number))

    def changes(self, number: int) -> None:
        assert self._vault.changes(since=float(len(self.material) - 11), limit=10)

    def volatility(self, number: int) -> None:
        self._vault.volatility()
