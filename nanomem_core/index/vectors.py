"""The vectors of one scope as a search sees them: each row's cosine, exactly or between two bounds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..changes import Vectors
from ..columns import Rows
from ..fileio import atomic
from .exact import best_first, masked, near_nth_best, nth_best
from .owners import Owners
from .quantised import Codes, Question, checksums, entry_type, quantise

__all__ = ["Cosines", "FloatVectors", "Fusion", "QuantisedVectors", "VectorTable"]

_WORTH_SAVING = 4096
"""Entries that must be new, at least, before the file is written again."""

_ROUNDED = 1e-6
"""What float32 rounds off a score, as a share of its parts."""

_Floats = npt.NDArray[np.float32]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """A score that grows with the cosine: about `weight` · cosine + `bonus` of the row.

    Attributes:
        weight: from 0.
        bonus: float32, one number a row.
        score: the score itself, from the cosines of the given rows.
    """

    weight: float
    bonus: _Floats
    score: Callable[[_Floats, Rows], npt.NDArray[np.floating]]


class Cosines:
    """The cosines of a scope's rows with a question, each known exactly or to lie within `reach` of its value.

    Args:
        values: float32, one number a row; -inf where a row has no vector.
        reach: how far the cosines of some rows may lie from `values`, and for None, how far those of any; None where
            all are exact.
        narrow: for ascending rows that have vectors, values that are closer to their cosines, and how far these may lie
            from them.
        measure: computes the cosines of ascending rows; -inf where a vector is damaged.
    """

    def __init__(
        self,
        values: _Floats,
        reach: Callable[[Rows | None], Any] | None = None,
        narrow: Callable[[Rows], tuple[_Floats, _Floats]] | None = None,
        measure: Callable[[Rows], _Floats] | None = None,
    ) -> None:
        self.values = values
        self._reach = reach
        self._narrow = narrow
        self._measure = measure
        self._settled: _Mask | None = None

    def within(self, where: _Mask) -> _Mask:
        """`where` without the rows that have no vector."""
        present = self.values > -np.inf
        return where if present.all() else where & present

    def of(self, rows: Rows) -> _Floats:
        """The cosines of `rows`, exactly."""
        self._settle(rows)
        return self.values[rows]

    def reaching(self, floor: float, where: _Mask) -> _Mask:
        """Mask of the rows of `where` whose cosine is at least `floor`."""
        if self._reach is not None:
            widest = self._reach(None)
            rows = (where & (self.values >= floor - widest) & (self.values <= floor + widest)).nonzero()[0]
            self._settle(rows[np.abs(self.values[rows] - floor) <= self._reach(rows)])
        return where & (self.values >= floor)

    def best(self, k: int, where: _Mask, fusion: Fusion | None = None) -> tuple[Rows, npt.NDArray[np.floating]]:
        """The first `k` rows of `where`, k from 1, by their score (None: by the cosine), best first; and their scores.

        Equal scores come in the order of `top_rows`. Rows without a vector come last, by a score of -inf.
        """
        weight = 1.0 if fusion is None else fusion.weight
        values = self.values if fusion is None else _linear(weight, self.values, fusion.bonus)
        values = masked(values, where)
        least = near_nth_best(values, k)
        if least == -np.inf:
            rows = where.nonzero()[0]
        else:
            slack = 0.0 if fusion is None else _ROUNDED * (1 + weight)
            if self._reach is None or self._narrow is None:
                rows = (values >= least - slack).nonzero()[0]
            else:
                # The k-th greatest of what some rows reach for sure is no more than the k-th greatest of all scores.
                rows = (values >= least).nonzero()[0]
                least = nth_best(values[rows] - weight * self._reach(rows), k) - slack
                rows = (values >= least - weight * self._reach(None)).nonzero()[0]
                near, reach = self._narrow(rows)
                near = near if fusion is None else _linear(weight, near, fusion.bonus[rows])
                reach = weight * reach
                rows = rows[near + reach >= nth_best(near - reach, k) - slack]
        before, exact = self.values[rows], self.of(rows)
        if self._measure is not None and (exact[before > -np.inf] == -np.inf).any():
            return self.best(k, where, fusion)  # without the vectors that are damaged
        scores = exact if fusion is None else fusion.score(exact, rows)
        chosen = best_first(scores)[:k]
        return rows[chosen], scores[chosen]

    def span(self, where: _Mask) -> tuple[float, float]:
        """The least and the greatest cosine of the rows of `where`, which has at least one and all with vectors."""
        return -self._greatest(where, np.float32(-1)), self._greatest(where, np.float32(1))

    def _greatest(self, where: _Mask, sign: np.float32) -> float:
        """The greatest cosine of the rows of `where`, where `sign` is -1 that of the opposite vectors."""
        values = masked(sign * self.values, where)
        row = int(values.argmax())
        if self._reach is None:
            return float(values[row])
        least = values[row] - self._reach(None)
        rows = (values >= least - self._reach(None)).nonzero()[0]
        return float((sign * self.of(rows)).max())

    def _settle(self, rows: Rows) -> None:
        """Make the cosines of `rows` exact."""
        if self._measure is None:
            return
        if self._settled is None:
            self._settled = np.zeros(len(self.values), np.bool_)
        rows = rows[~self._settled[rows]]
        if len(rows):
            rows = np.sort(rows)
            self.values[rows] = self._measure(rows)
            self._settled[rows] = True


class VectorTable:
    """The unit vectors of a scope's rows, growable. A row may have several (one a passage) or none.

    One thread at a time may append; others may read meanwhile.
    """

    def append(self, vectors: Vectors, owners: Rows) -> None:
        """Add vectors, shape (m, dim), and the row that each belongs to; owners never descend, and all vectors of a row
        are added together."""
        raise NotImplementedError

    def cosines(self, query: _Floats, count: int) -> Cosines:
        """The cosine of each of the first `count` rows with the unit vector `query`: its best passage's."""
        raise NotImplementedError

    def best_passage(self, query: _Floats, row: int) -> int:
        """Number of the passage of `row` that is most similar to `query`."""
        raise NotImplementedError

    def __len__(self) -> int:
        """How many vectors there are."""
        raise NotImplementedError

    def save(self) -> None:
        """Keep in a file what would take long to compute again, where there is a file for it."""


