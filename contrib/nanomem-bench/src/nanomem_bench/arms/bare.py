"""What the arms have in common that are a matrix of vectors in a file, and nothing else."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt

from ..data import K
from .base import Arm

__all__ = ["MatrixArm"]


class MatrixArm(Arm):
    """A float32 matrix, gathered in memory and written as ``vectors.npy`` when the store is closed."""

    def open(self) -> None:
        path = self.folder / "vectors.npy"
        self._path, self._parts = path, [] if not path.exists() else [np.load(path)]

    def close(self) -> None:
        if len(self._parts) > 1 or not self._path.exists():
            np.save(self._path, self.stored())

    def add_many(self, positions: range) -> None:
        self._parts.append(self.material.matrix(positions))

    def stored(self) -> npt.NDArray[np.float32]:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        rows: npt.NDArray[np.float32] = self._parts[0]
        return rows

    def search(self, number: int) -> list[int]:
        query = self.material.query(number)
        return self.nearest(self.stored(), query, min(K, len(self.stored())))

    @abstractmethod
    def nearest(self, rows: npt.NDArray[np.float32], query: npt.NDArray[np.float32], k: int) -> list[int]:
        """The numbers of the `k` rows that are most similar to `query`, best first."""
