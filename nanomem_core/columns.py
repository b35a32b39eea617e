"""The columnar read model: what a question needs of every record, as aligned numpy arrays.

Parsing each record to answer a question is what makes such systems slow. Here a scope's records are rows of arrays;
standing, filters, times and ranking are computed over whole arrays, and only the hits are parsed.

A row is one *written version* of a record. Rows are appended in commit order and never change, except that `live`
turns False when the record is deleted or written again (which appends a new row). So a `Columns` value stays right
while others write.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .changes import Commit, Vectors
from .errors import InputError
from .records import KINDS, Record, Scope

__all__ = ["ColumnSource", "Columns", "MemoryColumns", "RowArrays", "Rows", "kind_code"]

Rows = npt.NDArray[np.intp]
"""Row numbers, ascending unless said otherwise."""

FIELDS: dict[str, type[Any]] = {
    "live": np.bool_,
    "kind": np.int8,
    "declared": np.bool_,
    "chain": np.int32,
    "revision": np.int32,
    "valid_from": np.float64,
    "valid_to": np.float64,
    "recorded_at": np.float64,
    "closed_at": np.float64,
}


def kind_code(kind: str) -> int:
    """Number that stands for a kind in the `kind` column."""
    code = _CODES.get(kind)
    if code is None:
        raise InputError(f"kind: expected one of {', '.join(KINDS)}; found {kind!r}")
    return code


_CODES: dict[str, int] = {kind: code for code, kind in enumerate(KINDS)}


class ColumnSource(ABC):
    """What a store offers beside the arrays: the way from rows to records, and back."""

    @abstractmethod
    def ids(self, rows: Rows) -> list[str]:
        """The id of each row."""

    @abstractmethod
    def row(self, id: str) -> int | None:
        """The live row of `id`, or None."""

    @abstractmethod
    def records(self, rows: Rows) -> list[Record]:
        """The record of each row, in the order of `rows`. A row that can't be read any more is left out."""

    def vectors(self, rows: Rows) -> tuple[Vectors, Rows]:
        """The stored vectors of `rows`: a matrix (m, dim) and, for each of its rows, the row it belongs to.

        Only stores that keep vectors have any.
        """
        raise NotImplementedError

    def fingerprints(self, rows: Rows) -> npt.NDArray[np.uint32] | None:
        """For each of `rows`, a number that changes with its stored vectors; None if the store has none.

        What core derives from vectors is kept in a file only where it can be told so whether it still fits.
        """
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """One scope's rows at one head. All arrays have the same length; see the module for what a row is.

    Attributes:
        kind: `kind_code` of each row.
        chain: index into `chains`, -1 outside any chain.
        valid_to, closed_at: +inf where the record has none.
        chains: chain keys; the list may grow behind this value's back, never change.
    """

    scope: Scope
    head: int
    live: npt.NDArray[np.bool_]
    kind: npt.NDArray[np.int8]
    declared: npt.NDArray[np.bool_]
    chain: npt.NDArray[np.int32]
    revision: npt.NDArray[np.int32]
    valid_from: npt.NDArray[np.float64]
    valid_to: npt.NDArray[np.float64]
    recorded_at: npt.NDArray[np.float64]
    closed_at: npt.NDArray[np.float64]
    chains: Sequence[str]
    source: ColumnSource
    _masks: dict[str | None, npt.NDArray[np.bool_]] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.live)

    def where(self, kind: str | None = "fact", known_at: float | None = None) -> npt.NDArray[np.bool_]:
        """Mask of the live rows of one kind (None: all but purged ones) that were recorded by `known_at`.

        It is read-only: most questions ask for the same one, which is computed once.
        """
        mask = self._masks.get(kind)
        if mask is None:
            mask = self.live & (self.kind != kind_code("purged") if kind is None else self.kind == kind_code(kind))
            mask.flags.writeable = False
            self._masks[kind] = mask
        if known_at is not None:
            mask = mask & (self.recorded_at <= known_at)
        return mask

    def ends(self, known_at: float | None = None) -> npt.NDArray[np.float64]:
        """`valid_to` as it was known at `known_at`: an end that was recorded later is no end yet."""
        if known_at is None:
            return self.valid_to
        return np.where(self.closed_at <= known_at, self.valid_to, np.inf)


