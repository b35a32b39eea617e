"""The vectors of one scope as a search sees them: each row's cosine, exactly or between two bounds."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..changes import Vectors
from ..columns import Rows
from ..fileio import atomic
from .exact import best_first, nth_best, top_rows
from .quantised import checksums, entry_type, quantise, quantised_bounds

__all__ = ["Cosines", "FloatVectors", "QuantisedVectors", "Score", "VectorTable"]

_WORTH_SAVING = 4096
"""Entries that must be new, at least, before the file is written again."""

Score = Callable[[npt.NDArray[np.float32], "Rows | slice"], npt.NDArray[np.floating]]
"""Turns the cosines of the given rows into scores; a score grows with its cosine."""

_COLUMNS = ("owner", "scale", "error")
_Floats = npt.NDArray[np.float32]
_Mask = npt.NDArray[np.bool_]


class Cosines:
    """The cosines of a scope's rows with a question: each lies between `low` and `high`, and is known where they meet.

    Attributes:
        low, high: float32, one number a row; both -inf where a row has no vector.
    """

    def __init__(self, low: _Floats, high: _Floats, measure: Callable[[Rows], _Floats] | None = None) -> None:
        self.low = low
        self.high = high
        self._measure = measure

    def settle(self, rows: Rows) -> None:
        """Make the cosines of `rows` exact."""
        if self._measure is None:
            return
        rows = np.sort(rows[self.low[rows] < self.high[rows]])
        if len(rows):
            self.low[rows] = self.high[rows] = self._measure(rows)

    def settle_floor(self, floor: float, where: _Mask) -> None:
        """Settle what decides which rows of `where` reach `floor`: afterwards it is those whose `low` does."""
        self.settle(np.flatnonzero(where & (self.low < floor) & (self.high >= floor)))

    def best(self, k: int, where: _Mask, score: Score | None = None) -> tuple[Rows, npt.NDArray[np.floating]]:
        """The first `k` rows of `where` by `score`, best first, and their scores; by the cosine itself for None.

        Equal scores come in the order of `top_rows`. Only what may be among the first k is settled.
        """
        every = slice(None)
        if self._measure is not None and k > 0:
            low = self.low if score is None else score(self.low, every)
            least = nth_best(low[where], k)
            if least is not None:
                where = where & ((self.high if score is None else score(self.high, every)) >= least)
            rows = np.flatnonzero(where)
            self.settle(rows)
            values = self.low[rows] if score is None else score(self.low[rows], rows)
            chosen = best_first(rows, values)[:k]
            return rows[chosen], values[chosen]
        values = self.low if score is None else score(self.low, every)
        rows = top_rows(values, where, k)
        return rows, values[rows]

    def span(self, where: _Mask) -> tuple[float, float]:
        """The least and the greatest cosine of the rows of `where`, which has at least one."""
        if self._measure is not None:
            self.settle(np.flatnonzero(where & (self.high >= self.low[where].max())))
            self.settle(np.flatnonzero(where & (self.low <= self.high[where].min())))
        held = self.low[where]
        return float(held.min()), float(held.max())


class VectorTable:
    """The unit vectors of a scope's rows, growable. A row may have several (one a passage) or none.

    One thread at a time may append; others may read meanwhile.
    """

    def append(self, vectors: Vectors, owners: Rows) -> None:
        """Add vectors, shape (m, dim), and the row that each belongs to; owners never descend."""
        raise NotImplementedError

    def cosines(self, query: _Floats, count: int) -> Cosines:
        """The cosine of each of the first `count` rows with the unit vector `query`: its best passage's."""
        raise NotImplementedError

    def best_passage(self, query: _Floats, row: int) -> int:
        """Number of the passage of `row` that is most similar to `query`."""
        raise NotImplementedError

    def save(self) -> None:
        """Keep in a file what would take long to compute again, where there is a file for it."""


