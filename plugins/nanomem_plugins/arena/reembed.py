"""Replacing all vectors of an arena by those of another space, in steps that survive an interruption.

New vectors are gathered in ``<path>.reembed``, itself an arena file: each record that was encoded, with its new
vectors. A record there stands for a record of the store if birth, version and checksum of the document are equal, so
what was written, changed or deleted meanwhile needs no bookkeeping. When nothing is missing any more the store is
written anew with the vectors from there, and the file is deleted.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable

from nanomem_core.changes import Vectors, check_rows
from nanomem_core.columns import kind_code
from nanomem_core.errors import CorruptionError, EmbedderError, FormatError, InputError
from nanomem_core.interfaces import VectorSpace
from nanomem_core.records import Record, Scope

from .documents import decode_record, encode_vectors
from .engine import Arena
from .entries import Entry, Row
from .format import COMMIT, SPACE, VectorDtype, vector_size
from .table import Table

__all__ = ["reembed"]

_BATCH = 64
"""Records that are encoded, and made durable, at once."""

_PASSES = 3
"""After this many passes the last few records are encoded under the lock, so that busy writers can't go on for ever."""

_UNTOLD = (kind_code("message"), kind_code("purged"))
"""Kinds whose records may well have no vectors."""


Encode = Callable[[list[Record]], list[Vectors]]
Place = tuple[Scope, int]
"""A scope, and the offset of a row in the file."""

_Key = tuple[int, int, int]


def reembed(arena: Arena, space: VectorSpace, encode: Encode, progress: Callable[[int, int], None]) -> int:
    """See `Storage.reembed`."""
    encoded = 0
    for attempt in itertools.count(1):
        with arena.writing():
            table = arena.read(Table.verified, None)
            if table is None:
                written = arena.append(SPACE, (space.embedder, space.dim))
                break
            table.require_sound()
            side = _side(arena, table, space)
            done = _done(side)
            todo, total = _missing(table, space, done)
            if not todo or (attempt >= _PASSES and len(todo) <= _BATCH):
                if todo:
                    side.append(COMMIT, _LABEL, _encoded(table, todo, space, encode))
                    encoded += len(todo)
                    progress(total, total)
                _finish(arena, table, space, side)
                return encoded
        with contextlib.closing(side):
            for start in range(0, len(todo), _BATCH):
                batch = todo[start : start + _BATCH]
                entries = _encoded(table, batch, space, encode)
                with arena.writing():
                    _prepare(side, space, table.file.header.dtype)
                    written = side.append(COMMIT, _LABEL, entries)
                side.sync(written)
                encoded += len(batch)
                progress(total - len(todo) + start + len(batch), total)
    arena.sync(written)
    return encoded


_LABEL = ("reembed", "default")
"""All records stand in one scope there; their documents tell nothing of the scope, nor do their keys need it."""


def _key(row: Row) -> _Key:
    return row.birth, row.version, row.doc_crc


def _side(arena: Arena, table: Table, space: VectorSpace) -> Arena:
    """The file of new vectors, begun anew if there is none that fits. Call it under the lock of all writers."""

    def opened() -> Arena:
        return Arena(
            arena.reembed_path,
            vector_dtype=table.file.header.dtype,
            durability=arena.durability,
            indexed=False,
        )

    try:
        side = opened()
    except FormatError:
        arena.remove_derived()
        side = opened()
    _prepare(side, space, table.file.header.dtype)
    return side


def _prepare(side: Arena, space: VectorSpace, dtype: VectorDtype) -> None:
    """Make sure that the file is there and fits: it may have been deleted, or begun for another space."""
    table = side.read(lambda table: table, None)
    if table is not None and (table.space != space or table.file.header.dtype != dtype):
        side.delete()
        table = None
    if table is None:
        side.append(SPACE, (space.embedder, space.dim))
    else:
        side.cut_tail(table)


def _done(side: Arena) -> dict[_Key, Row]:
    """The rows of the records that have new vectors. Damaged ones don't count, and are encoded again."""

    def rows(table: Table) -> dict[_Key, Row]:
        assert table.space is not None
        size = vector_size(table.space.dim, table.file.header.dtype)
        found = {}
        for offset in table.column("row_offset").tolist():
            with contextlib.suppress(CorruptionError):
                row = table.file.row(offset)
                vectors = table.file.read(row.vectors_offset, row.vectors * size)
                if zlib.crc32(vectors) == row.vectors_crc:
                    found[_key(row)] = row
        return found

    return side.read(rows, {})


def _missing(table: Table, space: VectorSpace, done: dict[_Key, Row]) -> tuple[list[Place], int]:
    """Where the records are that still need new vectors, and how many need them or have got them."""
    todo = []
    total = 0
    for code, state in enumerate(table.scopes):
        for offset in table.take("row_offset", table.rows(code)).tolist():
            row = table.file.row(offset)
            if not _wanted(table, row, space):
                continue
            total += 1
            if _key(row) not in done:
                todo.append((state.scope, offset))
    return todo, total


def _wanted(table: Table, row: Row, space: VectorSpace) -> bool:
    if row.vectors:
        return table.space != space
    return row.kind not in _UNTOLD and bool(decode_record(row, table.file.doc(row)).text.strip())


def _encoded(table: Table, places: list[Place], space: VectorSpace, encode: Encode) -> list[Entry]:
    rows = [table.file.row(offset) for _, offset in places]
    docs = [table.file.doc(row) for row in rows]
    records = [decode_record(row, doc) for row, doc in zip(rows, docs, strict=True)]
    matrices = encode(records)
    if len(matrices) != len(records):
        raise EmbedderError(f"encode: expected {len(records)} matrices, one a record; found {len(matrices)}")
    try:
        vectors, counts = check_rows(matrices, space.dim, lambda number: f"vectors of {records[number].id!r}")
    except InputError as error:
        raise EmbedderError(str(error)) from error
    data = encode_vectors(vectors, counts, table.file.header.dtype)
    return [row.entry(doc, part, count) for row, doc, part, count in zip(rows, docs, data, counts, strict=True)]


def _finish(arena: Arena, table: Table, space: VectorSpace, side: Arena) -> None:
    done = _done(side)
    size = vector_size(space.dim, table.file.header.dtype)
    file = side.read(lambda table: table.file, None)

    def new_vectors(row: Row) -> tuple[bytes, int] | None:
        found = done.get(_key(row))
        if found is not None and file is not None:
            return file.read(found.vectors_offset, found.vectors * size), found.vectors
        return None if table.space == space else (b"", 0)

    if done or table.space != space:
        arena.rewrite(space=space, new_vectors=new_vectors)
    side.close()
    side.delete()
