"""Exact selection of the best rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..columns import Rows

__all__ = ["top_rows"]


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
