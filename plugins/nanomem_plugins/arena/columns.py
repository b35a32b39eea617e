"""The columns of one scope of an arena, and the way from their rows to records and vectors."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from nanomem_core.changes import Vectors
from nanomem_core.columns import FIELDS, Columns, ColumnSource, RowArrays, Rows
from nanomem_core.errors import CorruptionError
from nanomem_core.records import Record

from .documents import decode_record, document_id
from .entries import Row
from .format import ROW, VectorDtype, vector_size
from .log import VaultFile
from .rows import Numbers
from .table import Table

__all__ = ["ScopeColumns", "gather", "read_records", "widen"]

_GATHER = 256
"""Vectors that are fetched and converted at once, so that they stay in the processor's cache."""

_NOT_THE_COPIES = np.int32(-0x70002000)
"""The bits of a float32 that a half fills; between sign and exponent stand copies of its sign."""


class ScopeColumns(ColumnSource):
    """Columns of one scope, kept up to date by the table. Where the file has one scope they are those of the index,
    mapped, until the first row is added.

    Rows of the scope are numbered from 0; `_numbers` leads from there to rows of the table, None if they are equal.

    Args:
        guard: the store's mutex, which the table needs.
        report: is told of damage: offset and reason.
    """

    def __init__(
        self,
        table: Table,
        code: int,
        guard: AbstractContextManager[object],
        report: Callable[[int, str], None],
    ) -> None:
        self._table = table
        self._state = table.scopes[code]
        self._guard = guard
        self._report = report
        self._value: Columns | None = None
        self._numbers: Numbers | None = None
        if len(table.scopes) == 1:
            arrays = {name: _own(table.column(name)) for name in FIELDS}
        else:
            self._numbers = np.flatnonzero(table.column("scope") == code)
            arrays = {name: table.take(name, self._numbers) for name in FIELDS}
        self._arrays = RowArrays(arrays)
        self._seen = np.zeros(self._arrays.size, np.bool_)  # rows whose vectors were found to be sound

    def appended(self, first: int, rows: npt.NDArray[Any]) -> None:
        """The table got `rows`, which are numbered from `first` there."""
        size = self._arrays.size
        if self._numbers is None and first != size:
            self._numbers = np.arange(size)
        if self._numbers is not None:
            if size + len(rows) > len(self._numbers):
                self._numbers = np.concatenate((self._numbers, np.empty(max(64, len(rows), size // 2), np.intp)))
            self._numbers[size : size + len(rows)] = np.arange(first, first + len(rows))
        self._arrays.append({name: rows[name] for name in FIELDS})

    def killed(self, row: int) -> None:
        """A row of the table is dead."""
        self._arrays.kill(self._local(row))
        self._value = None

    def _local(self, row: int) -> int:
        return row if self._numbers is None else int(np.searchsorted(self._numbers[: self._arrays.size], row))

    def _table_rows(self, rows: Rows) -> Numbers:
        return rows if self._numbers is None else self._numbers[rows]

    def columns(self) -> Columns:
        """The columns at the scope's present head."""
        if self._value is None or self._value.head != self._state.head:
            state = self._state
            self._value = self._arrays.columns(state.scope, state.head, state.chains, self)
        return self._value

    def row(self, id: str) -> int | None:
        """The live row of `id`, or None; also None for a record that is known to be damaged."""
        with self._guard:
            try:
                row = self._table.find(self._state.scope, id)
            except CorruptionError:
                return None
            return None if row is None else self._local(row)

    def ids(self, rows: Rows) -> list[str]:
        """The id of each row; an empty text where it is damaged."""
        file = self._table.file
        found = []
        for offset in self._offsets(rows):
            row = Row.decode(file.read(offset, ROW), offset)
            found.append("" if row is None else document_id(file.read(row.doc_offset, row.doc_length)) or "")
        return found

    def records(self, rows: Rows) -> list[Record]:
        """The record of each row; those that are damaged are left out, with a warning."""
        return list(read_records(self._table.file, self._offsets(rows), self._report))

    def _offsets(self, rows: Rows) -> list[int]:
        with self._guard:
            offsets: list[int] = self._table.take("row_offset", self._table_rows(rows)).tolist()
        return offsets

    def vectors(self, rows: Rows) -> tuple[Vectors, Rows]:
        """The vectors of `rows`; those that are damaged are left out, with a warning."""
        table = self._table
        rows = np.asarray(rows, np.intp)
        with self._guard:
            numbers = self._table_rows(rows)
            counts = table.take("vectors", numbers)
            offsets = table.take("vectors_offset", numbers)
            space, data = table.space, table.file.mapped(table.end)
        if space is None:
            return np.empty((0, 0), np.float32), np.empty(0, np.intp)
        dtype = table.file.header.dtype
        size = vector_size(space.dim, dtype)
        counts = counts * self._sound(data, rows, offsets, counts * size)
        if not (counts == 1).all():
            ends = np.cumsum(counts)
            passages = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
            offsets = np.repeat(offsets, counts) + passages * size
            rows = np.repeat(rows, counts)
        return gather(data, offsets, space.dim, dtype), rows

    def fingerprints(self, rows: Rows) -> npt.NDArray[np.uint32]:
        with self._guard:
            crcs: npt.NDArray[np.uint32] = self._table.take("vectors_crc", self._table_rows(np.asarray(rows, np.intp)))
        return crcs

    def _sound(
        self, data: npt.NDArray[np.uint8], rows: Rows, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.bool_]:
        """Which of `rows` have sound vectors. Each is looked at once."""
        seen = self._seen
        if len(seen) < self._arrays.size:
            seen = self._seen = np.concatenate((seen, np.zeros(max(self._arrays.size // 2, 64), np.bool_)))
            return self._sound(data, rows, offsets, lengths)
        sound = seen[rows]
        new = (~sound).nonzero()[0]
        if not len(new):
            return sound
        view = data.data
        places = zip(new.tolist(), offsets[new].tolist(), lengths[new].tolist(), strict=True)
        for (number, offset, length), crc in zip(places, self.fingerprints(rows[new]).tolist(), strict=True):
            if zlib.crc32(view[offset : offset + length]) == crc:
                sound[number] = True
            else:
                self._report(offset, "the vectors of a record are damaged; it is not found by similarity")
        seen[rows] = sound
        return sound


def gather(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], dim: int, dtype: VectorDtype) -> Vectors:
    """The unit vectors, shape (n, dim), that begin at `offsets` in the bytes of a file."""
    stored = np.dtype(dtype).newbyteorder("<")
    size = dim * stored.itemsize
    vectors = np.empty((len(offsets), dim), np.float32)
    if not len(offsets):
        return vectors
    # Every place where a vector may begin, as one array whose items overlap: fetching an item copies a vector.
    step = stored.itemsize
    places = np.ndarray((len(data) - size) // step + 1, np.dtype((np.void, size)), data, strides=(step,))
    for start in range(0, len(offsets), _GATHER):
        part = vectors[start : start + _GATHER]
        found = places[offsets[start : start + _GATHER] // step]
        if dtype == "float16":
            widen(found.view("<i2").reshape(-1, dim), part)
            # Rounding to half precision moves the length away from 1.
            part /= np.sqrt(np.einsum("ij,ij->i", part, part))[:, np.newaxis]
        else:
            part[:] = found.view(stored).reshape(-1, dim)
    return vectors


def widen(halves: npt.NDArray[np.int16], out: Vectors) -> None:
    """Write finite numbers of half precision, given by their bits, to `out`: ten times as fast as numpy converts them.

    Widened with its sign and moved by 13 bits, a half is a float32 whose exponent is too small by 112.
    """
    bits = out.view(np.int32)
    bits[:] = halves
    bits <<= 13
    bits &= _NOT_THE_COPIES
    out *= np.float32(2.0**112)


def read_records(file: VaultFile, offsets: Iterable[int], report: Callable[[int, str], None]) -> Iterator[Record]:
    """The records whose rows stand at `offsets`; those that are damaged are left out, and reported."""
    for offset in offsets:
        try:
            row = file.row(offset)
            doc = file.doc(row)
        except CorruptionError as error:
            report(error.offset or 0, f"{error.reason}; it was left out")
        else:
            yield decode_record(row, doc)


def _own(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A contiguous column that won't change: mapped ones as they are, others copied."""
    return column if column.flags.c_contiguous and not column.flags.writeable else np.array(column)
