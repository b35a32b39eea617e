"""Exact vector search: every vector is compared, so the answer is that of a float32 brute-force scan."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..changes import Vectors
from ..columns import Rows

__all__ = ["VectorTable", "top_rows"]


class VectorTable:
    """The unit vectors of a scope's rows, growable. A row may have several (one a passage) or none."""

    def __init__(self, dim: int) -> None:
        self._matrix: Vectors = np.empty((0, dim), np.float32)
        self._owners: npt.NDArray[np.intp] = np.empty(0, np.intp)
        self._size = 0
        self._single = True  # no row has more than one vector

    def append(self, vectors: Vectors, owners: Rows) -> None:
        """Add vectors, shape (m, dim), and the row that each belongs to; owners never descend."""
        first, size = self._size, self._size + len(vectors)
        if size > len(self._matrix):
            capacity = max(64, size, first + first // 2)
            matrix = np.empty((capacity, self._matrix.shape[1]), np.float32)
            matrix[:first] = self._matrix[:first]
            self._matrix = matrix
            self._owners = np.concatenate([self._owners[:first], np.empty(capacity - first, np.intp)])
        self._matrix[first:size] = vectors
        self._owners[first:size] = owners
        self._single = self._single and bool((np.diff(self._owners[max(first - 1, 0) : size]) > 0).all())
        self._size = size

    def scores(self, query: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
        """The cosine of each of the first `count` rows with the unit vector `query`: its best passage's.

        -inf where a row has no vector.
        """
        scores = np.full(count, -np.inf, np.float32)
        size = int(np.searchsorted(self._owners[: self._size], count))
        owners, cosines = self._owners[:size], self._matrix[:size] @ query
        if self._single:
            scores[owners] = cosines
        else:
            np.maximum.at(scores, owners, cosines)
        return scores

    def best_passage(self, query: npt.NDArray[np.float32], row: int) -> int:
        """Number of the passage of `row` that is most similar to `query`."""
        first, last = np.searchsorted(self._owners[: self._size], (row, row + 1))
        return int(np.argmax(self._matrix[first:last] @ query)) if last > first else 0


def top_rows(scores: npt.NDArray[np.floating], where: npt.NDArray[np.bool_], k: int) -> Rows:
    """The `k` best rows of `where`, best first. Equal scores: the row written first comes first.

    That rule makes the answer depend on the set of rows alone, not on how the search is carried out.
    """
    rows = np.flatnonzero(where)
    if k <= 0 or not len(rows):
        return rows[:0]
    values = scores[rows]
    if k < len(rows):
        worst = np.partition(values, len(values) - k)[len(values) - k]
        keep = values >= worst
        rows, values = rows[keep], values[keep]
    return rows[np.lexsort((rows, -values))][:k]