class RowArrays:
    """Growable columns. Appending may move them; slices handed out before stay valid and unchanged but for `live`."""

    def __init__(self, arrays: dict[str, npt.NDArray[Any]] | None = None) -> None:
        self._arrays = arrays or {name: np.empty(0, dtype) for name, dtype in FIELDS.items()}
        self.size = len(self._arrays["live"])

    def append(self, rows: dict[str, npt.NDArray[Any]]) -> int:
        """Add rows (one array for each field); returns the number of the first."""
        first, count = self.size, len(rows["live"])
        if first + count > len(self._arrays["live"]):
            capacity = max(64, first + count, first + first // 2)
            for name, old in self._arrays.items():
                grown = np.empty(capacity, old.dtype)
                grown[:first] = old[:first]
                self._arrays[name] = grown
        for name, values in rows.items():
            self._arrays[name][first : first + count] = values
        self.size = first + count
        return first

    def kill(self, row: int) -> None:
        """Mark a row as deleted or replaced."""
        live = self._arrays["live"]
        if not live.flags.writeable:
            self._arrays["live"] = live = live.copy()
        live[row] = False

    def columns(self, scope: Scope, head: int, chains: Sequence[str], source: ColumnSource) -> Columns:
        """The present rows as an unchanging value; `live` is copied, the rest is not."""
        arrays = {name: array[: self.size] for name, array in self._arrays.items()}
        arrays["live"] = arrays["live"].copy()
        return Columns(scope, head, chains=chains, source=source, **arrays)


def row_values(records: Sequence[Record], chain_codes: Sequence[int]) -> dict[str, npt.NDArray[Any]]:
    """The column values of `records`, one array for each field."""
    never = float("inf")
    return {
        "live": np.ones(len(records), np.bool_),
        "kind": np.array([kind_code(r.kind) for r in records], np.int8),
        "declared": np.array([r.declared for r in records], np.bool_),
        "chain": np.array(chain_codes, np.int32),
        "revision": np.array([r.revision for r in records], np.int32),
        "valid_from": np.array([r.valid_from for r in records], np.float64),
        "valid_to": np.array([never if r.valid_to is None else r.valid_to for r in records], np.float64),
        "recorded_at": np.array([r.recorded_at for r in records], np.float64),
        "closed_at": np.array(
            [never if r.valid_to is None else (r.recorded_at if r.closed_at is None else r.closed_at) for r in records],
            np.float64,
        ),
    }


_EARLY = 64
"""Commits that wait for the ones before them; where more come, somebody else wrote what is missing."""


class MemoryColumns(ColumnSource):
    """Columns of a store that has none of its own: built once from a scan, then kept up by its commits.

    Holds ids and numbers in memory, and asks `fetch` for the records of the hits.
    """

    def __init__(
        self, scope: Scope, head: int, records: Iterable[Record], fetch: Callable[[str], Record | None]
    ) -> None:
        self._scope = scope
        self._fetch = fetch
        self._arrays = RowArrays()
        self._ids: list[str] = []
        self._versions: list[int] = []
        self._rows: dict[str, int] = {}
        self._chains: list[str] = []
        self._codes: dict[str, int] = {}
        self._lock = threading.Lock()
        self._value: Columns | None = None
        self._early: dict[int, Commit] = {}
        self.head = head
        self._add(list(records))

    def _add(self, records: Sequence[Record]) -> None:
        codes = []
        for record in records:
            chain = record.chain
            if chain is None:
                codes.append(-1)
                continue
            if chain not in self._codes:
                self._codes[chain] = len(self._chains)
                self._chains.append(chain)
            codes.append(self._codes[chain])
        first = self._arrays.append(row_values(records, codes))
        for offset, record in enumerate(records):
            # Replaced at once: a reader on another thread never finds the id absent.
            replaced = self._rows.get(record.id)
            self._rows[record.id] = first + offset
            if replaced is not None:
                self._arrays.kill(replaced)
            self._ids.append(record.id)
            self._versions.append(record.version)

    def _kill(self, id: str) -> None:
        row = self._rows.pop(id, None)
        if row is not None:
            self._arrays.kill(row)

    def apply(self, commit: Commit) -> bool:
        """Take over one commit, at once or as soon as the ones before it have come; False if it can't be taken over.

        Threads may tell of their commits in another order than that in which they made them.
        """
        with self._lock:
            if commit.head <= self.head or len(self._early) == _EARLY:
                return False
            self._early[commit.head] = commit
            while (following := self._early.pop(self.head + 1, None)) is not None:
                for id in following.deleted:
                    self._kill(id)
                self._add(following.records)
                self.head = following.head
                self._value = None
            return True

    def columns(self) -> Columns:
        with self._lock:
            if self._value is None:
                self._value = self._arrays.columns(self._scope, self.head, self._chains, self)
            return self._value

    def ids(self, rows: Rows) -> list[str]:
        return [self._ids[row] for row in rows]

    def row(self, id: str) -> int | None:
        return self._rows.get(id)

    def records(self, rows: Rows) -> list[Record]:
        found = ((self._fetch(self._ids[row]), self._versions[row]) for row in rows)
        return [record for record, version in found if record is not None and record.version == version]
