"""Chroma with its persistent client."""

from __future__ import annotations

from typing import Any

import chromadb
import numpy as np
import numpy.typing as npt

from ..data import K, blocks
from .base import Arm

__all__ = ["Product"]

_BATCH = 5_000
"""It refuses more at once; its own limit is 5,461."""


class Product(Arm):
    settings = "PersistentClient, HNSW, inner product, ef_construction=200, max_neighbors=32, ef_search=200"
    exact = False

    def open(self) -> None:
        self._client = chromadb.PersistentClient(
            str(self.folder), settings=chromadb.Settings(anonymized_telemetry=False)
        )
        hnsw = {
            "space": "ip",
            "ef_construction": 200,
            "max_neighbors": 32,
            "ef_search": 200,
            "num_threads": self.threads,
        }
        self._records: Any = self._client.get_or_create_collection(
            "memory", configuration={"hnsw": hnsw}, embedding_function=None
        )

    def close(self) -> None:
        self._client.close()

    def add_many(self, positions: range) -> None:
        for block in blocks(positions.start, positions.stop, _BATCH):
            self._records.add(
                ids=[str(p) for p in block],
                embeddings=self.material.matrix(block),
                documents=[self.material.text(p) for p in block],
                metadatas=[{"bucket": self.material.bucket(p)} for p in block],
            )

    def stored(self) -> npt.NDArray[np.float32]:
        result = np.empty((self._records.count(), self.material.dim), np.float32)
        for block in blocks(0, len(result), _BATCH):
            found = self._records.get(ids=[str(p) for p in block], include=["embeddings"])
            result[[int(id) for id in found["ids"]]] = found["embeddings"]
        return result

    def search(self, number: int) -> list[int]:
        query = self.material.query(number)
        found = self._records.query(query_embeddings=[query], n_results=K, include=["documents", "distances"])
        return [int(id) for id in found["ids"][0]]

    def get(self, number: int) -> None:
        assert self._records.get(ids=[str(number)])["ids"]

    def add(self, number: int) -> None:
        self.add_many(range(number, number + 1))

    def delete(self, number: int) -> None:
        self._records.delete(ids=[str(number)])