class FloatVectors(VectorTable):
    """Held in memory as float32: the fastest for few vectors, and what searches scan without the extra ``fast``."""

    def __init__(self, dim: int) -> None:
        self._matrix: Vectors = np.empty((0, dim), np.float32)
        self._owners: npt.NDArray[np.intp] = np.empty(0, np.intp)
        # What readers see: filled rows, and whose they are. Replaced as a whole.
        self._held = (self._matrix, Owners(self._owners))

    def __len__(self) -> int:
        return len(self._held[0])

    def append(self, vectors: Vectors, owners: Rows) -> None:
        first, size = len(self), len(self) + len(vectors)
        if size > len(self._matrix):
            capacity = max(64, size, first + first // 2)
            matrix = np.empty((capacity, self._matrix.shape[1]), np.float32)
            matrix[:first] = self._matrix[:first]
            self._matrix = matrix
            self._owners = np.concatenate([self._owners[:first], np.empty(capacity - first, np.intp)])
        self._matrix[first:size] = vectors
        self._owners[first:size] = owners
        self._held = (self._matrix[:size], Owners(self._owners[:size]))

    def cosines(self, query: _Floats, count: int) -> Cosines:
        matrix, owners = self._held
        size = owners.until(count)
        return Cosines(owners.spread(matrix[:size] @ query, np.full(count, -np.inf, np.float32)))

    def best_passage(self, query: _Floats, row: int) -> int:
        matrix, owners = self._held
        first, last = owners.until(row), owners.until(row + 1)
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
        # What readers see: the entries of the file (or of what was there before the tail), and those added since.
        self._held = (_Part(self._tail), _Part(self._tail))

    def __len__(self) -> int:
        return sum(len(part.entries) for part in self._held)

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
            self._held = (_Part(entries[:size]), self._held[1])
            return int(owners[size - 1]) + 1 if size else 0
        return 0

    def append(self, vectors: Vectors, owners: Rows) -> None:
        base, tail = self._held
        first, size = len(tail.entries), len(tail.entries) + len(vectors)
        if size > len(self._tail):
            grown = np.empty(max(64, size, first + first // 2), self._type)
            grown[:first] = tail.entries
            self._tail = grown
        self._tail[first:size] = quantise(vectors, owners, self._prints(owners))
        self._held = (base, _Part(self._tail[:size]))

    def save(self) -> None:
        """Keep all entries in the file if so many are new that it is worth while. A folder that can't be written is
        no error: the entries stay in memory."""
        base, tail = self._held
        if self._path is None or len(tail.entries) < max(_WORTH_SAVING, len(base.entries) // 4):
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic.replacing(self._path, durable=False) as descriptor:
                for part in (base, tail):
                    atomic.write_all(descriptor, np.ascontiguousarray(part.entries).view(np.uint8).data)
            self._tail = np.empty(0, self._type)
            self._held = (_Part(self._mapped(self._path)), _Part(self._tail))

    def _mapped(self, path: Path) -> npt.NDArray[Any]:
        # A file that was cut off may end in the middle of an entry.
        size = os.path.getsize(path) // self._type.itemsize
        # Not as a memmap, which makes an object of its own of every slice.
        return np.asarray(np.memmap(path, self._type, "r", shape=size))

    def cosines(self, query: _Floats, count: int) -> Cosines:
        question = Question.of(query)
        values = np.full(count, -np.inf, np.float32)
        base, tail = self._held
        for part in (base, tail):
            size = part.owners.until(count)
            if size:
                values = part.owners.spread(part.codes.products(question, size), values)
        widest = max(base.widest, tail.widest)

        def by_part(rows: Rows) -> list[tuple[_Part, Rows]]:
            cut = int(np.searchsorted(rows, tail.owners.first)) if len(tail.entries) else len(rows)
            return [(part, some) for part, some in ((base, rows[:cut]), (tail, rows[cut:])) if len(some)]

        def reach(rows: Rows | None) -> Any:
            if rows is None:
                return question.reach(widest)
            return question.reach(_joined([part.errors(some) for part, some in by_part(rows)]))

        def narrow(rows: Rows) -> tuple[_Floats, _Floats]:
            found = [part.narrowed(question, some) for part, some in by_part(rows)]
            return _joined([near for near, _ in found]), _joined([reach for _, reach in found])

        def measure(rows: Rows) -> _Floats:
            vectors, owners = self._fetch(rows)
            # Not a matrix product: BLAS rounds equal rows differently by their place, which would break ties at random.
            found: _Floats = np.einsum("ij,j->i", vectors, query)
            if len(owners) == len(rows) and (owners == rows).all():
                return found
            best = np.full(len(rows), -np.inf, np.float32)
            np.maximum.at(best, np.searchsorted(rows, owners), found)
            return best

        return Cosines(values, reach, narrow, measure)

    def best_passage(self, query: _Floats, row: int) -> int:
        vectors, _ = self._fetch(np.array([row], np.intp))
        return int(np.argmax(vectors @ query)) if len(vectors) else 0


def _linear(weight: float, values: _Floats, bonus: _Floats) -> _Floats:
    # Nought times -inf, the value of a row without a vector, is no number.
    return np.float32(weight) * values + bonus if weight else bonus


def _joined(parts: list[_Floats]) -> _Floats:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.float32), *parts])


def _sound(marks: _Mask) -> int:
    """How many come before the first False."""
    return len(marks) if marks.all() else int(np.argmin(marks))


class _Part:
    """Quantised vectors, and what searches need of them, which is gathered when the first one asks."""

    def __init__(self, entries: npt.NDArray[Any]) -> None:
        self.entries = entries

    @cached_property
    def codes(self) -> Codes:
        return Codes(self.entries)

    @cached_property
    def owners(self) -> Owners:
        return Owners(np.ascontiguousarray(self.entries["owner"]))

    @cached_property
    def widest(self) -> float:
        """The greatest error."""
        return float(self.entries["error"].max()) if len(self.entries) else 0.0

    def errors(self, rows: Rows) -> _Floats:
        """The error of each of `rows`: of several vectors the greatest."""
        numbers, begins = self.owners.vectors(rows)
        return _greatest(self.entries["error"][numbers], begins)

    def narrowed(self, question: Question, rows: Rows) -> tuple[_Floats, _Floats]:
        """See `Cosines`."""
        numbers, begins = self.owners.vectors(rows)
        reach = question.narrow_reach(self.entries["error"][numbers])
        return _greatest(self.codes.narrow_products(question, numbers), begins), _greatest(reach, begins)


def _greatest(values: _Floats, begins: Rows) -> _Floats:
    """The greatest of each stretch of `values`."""
    return values if len(begins) == len(values) else np.maximum.reduceat(values, begins)
