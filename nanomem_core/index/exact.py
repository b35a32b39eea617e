"""Exact selection of the best rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..columns import Rows

__all__ = ["best_first", "masked", "near_nth_best", "nth_best", "top_rows"]

_GROUPS = 1024
"""Groups whose greatest values stand for all of them where there are many."""


def top_rows(scores: npt.NDArray[np.floating], where: npt.NDArray[np.bool_], k: int) -> Rows:
    """The `k` best rows of `where`, best first. Equal scores: the row written first comes first.

    That rule makes the answer depend on the set of rows alone, not on how the search is carried out.
    """
    if k <= 0:
        return np.empty(0, np.intp)
    if k < len(scores):
        least = near_nth_best(masked(scores, where), k)
        if least > -np.inf:
            where = where & (scores >= least)
    rows = where.nonzero()[0]
    return rows[best_first(scores[rows])[:k]]


def masked(values: npt.NDArray[np.floating], where: npt.NDArray[np.bool_]) -> npt.NDArray[np.floating]:
    """`values` with -inf outside `where`; the same array where nothing is outside."""
    return values if where.all() else np.where(where, values, values.dtype.type(-np.inf))


def near_nth_best(values: npt.NDArray[np.floating], k: int) -> float:
    """A number that at least `k` of `values` reach, and few more; -inf if there are no more than k.

    Of many values it is found without sorting them: where the greatest of k groups reach a number, k values do.
    """
    width = len(values) // _GROUPS
    if width > 1 and k <= _GROUPS // 8:
        values = values[: width * _GROUPS].reshape(width, _GROUPS).max(axis=0)
    return -np.inf if k >= len(values) else nth_best(values, k)


def nth_best(values: npt.NDArray[np.floating], k: int) -> float:
    """The `k`-th greatest of `values`, of which there are at least k."""
    return float(np.partition(values, len(values) - k)[len(values) - k])


def best_first(values: npt.NDArray[np.floating]) -> Rows:
    """The order that puts rows, given ascending with their `values`, by the rule of `top_rows`."""
    return np.argsort(-values, kind="stable")