class FloatVectors(VectorTable):
    """Held in memory as float32: the fastest for few vectors, and what searches scan without the extra ``fast``."""

    def __init__(self, dim: int) -> None:
        self._matrix: Vectors = np.empty((0, dim), np.float32)
        self._owners: npt.NDArray[np.intp] = np.empty(0, np.intp)
        # What readers see: filled rows, their owners, and how these stand to one another. Replaced as a whole.
        self._held = (self._matrix, self._owners, _Layout.DENSE)

    def __len__(self) -> int:
        return len(self._held[1])

    def append(self, vectors: Vectors, owners: Rows) -> None:
        held, layout = self._held[1], self._held[2]
        first, size = len(held), len(held) + len(vectors)
        if size > len(self._matrix):
            capacity = max(64, size, first + first // 2)
            matrix = np.empty((capacity, self._matrix.shape[1]), np.float32)
            matrix[:first] = self._matrix[:first]
            self._matrix = matrix
            self._owners = np.concatenate([self._owners[:first], np.empty(capacity - first, np.intp)])
        self._matrix[first:size] = vectors
        self._owners[first:size] = owners
        start = max(first - 1, 0)
        layout = _layout(self._owners[start:size], layout, start)
        self._held = (self._matrix[:size], self._owners[:size], layout)

    def cosines(self, query: _Floats, count: int) -> Cosines:
        matrix, owners, layout = self._held
        size = int(np.searchsorted(owners, count))
        best = np.full(count, -np.inf, np.float32)
        _raise_to(best, owners[:size], matrix[:size] @ query, layout)
        return Cosines(best, best)

    def best_passage(self, query: _Floats, row: int) -> int:
        matrix, owners, _ = self._held
        first, last = np.searchsorted(owners, (row, row + 1))
        return int(np.argmax(matrix[first:last] @ query)) if last > first else 0


class QuantisedVectors(VectorTable):
    """Held as int8 codes, which bound the cosines; the vectors themselves stay in the store.

    The codes may be kept in a file, which is mapped. It is derived: each entry has a checksum and the fingerprint of
    the vectors it was made from, and what doesn't fit is computed again.

    Args:
        fetch: the vectors of rows and their owners, as `ColumnSource.vectors` gives them.
        prints: fingerprints of the vectors of rows, as `ColumnSource.fingerprints` gives them; where there are none,
            nothing is kept in a file.
        path: the file; None for none.
    """

    def __init__(
        self,
        dim: int,
        fetch: Callable[[Rows], tuple[Vectors, Rows]],
        prints: Callable[[Rows], npt.NDArray[np.uint32] | None] = lambda rows: None,
        path: Path | None = None,
    ) -> None:
        self._type = entry_type(dim)
        self._fetch = fetch
        self._prints = prints
        self._path = None if prints(np.empty(0, np.intp)) is None else path
        self._tail = np.empty(0, self._type)
        # What readers see: the entries of the file, those in memory, and how owners stand to entries.
        self._held = (_Part(self._tail), _Part(self._tail), _Layout.DENSE)

    def __len__(self) -> int:
        return len(self._held[0].entries) + len(self._held[1].entries)

    def load(self, count: int) -> int:
        """Take over what the file holds of the first `count` rows; returns the number of rows that need no `append`."""
        if self._path is None:
            return 0
        with contextlib.suppress(OSError, ValueError):
            entries = self._mapped(self._path)
            owners = entries["owner"].astype(np.intp)
            size = _sound(
                (owners < count) & (np.diff(owners, prepend=0) >= 0) & (checksums(entries) == entries["check"])
            )
            size = _sound(entries["print"][:size] == self._prints(owners[:size]))
            if 0 < size < len(owners) and owners[size] == owners[size - 1]:
                size = int(np.searchsorted(owners[:size], owners[size]))  # not some passages of a text only
            self._held = (_Part(entries[:size]), self._held[1], _layout(owners[:size], _Layout.DENSE, 0))
            return int(owners[size - 1]) + 1 if size else 0
        return 0

    def append(self, vectors: Vectors, owners: Rows) -> None:
        base, tail, layout = self._held
        first, size = len(tail.entries), len(tail.entries) + len(vectors)
        if size > len(self._tail):
            grown = np.empty(max(64, size, first + first // 2), self._type)
            grown[:first] = tail.entries
            self._tail = grown
        self._tail[first:size] = quantise(vectors, owners, self._prints(owners))
        before = tail.owners if first else base.owners
        joined = np.concatenate([before[-1:], owners]).astype(np.intp)
        layout = _layout(joined, layout, len(self) - len(before[-1:]))
        self._held = (base, _Part(self._tail[:size], tail), layout)

    def save(self) -> None:
        """Keep all entries in the file if so many are new that it is worth while. A folder that can't be written is
        no error: the entries stay in memory."""
        base, tail, layout = self._held
        if self._path is None or len(tail.entries) < max(_WORTH_SAVING, len(base.entries) // 4):
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic.replacing(self._path, durable=False) as descriptor:
                for part in (base, tail):
                    atomic.write_all(descriptor, np.ascontiguousarray(part.entries).view(np.uint8).data)
            self._tail = np.empty(0, self._type)
            self._held = (_Part(self._mapped(self._path)), _Part(self._tail), layout)

    def _mapped(self, path: Path) -> npt.NDArray[Any]:
        # A file that was cut off may end in the middle of an entry.
        return np.memmap(path, self._type, "r", shape=os.path.getsize(path) // self._type.itemsize)

    def cosines(self, query: _Floats, count: int) -> Cosines:
        low = np.full(count, -np.inf, np.float32)
        high = low.copy()
        base, tail, layout = self._held
        for part in (base, tail):
            size = int(np.searchsorted(part.owners, count))
            if size:
                bounds = quantised_bounds(part.entries["code"][:size], part.scales[:size], part.errors[:size], query)
                _raise_to(low, part.owners[:size], bounds[0], layout)
                _raise_to(high, part.owners[:size], bounds[1], layout)

        def measure(rows: Rows) -> _Floats:
            vectors, owners = self._fetch(rows)
            best = np.full(len(rows), -np.inf, np.float32)
            # Not a matrix product: BLAS rounds equal rows differently by their place, which would break ties at random.
            np.maximum.at(best, np.searchsorted(rows, owners), np.einsum("ij,j->i", vectors, query))
            return best

        return Cosines(low, high, measure)

    def best_passage(self, query: _Floats, row: int) -> int:
        vectors, _ = self._fetch(np.array([row], np.intp))
        return int(np.argmax(vectors @ query)) if len(vectors) else 0


def _sound(marks: _Mask) -> int:
    """How many come before the first False."""
    return len(marks) if marks.all() else int(np.argmin(marks))


class _Layout(enum.IntEnum):
    """How the owners of vectors stand to their numbers."""

    DENSE = 0  # vector n belongs to row n
    SINGLE = 1  # no row has several
    MANY = 2


def _layout(owners: npt.NDArray[np.intp], before: _Layout, start: int) -> _Layout:
    """The layout with `owners`, which are those from number `start` on; `before` is that of the ones before."""
    if before is _Layout.DENSE and np.array_equal(owners, np.arange(start, start + len(owners))):
        return _Layout.DENSE
    single = before is not _Layout.MANY and bool((np.diff(owners) > 0).all())
    return _Layout.SINGLE if single else _Layout.MANY


class _Part:
    """Quantised vectors, with the numbers that every search needs as columns of their own."""

    owners: npt.NDArray[Any]
    scales: _Floats
    errors: _Floats

    def __init__(self, entries: npt.NDArray[Any], before: _Part | None = None) -> None:
        """`before` is the part of the first of `entries`: their columns are taken from it, not gathered once more."""
        self.entries = entries
        new = entries if before is None else entries[len(before.owners) :]
        self.owners, self.scales, self.errors = (np.ascontiguousarray(new[name]) for name in _COLUMNS)
        if before is not None:
            self.owners = np.concatenate((before.owners, self.owners))
            self.scales = np.concatenate((before.scales, self.scales))
            self.errors = np.concatenate((before.errors, self.errors))


def _raise_to(best: _Floats, owners: npt.NDArray[Any], values: _Floats, layout: _Layout) -> None:
    """Raise `best` at `owners` to `values`."""
    if layout is _Layout.MANY:
        np.maximum.at(best, owners, values)
    elif layout is _Layout.DENSE and len(owners):
        best[owners[0] : owners[0] + len(owners)] = values
    else:
        best[owners] = values
