"""The rows of an arena file, as columns: those of the index mapped, those behind it in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nanomem_core.columns import FIELDS

from .index import Index

__all__ = ["Numbers", "Rows", "sorted_table"]

Numbers = npt.NDArray[np.intp]
"""Row numbers."""

_HIDDEN: dict[str, type[Any]] = {
    "scope": np.int32,
    "version": np.int32,
    "birth": np.uint64,
    "row_offset": np.int64,
    "vectors_offset": np.int64,
    "vectors": np.int32,
    "vectors_crc": np.uint32,
}
_COLUMNS = FIELDS | _HIDDEN
_TAIL = np.dtype(list(_COLUMNS.items()))


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
        self._hashes: dict[int, list[int]] = {}
        self._killed: set[int] = set()

    def __len__(self) -> int:
        return self.base + self._count

    def append(self, hashes: Sequence[int], values: Mapping[str, npt.ArrayLike]) -> None:
        """Add live rows: their id hashes, and for each column but `live` one number for all of them, or one a row."""
        first, last = self._count, self._count + len(hashes)
        if last > len(self._tail):
            self._tail = np.concatenate((self._tail, np.zeros(max(last, len(self._tail)), _TAIL)))
        rows = self._tail[first:last]
        rows["live"] = True
        for name, numbers in values.items():
            rows[name] = numbers
        for row, number in enumerate(hashes, self.base + first):
            self._hashes.setdefault(number, []).append(row)
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
        rows = [row for row in self._hashes.get(number, ()) if self._tail["live"][row - self.base]]
        if self.index is not None:
            rows += [row for row in self.index.find("id", number) if row not in self._killed]
        return rows

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
        for name in _COLUMNS:
            yield name, self.column(name)
        hashes = np.fromiter((number for number, rows in self._hashes.items() for _ in rows), np.uint64)
        values = np.fromiter((row for rows in self._hashes.values() for row in rows), np.uint32)
        if self.index is not None:
            hashes = np.concatenate((self.index.column("id_hash"), hashes))
            values = np.concatenate((self.index.column("id_value"), values))
        alive = self.column("live")[values]
        yield from sorted_table("id", hashes[alive], values[alive])


def sorted_table(
    name: str, hashes: npt.NDArray[np.uint64], values: npt.NDArray[np.uint32]
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The two sections of an index in which `Index.find` looks."""
    order = np.argsort(hashes, kind="stable")
    yield f"{name}_hash", hashes[order]
    yield f"{name}_value", values[order]
