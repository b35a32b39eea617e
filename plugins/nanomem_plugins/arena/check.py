"""Verifying every byte of an arena file, and setting damaged bytes aside."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nanomem_core.fileio import atomic
from nanomem_core.interfaces import Damage
from nanomem_core.records import Scope

from .blocks import Gap, walk
from .documents import document_id, id_hash
from .entries import block_rows
from .format import BLOCK, HEADER, ROW, SPACE, BlockHeader, block_label, decode_label, vector_size
from .log import VaultFile
from .table import Table

__all__ = ["Flaw", "inspect", "keep_set_aside", "set_aside"]

Span = tuple[int, int]
"""Offset and length."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A damaged place, and what a repair sets aside.

    Attributes:
        spans: all bytes that a rewrite would drop, or heal, because of it; the first is the damaged one.
    """

    spans: tuple[Span, ...]
    what: str
    scope: Scope | None = None
    id: str | None = None
    lost: bool = False

    def damage(self, path: str) -> Damage:
        return Damage(path, *self.spans[0], self.what, self.id, self.lost)


def inspect(file: VaultFile) -> Iterator[Flaw]:
    """Every flaw of a file, in order. Reads all of it."""
    start = file.read(0, HEADER)
    for offset in (0, HEADER // 2):
        if start[offset : offset + HEADER // 2] != file.header.encode()[: HEADER // 2]:
            yield Flaw(((offset, HEADER // 2),), "a copy of the file header is damaged; the other one is used")
    # Without the index, so that what was damaged after it was written is known to be.
    table = Table(file, None, lambda offset, reason: None)
    end, size = HEADER, file.size()
    for found in walk(file, HEADER, size):
        if isinstance(found, Gap):
            length = found.end - found.offset
            what = "a stretch from which no block can be read; its commits are lost"
            yield Flaw(((found.offset, length),), what, lost=True)
        else:
            yield from _inspect_block(table, found)
        end = found.end
    torn = file.torn(end)
    if torn:
        yield Flaw(((end, torn),), "a torn tail: a commit that was never acknowledged; the next write cuts it")


def _inspect_block(table: Table, header: BlockHeader) -> Iterator[Flaw]:
    block = table.file.read(header.offset, header.length)
    for offset, footer in ((0, False), (header.length - BLOCK, True)):
        if BlockHeader.decode(block[offset : offset + BLOCK], footer=footer) != header:
            name = "footer" if footer else "header"
            yield Flaw(((header.offset + offset, BLOCK),), f"the {name} of a block is damaged; its copy is used")
    payload = (header.vectors_offset, header.length - 2 * BLOCK)
    if zlib.crc32(block[BLOCK:-BLOCK]) == header.payload_crc:
        return
    base = header.rows_offset
    data = block[base - header.offset : header.label_copy_offset + header.label_length - header.offset]
    label = block_label(header, data)
    if label is None:
        yield Flaw((payload,), "both labels of a block are damaged; its records are lost", lost=True)
        return
    found = False
    for flaw in _inspect_parts(table, header, block, data, None if header.type == SPACE else Scope(*label)):
        found = True
        yield flaw
    if not found:
        yield Flaw((payload,), "bytes between the records of a block are damaged; no record is concerned")


def _inspect_parts(table: Table, header: BlockHeader, block: bytes, data: bytes, scope: Scope | None) -> Iterator[Flaw]:
    for offset in (header.label_offset, header.label_copy_offset):
        at = offset - header.offset
        if decode_label(block[at : at + header.label_length], header.label_crc) is None:
            yield Flaw(((offset, header.label_length),), "a label of a block is damaged; its copy is used", scope)
    size = vector_size(header.dim, table.file.header.dtype)
    doc_end = header.docs_offset
    for place, row, doc in block_rows(header, data):
        id = document_id(doc)
        if isinstance(row, str):
            lost = id is None or scope is None or _lost(table, id_hash(scope, id), place)
            yield Flaw(((place, ROW), (doc_end, len(doc))), row, scope, id, lost)
            doc_end += len(doc)
            continue
        doc_end = row.doc_offset + row.doc_length
        if zlib.crc32(doc) != row.doc_crc:
            if id is not None and scope is not None and id_hash(scope, id) != row.id_hash:
                id = None  # the damage is in the id
            lost = not row.deleted and _lost(table, row.id_hash, row.doc_offset)
            yield Flaw(
                ((row.doc_offset, row.doc_length), (place, ROW)), "the text of a record is damaged", scope, id, lost
            )
        at, length = row.vectors_offset - header.offset, row.vectors * size
        if length and zlib.crc32(block[at : at + length]) != row.vectors_crc:
            lost = table.is_alive(row.id_hash, place)
            what = "the vectors of a record are damaged; its text is sound, and `nanomem reembed` makes new ones"
            yield Flaw(((row.vectors_offset, length),), what, scope, id, lost)


def _lost(table: Table, number: int, offset: int) -> bool:
    """True if what is damaged at `offset` is what the store would have now: not replaced or deleted later."""
    damaged = table.damaged.get(number)
    return damaged is not None and damaged.offset == offset


# The quarantine: lines of JSON, one a span of damaged bytes, with what is known of it.


def set_aside(path: str, file: VaultFile, flaws: Iterable[Flaw]) -> None:
    """Add the bytes of `flaws` to the quarantine at `path`, durably. What is there already isn't added again.

    Raises:
        OSError: it can't be written.
    """
    lines = _lines(path)
    for flaw in flaws:
        for offset, length in flaw.spans:
            entry = {
                "generation": file.header.generation,
                "offset": offset,
                "reason": flaw.what,
                "scope": None if flaw.scope is None else [flaw.scope.user, flaw.scope.agent],
                "id": flaw.id,
                "base64": base64.b64encode(file.read(offset, length)).decode(),
            }
            line = json.dumps(entry, ensure_ascii=False).encode()
            if length and line not in lines:
                lines.append(line)
    if lines:
        atomic.write(path, b"\n".join(lines) + b"\n")


def keep_set_aside(path: str, keep: Callable[[Scope | None, str | None], bool]) -> None:
    """Drop from the quarantine what `keep`, asked with scope and id (None if unknown), doesn't want.

    Raises:
        OSError: it can't be written.
    """
    lines = _lines(path)
    kept = [line for line in lines if keep(*_owner(line))]
    if not kept:
        atomic.remove(path)
    elif len(kept) < len(lines):
        atomic.write(path, b"\n".join(kept) + b"\n")


def _owner(line: bytes) -> tuple[Scope | None, str | None]:
    """Scope and id of what a line of the quarantine holds; None where it doesn't tell, or is no such line."""
    try:
        entry = json.loads(line)
        return None if entry["scope"] is None else Scope(*entry["scope"]), entry["id"]
    except (ValueError, KeyError, TypeError):
        return None, None


def _lines(path: str) -> list[bytes]:
    return (atomic.read(path) or b"").splitlines()
