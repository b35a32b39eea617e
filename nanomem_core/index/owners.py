"""Which vectors belong to which rows, where a row may have several."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..columns import Rows

__all__ = ["Owners"]


class Owners:
    """The rows that vectors belong to, ascending; several vectors may belong to one row.

    Attributes:
        first: the first of them.
    """

    def __init__(self, owners: npt.NDArray[Any]) -> None:
        self._owners = owners
        self.first = int(owners[0]) if len(owners) else 0
        steps = np.diff(owners)
        # Vector n belongs to row `first` + n.
        self._dense = not len(owners) or bool((steps == 1).all())
        self._starts = None if self._dense or steps.all() else np.flatnonzero(np.r_[True, steps > 0])

    def until(self, row: int) -> int:
        """How many vectors belong to rows before `row`."""
        if self._dense:
            return min(max(row - self.first, 0), len(self._owners))
        return int(np.searchsorted(self._owners, row))

    def spread(self, values: npt.NDArray[np.float32], rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """`rows`, one number a row, with those of `values`, one for each of the first vectors: of several for one row
        the greatest."""
        size = len(values)
        if self._dense:
            if size == len(rows):
                return values
            rows[self.first : self.first + size] = values
        elif self._starts is None:
            rows[self._owners[:size]] = values
        elif size:
            starts = self._starts[: np.searchsorted(self._starts, size)]
            rows[self._owners[starts]] = np.maximum.reduceat(values, starts)
        return rows

    def vectors(self, rows: Rows) -> tuple[Rows, Rows]:
        """Numbers of the vectors of `rows`, which are ascending and have some; and where in them each row begins."""
        every = np.arange(len(rows))
        if self._dense:
            return rows - self.first, every
        firsts = np.searchsorted(self._owners, rows)
        if self._starts is None:
            return firsts, every
        counts = np.searchsorted(self._owners, rows, "right") - firsts
        begins = np.cumsum(counts) - counts
        return np.repeat(firsts - begins, counts) + np.arange(counts.sum()), begins
