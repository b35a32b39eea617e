"""Writing an arena file anew: what is alive of it, in the same order and with the same numbers."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from nanomem_core.errors import CorruptionError
from nanomem_core.fileio import atomic
from nanomem_core.interfaces import VectorSpace
from nanomem_core.records import Scope

from .blocks import Gap, walk
from .documents import document_id
from .entries import Entry, Row, block_rows, encode_block
from .format import COMMIT, HEADER, SPACE, BlockHeader, FileHeader, block_label, vector_size
from .log import VaultFile
from .table import Table

__all__ = ["Copy", "NewVectors", "alive", "alive_entries", "batches", "copy_alive", "deleted_ids", "next_header"]

NewVectors = Callable[[Row], tuple[bytes, int] | None]
"""The vectors, as they are stored, that a record gets, and how many they are; None to keep those it has."""

Alive = tuple[tuple[str, str], int, list[int]]
"""Label and head of a scope, and the places of its live rows."""

_BLOCK_ROWS = 1024
_BLOCK_BYTES = 1 << 22


def copy_alive(
    table: Table,
    *,
    skip: Scope | None = None,
    leave_out_damaged: bool = False,
    space: VectorSpace | None = None,
    new_vectors: NewVectors | None = None,
) -> None:
    """Replace the file by one that holds only what is alive. Call it under the lock of all writers.

    Args:
        skip: a scope that is left out altogether.
        leave_out_damaged: go on without records, or their vectors, that are damaged.
        space, new_vectors: give records new vectors, of this space.

    Raises:
        CorruptionError: something is damaged, and `leave_out_damaged` is False; the file is as it was.
        OSError: it can't be written; the file is as it was.
    """
    file = table.file
    size = 0 if table.space is None else vector_size(table.space.dim, file.header.dtype)
    with atomic.replacing(file.path) as descriptor:
        copy = Copy(descriptor, next_header(table), space or table.space)
        for label, head, offsets in alive(table, skip):
            # A scope without records keeps its head.
            for entries in batches(alive_entries(file, offsets, size, leave_out_damaged, new_vectors)):
                copy.commit(label, head, entries)
        if os.name == "nt":
            # Windows replaces no file that is open.
            file.close()


def next_header(table: Table) -> FileHeader:
    """The header of the file that replaces that of `table`."""
    old = table.file.header
    return FileHeader(old.dtype, old.uuid, old.generation + 1, table.next_seq, old.created)


def alive(table: Table, skip: Scope | None = None) -> list[Alive]:
    """What is alive in a table now, but for the scope `skip`."""
    return [
        ((state.scope.user, state.scope.agent), state.head, table.take("row_offset", table.rows(code)).tolist())
        for code, state in enumerate(table.scopes)
        if state.scope != skip
    ]


class Copy:
    """A new file in the making, into which blocks are written one behind the other.

    Attributes:
        end: bytes that it has so far.
    """

    def __init__(self, descriptor: int, header: FileHeader, space: VectorSpace | None) -> None:
        self._descriptor = descriptor
        self._header = header
        self._seq = header.first_seq
        self._space: VectorSpace | None = None
        atomic.write_all(descriptor, header.encode(), 0)
        self.end = HEADER
        if space is not None:
            self._adopt(space)

    @property
    def vector_size(self) -> int:
        """Bytes of a vector, 0 without a space."""
        return 0 if self._space is None else vector_size(self._space.dim, self._header.dtype)

    def _adopt(self, space: VectorSpace) -> None:
        self._space = space
        self._write(SPACE, (space.embedder, space.dim))

    def commit(self, label: Sequence[str | int], head: int, entries: Sequence[Entry]) -> None:
        """Write a block of rows."""
        self._write(COMMIT, label, head, 0 if self._space is None else self._space.dim, entries)

    def _write(
        self, type: int, label: Sequence[str | int], head: int = 0, dim: int = 0, entries: Sequence[Entry] = ()
    ) -> None:
        _, block = encode_block(
            type, seq=self._seq, offset=self.end, synced=None, time=time.time(), label=label, head=head, dim=dim,
            entries=entries,
        )  # fmt: skip
        atomic.write_all(self._descriptor, block, self.end)
        self.end += len(block)
        self._seq += 1

    def append_from(self, file: VaultFile, start: int) -> int:
        """Append the blocks of another file from `start` on, each as one block, so that this file has numbered as many
        as the other when it replaces it. Returns where the last of them ends.

        Raises:
            CorruptionError: one of them is damaged.
        """
        for found in walk(file, start, file.size()):
            if isinstance(found, Gap):
                raise CorruptionError(file.path, found.offset, f"{found.end - found.offset} bytes are damaged")
            data = file.read(found.rows_offset, found.label_copy_offset + found.label_length - found.rows_offset)
            label = block_label(found, data)
            if label is None:
                raise CorruptionError(file.path, found.label_offset, "both labels of a block are damaged")
            if found.type == SPACE:
                self._adopt(VectorSpace(*label))
            else:
                self.commit(label, found.head, list(self._entries(file, found, data)))
            start = found.end
        return start

    def _entries(self, file: VaultFile, header: BlockHeader, data: bytes) -> Iterator[Entry]:
        for place, row, doc in block_rows(header, data):
            if isinstance(row, str):
                raise CorruptionError(file.path, place, row)
            if zlib.crc32(doc) != row.doc_crc:
                raise CorruptionError(file.path, row.doc_offset, "the text of a record is damaged")
            yield row.entry(doc, file.vectors(row, self.vector_size), row.vectors)


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """At least one list, at most `_BLOCK_ROWS` long and about `_BLOCK_BYTES` big."""
    batch: list[Entry] = []
    size = 0
    first = True
    for entry in entries:
        if batch and (len(batch) == _BLOCK_ROWS or size + len(entry.doc) + len(entry.data) > _BLOCK_BYTES):
            yield batch
            batch, size, first = [], 0, False
        batch.append(entry)
        size += len(entry.doc) + len(entry.data)
    if batch or first:
        yield batch


def alive_entries(
    file: VaultFile,
    offsets: Iterable[int],
    vector_size: int,
    leave_out_damaged: bool = False,
    new_vectors: NewVectors | None = None,
) -> Iterator[Entry]:
    """What writes the rows at `offsets` again; the rest as for `copy_alive`."""
    for offset in offsets:
        try:
            row = file.row(offset)
            doc = file.doc(row)
        except CorruptionError:
            if not leave_out_damaged:
                raise
            continue
        given = None if new_vectors is None else new_vectors(row)
        if given is None:
            try:
                given = file.vectors(row, vector_size), row.vectors
            except CorruptionError:
                if not leave_out_damaged:
                    raise
                given = b"", 0
        yield row.entry(doc, *given)


def deleted_ids(file: VaultFile, end: int) -> Iterator[tuple[Scope, str]]:
    """The ids that were deleted in the first `end` bytes of a file. Some may have been written again since."""
    for header in walk(file, HEADER, end):
        if isinstance(header, Gap) or header.type != COMMIT:
            continue
        base = header.rows_offset
        data = file.read(base, header.label_copy_offset + header.label_length - base)
        label = block_label(header, data)
        for _, row, doc in block_rows(header, data):
            id = document_id(doc)
            if label is not None and id is not None and isinstance(row, Row) and row.deleted:
                yield Scope(*label), id
