"""Exact selection of the best rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..columns import Rows

__all__ = ["best_first", "nth_best", "top_rows"]


def top_rows(scores: npt.NDArray[np.floating], where: npt.NDArray[np.bool_], k: int) -> Rows:
    """The `k` best rows of `where`, best first. Equal scores: the row written first comes first.

    That rule makes the answer depend on the set of rows alone, not on how the search is carried out.
    """
    rows = np.flatnonzero(where)
    if k <= 0:
        return rows[:0]
    values = scores[rows]
    least = nth_best(values, k)
    if least is not None:
        keep = values >= least
        rows, values = rows[keep], values[keep]
    return rows[best_first(rows, values)][:k]


def nth_best(values: npt.NDArray[np.floating], k: int) -> float | None:
    """The `k`-th greatest of `values`, k from 1; None if there are no more than k."""
    return None if k >= len(values) else float(np.partition(values, len(values) - k)[len(values) - k])


def best_first(rows: Rows, values: npt.NDArray[np.floating]) -> Rows:
    """The order that puts `rows` by their `values`, by the rule of `top_rows`."""
    return np.lexsort((rows, -values))
