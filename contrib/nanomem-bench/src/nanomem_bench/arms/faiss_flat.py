"""FAISS, its exact index for inner products."""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt

from ..data import K, Material
from .base import Arm

__all__ = ["Product"]


class Product(Arm):
    settings = "IndexFlatIP, float32 in memory, written by write_index; vectors only, no texts"

    def __init__(self, folder: Path, material: Material, threads: int) -> None:
        super().__init__(folder, material, threads)
        faiss.omp_set_num_threads(threads)

    def open(self) -> None:
        self._path = self.folder / "index.faiss"
        exists = self._path.exists()
        self._index = faiss.read_index(str(self._path)) if exists else faiss.IndexFlatIP(self.material.dim)
        self._changed = not exists

    def close(self) -> None:
        if self._changed:
            faiss.write_index(self._index, str(self._path))

    def add_many(self, positions: range) -> None:
        self._index.add(np.ascontiguousarray(self.material.matrix(positions)))
        self._changed = True

    def stored(self) -> npt.NDArray[np.float32]:
        rows: npt.NDArray[np.float32] = self._index.reconstruct_n(0, self._index.ntotal)
        return rows

    def search(self, number: int) -> list[int]:
        query = self.material.query(number)
        found: list[int] = self._index.search(query[np.newaxis], min(K, self._index.ntotal))[1][0].tolist()
        return found
