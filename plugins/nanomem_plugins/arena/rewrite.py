"""Writing an arena file anew: what is alive of it, in the same order and with the same numbers."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator

from nanomem_core.errors import CorruptionError
from nanomem_core.fileio import atomic
from nanomem_core.interfaces import VectorSpace
from nanomem_core.records import Scope

from .documents import document_id
from .entries import Entry, Row, block_rows, encode_block
from .format import COMMIT, HEADER, SPACE, FileHeader, block_label, vector_size
from .log import Gap, VaultFile, walk
from .table import Table

__all__ = ["NewVectors", "copy_alive", "deleted_ids"]

NewVectors = Callable[[Row], tuple[bytes, int] | None]
"""The vectors, as they are stored, that a record gets, and how many they are; None to keep those it has."""

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
    old = table.file.header
    header = FileHeader(old.dtype, old.uuid, old.generation + 1, table.next_seq, old.created)
    space = space or table.space
    with atomic.replacing(table.file.path) as descriptor:
        atomic.write_all(descriptor, header.encode(), 0)
        end, seq = HEADER, header.first_seq

        def write(type: int, label: tuple[str | int, ...], head: int = 0, entries: list[Entry] | None = None) -> None:
            nonlocal end, seq
            block = encode_block(
                type, seq=seq, offset=end, synced=None, time=time.time(), label=label, head=head,
                dim=space.dim if space is not None and type == COMMIT else 0, entries=entries or (),
            )  # fmt: skip
            atomic.write_all(descriptor, block, end)
            end, seq = end + len(block), seq + 1

        if space is not None:
            write(SPACE, (space.embedder, space.dim))
        for code, state in enumerate(table.scopes):
            if state.scope != skip:
                label = (state.scope.user, state.scope.agent)
                # A scope without records keeps its head.
                for entries in _batches(_alive_entries(table, code, leave_out_damaged, new_vectors)):
                    write(COMMIT, label, state.head, entries)
        if os.name == "nt":
            # Windows replaces no file that is open.
            table.file.close()


def _batches(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
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


def _alive_entries(table: Table, code: int, leave_out_damaged: bool, new_vectors: NewVectors | None) -> Iterator[Entry]:
    file = table.file
    size = 0 if table.space is None else vector_size(table.space.dim, file.header.dtype)
    for offset in table.take("row_offset", table.rows(code)).tolist():
        try:
            row = file.row(offset)
            doc = file.doc(row)
        except CorruptionError:
            if not leave_out_damaged:
                raise
            continue
        given = None if new_vectors is None else new_vectors(row)
        if given is not None:
            vectors, count = given
        else:
            vectors, count = file.read(row.vectors_offset, row.vectors * size), row.vectors
            if zlib.crc32(vectors) != row.vectors_crc:
                if not leave_out_damaged:
                    raise CorruptionError(file.path, row.vectors_offset, "the vectors of a record are damaged")
                vectors, count = b"", 0
        yield row.entry(doc, vectors, count)


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
