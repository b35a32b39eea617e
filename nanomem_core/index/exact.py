"""Exact vector search: every vector is compared, so the answer is that of a float32 brute-force scan."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..changes import Vectors
from ..columns import Rows

__all__ = ["VectorTable", "top_rows"]


class VectorTable:
    """The unit vectors of a scope's rows, growable. A row may have several (one a passage) or none.

    One thread at a time may append; others may read meanwhile.
    """

    def __init__(self, dim: int) -> None:
        self._matrix: Vectors = np.empty((0, dim), np.float32)
        self._owners: npt.NDArray[np.intp] = np.empty(0, np.intp)
        # What readers see: filled rows, their owners, and whether no owner has several. Replaced as a whole.
        self._held = (self._matrix, self._owners, True)

    def append(self, vectors: Vectors, owners: Rows) -> None:
        """Add vectors, shape (m, dim), and the row that each belongs to; owners never descend."""
        held, single = self._held[1], self._held[2]
        first, size = len(held), len(held) + len(vectors)
        if size > len(self._matrix):
            capacity = max(64, size, first + first // 2)
            matrix = np.empty((capacity, self._matrix.shape[1]), np.float32)
            matrix[:first] = self._matrix[:first]
            self._matrix = matrix
            self._owners = np.concatenate([self._owners[:first], np.empty(capacity - first, np.intp)])
        self._matrix[first:size] = vectors
        self._owners[first:size] = owners
        single = single and bool((np.diff(self._owners[max(first - 1, 0) : size]) > 0).all())
        self._held = (self._matrix[:size], self._owners[:size], single)

    def scores(self, query: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
        """The cosine of each of the first `count` rows with the unit vector `query`: its best passage's.

        -inf where a row has no vector.
        """
        matrix, owners, single = self._held
        scores = np.full(count, -np.inf, np.float32)
        size = int(np.searchsorted(owners, count))
        owners, cosines = owners[:size], matrix[:size] @ query
        if single:
            scores[owners] = cosines
        else:
            np.maximum.at(scores, owners, cosines)
        return scores

    def best_passage(self, query: npt.NDArray[np.float32], row: int) -> int:
        """Number of the passage of `row` that is most similar to `query`."""
        matrix, owners, _ = self._held
        first, last = np.searchsorted(owners, (row, row + 1))
        return int(np.argmax(matrix[first:last] @ query)) if last > first else 0


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
