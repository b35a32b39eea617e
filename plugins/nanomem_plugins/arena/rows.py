"""The rows of an arena file, as columns: those of the index mapped, those behind it in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nanomem_core.columns import FIELDS

from .entries import DECLARED, KIND
from .format import ROW
from .index import Index

__all__ = ["COLUMNS", "Numbers", "Rows", "columns_of", "sorted_table"]

Numbers = npt.NDArray[np.intp]
"""Row numbers."""

_MANY = 16
"""Ids from which on they are looked for together."""

_HIDDEN: dict[str, type[Any]] = {
    "scope": np.int32,
    "version": np.int32,
    "birth": np.uint64,
    "row_offset": np.int64,
    "vectors_offset": np.int64,
    "vectors": np.int32,
    "vectors_crc": np.uint32,
}
COLUMNS = FIELDS | _HIDDEN
"""Name and type of every column."""

_TAIL = np.dtype(list(COLUMNS.items()))


class Rows:
    """Every record that was ever put into the file and could be read, in the order of writing, over all scopes.

    The columns are those of `nanomem_core.columns`, and some of the arena's own. Rows of the index can't be changed,
    so those of them that have died since are noted beside it.
    """

    def __init__(self, index: Index | None = None, base: int = 0) -> None:
        self.rebase(index, base)

    def rebase(self, index: Index | None, base: int) -> None:
        """From now on the first `base` rows, which are all there are, come from `index`."""
        self.index = index
        self.base = base
        self._tail = np.zeros(64, _TAIL)
        self._count = 0
        # The first row of each id hash, and the others of those that have more.
        self._hashes: dict[int, int] = {}
        self._others: dict[int, list[int]] = {}
        self._killed: set[int] = set()

    def __len__(self) -> int:
        return self.base + self._count

    def append(self, hashes: Sequence[int], rows: Sequence[tuple[object, ...]] | Mapping[str, Any]) -> None:
        """Add rows: their id hashes, and their numbers: row by row in the order of `COLUMNS`, or by column."""
        first, last = self._count, self._count + len(hashes)
        if last > len(self._tail):
            self._tail = np.concatenate((self._tail, np.zeros(max(last, len(self._tail)), _TAIL)))
        if isinstance(rows, Mapping):
            for name, values in rows.items():
                self._tail[name][first:last] = values
        else:
            self._tail[first:last] = rows
        numbers = range(self.base + first, self.base + last)
        if self._hashes.keys().isdisjoint(hashes) and len(set(hashes)) == len(hashes):
            self._hashes.update(zip(hashes, numbers, strict=True))
        else:
            for hash, row in zip(hashes, numbers, strict=True):
                if self._hashes.setdefault(hash, row) != row:
                    self._others.setdefault(hash, []).append(row)
        self._count = last

    def kill(self, row: int) -> None:
        """Mark a row as deleted or replaced."""
        if row >= self.base:
            self._tail["live"][row - self.base] = False
        else:
            self._killed.add(row)

    def since(self, row: int) -> npt.NDArray[Any]:
        """The rows from `row` on, which must not come from the index, as a structured array."""
        return self._tail[row - self.base : self._count]

    def alive(self, number: int) -> list[int]:
        """The live rows with that id hash; more than one only if two ids share it."""
        rows = []
        held = self._hashes.get(number)
        if held is not None:
            live, base = self._tail["live"], self.base
            rows = [row for row in (held, *self._others.get(number, ())) if live[row - base]]
        if self.index is not None:
            rows += [row for row in self.index.find("id", number) if row not in self._killed]
        return rows

    def unknown(self, hashes: Sequence[int]) -> list[bool]:
        """Of each id hash, whether no row has it. May be False for one whose rows are all dead."""
        known = self._hashes
        if self.index is None:
            return [number not in known for number in hashes]
        if len(hashes) < _MANY:
            return [number not in known and next(self.index.find("id", number), None) is None for number in hashes]
        indexed = self.index.holds("id", np.array(hashes, np.uint64)).tolist()
        return [not old and number not in known for number, old in zip(hashes, indexed, strict=True)]

    def item(self, name: str, row: int) -> Any:
        """One number."""
        if row >= self.base:
            return self._tail[name][row - self.base].item()
        assert self.index is not None
        return self.index.item(name, row)

    def take(self, name: str, rows: Numbers) -> npt.NDArray[Any]:
        """The numbers of some rows."""
        if self.index is None:
            return self._tail[name][rows]
        base = self._base_column(name)
        if not self._count:
            return base[rows]
        old = rows < self.base
        taken = np.empty(len(rows), base.dtype)
        taken[old] = base[rows[old]]
        taken[~old] = self._tail[name][rows[~old] - self.base]
        return taken

    def column(self, name: str) -> npt.NDArray[Any]:
        """A whole column, which may be a view of what will change, or mapped: don't write to it."""
        tail = self._tail[name][: self._count]
        if self.index is None:
            return tail
        base = self._base_column(name)
        return np.concatenate((base, tail)) if self._count else base

    def _base_column(self, name: str) -> npt.NDArray[Any]:
        assert self.index is not None
        column = self.index.column(name)
        if name == "live" and self._killed:
            column = column.copy()
            column[list(self._killed)] = False
        return column

    def sections(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """What an index holds of the rows: every column, and the table from id hashes to live rows."""
        for name in COLUMNS:
            yield name, self.column(name)
        pairs = itertools.chain(
            self._hashes.items(), ((number, row) for number, rows in self._others.items() for row in rows)
        )
        table = np.fromiter(pairs, np.dtype((np.uint64, 2)))
        hashes, values = table[:, 0], table[:, 1].astype(np.uint32)
        if self.index is not None:
            hashes = np.concatenate((self.index.column("id_hash"), hashes))
            values = np.concatenate((self.index.column("id_value"), values))
        alive = self.column("live")[values]
        yield from sorted_table("id", hashes[alive], values[alive])


def columns_of(rows: npt.NDArray[np.void], offset: int, scope: int, chains: Sequence[int]) -> dict[str, Any]:
    """The columns of rows that put something without an end; the first stands at `offset`, the others behind it."""
    offsets = np.arange(offset, offset + ROW * len(rows), ROW)
    return {
        "live": True,
        "kind": rows["what"] & KIND,
        "declared": rows["what"] & DECLARED,
        "chain": chains,
        "revision": rows["revision"],
        "valid_from": rows["valid_from"],
        "valid_to": np.inf,
        "recorded_at": rows["recorded_at"],
        "closed_at": np.inf,
        "scope": scope,
        "version": rows["version"],
        "birth": rows["birth"],
        "row_offset": offsets,
        "vectors_offset": offsets - rows["to_vectors"],
        "vectors": rows["what"] >> 8,
        "vectors_crc": rows["vectors_crc"],
    }


def sorted_table(
    name: str, hashes: npt.NDArray[np.uint64], values: npt.NDArray[np.uint32]
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The two sections of an index in which `Index.find` looks."""
    order = np.argsort(hashes, kind="stable")
    yield f"{name}_hash", hashes[order]
    yield f"{name}_value", values[order]
