"""Rows of an arena file, and the blocks in which they are written. Pure: nothing here touches a file.

The format is described byte by byte in ``docs/reference/formats/arena.md``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import InputError
from nanomem_core.records import KINDS

from .format import BLOCK, ROW, ROW_FIELDS, BlockHeader, aligned, compact_json, zero_sectors

__all__ = [
    "CLOSED",
    "DECLARED",
    "DELETED",
    "ENDED",
    "KIND",
    "MAX_BLOCK",
    "Entry",
    "Row",
    "all_sound",
    "block_rows",
    "encode_block",
    "is_sound",
    "packed_rows",
    "unpacked_rows",
]

MAX_BLOCK = 2**32 - 1
"""Bytes of a block at most, since distances in it have 32 bits."""

KIND, DELETED, DECLARED, ENDED, CLOSED = 7, 8, 16, 32, 64
"""Flags of a row: the bits that hold the kind, that it deletes, `declared`, and that `valid_to` and `closed_at` are
set."""

_ROW = struct.Struct("<IiiddQQIIIIII")
"""`ROW_FIELDS`, for one row at a time."""

_UNCHECKED = struct.Struct("<IiiddQQIIIII")
"""A row without its own checksum."""

_CRC = struct.Struct("<I")
_MAX_VECTORS = 2**24 - 1


class Entry(NamedTuple):
    """A row that is to be written, with its document and its vectors. `encode_block` adds offsets and checksums.

    Attributes:
        flags: the record's kind (`nanomem_core.columns.kind_code`), and of `DELETED`, `DECLARED`, `ENDED` and `CLOSED`
            those that hold.
        vectors: how many vectors the record has.
        birth: 64 bits that name the record from its first write to its deletion: number of the block of the first
            write times 2^32, plus the row in it. Later versions, and the deletion, carry it too. Sorting by it gives
            the order of first writes. 0 stands for the place at which the entry is written.
        id_hash: `id_hash` of the record.
    """

    flags: int
    vectors: int
    revision: int
    version: int
    valid_from: float
    recorded_at: float
    birth: int
    id_hash: int
    doc: bytes
    data: bytes | memoryview = b""


class Row(NamedTuple):
    """A fixed-width row: a record that was written, or one that was deleted. What it has in common with `Entry` means
    the same.

    Attributes:
        doc_offset, vectors_offset: from the begin of the file.
        doc_crc, vectors_crc: CRC-32 of the document, and of all vectors.
    """

    flags: int
    vectors: int
    revision: int
    version: int
    valid_from: float
    recorded_at: float
    birth: int
    id_hash: int
    doc_offset: int
    doc_length: int
    vectors_offset: int
    doc_crc: int
    vectors_crc: int

    @property
    def deleted(self) -> bool:
        return bool(self.flags & DELETED)

    @property
    def kind(self) -> int:
        return self.flags & KIND

    @classmethod
    def decode(cls, data: bytes, place: int) -> Self | None:
        """The row in `data`, which stands at `place` in the file, or None if it is damaged."""
        if len(data) != ROW:
            return None
        (
            what, revision, version, valid_from, recorded_at, birth, id_hash,
            to_doc, doc_length, to_vectors, doc_crc, vectors_crc, crc,
        ) = _ROW.unpack(data)  # fmt: skip
        if not is_sound(data, what, crc):
            return None
        return cls(
            what & 0xFF, what >> 8, revision, version, valid_from, recorded_at, birth, id_hash,
            place + to_doc, doc_length, place - to_vectors, doc_crc, vectors_crc,
        )  # fmt: skip

    def entry(self, doc: bytes, data: bytes | memoryview, vectors: int) -> Entry:
        """What writes this row again, with these vectors."""
        return Entry(self.flags, vectors, *self[2:8], doc, data)


def encode_block(
    type: int,
    *,
    seq: int,
    offset: int,
    synced: int | None,
    time: float,
    label: Sequence[str | int],
    head: int = 0,
    dim: int = 0,
    entries: Sequence[Entry] = (),
) -> tuple[BlockHeader, bytearray]:
    """A whole block that is to stand at `offset`, and what its header says. With `synced` None it states that it is
    itself on disk.

    Raises:
        InputError: it would be longer than `MAX_BLOCK`, or a record has too many vectors.
    """
    docs_length = sum([len(entry.doc) for entry in entries])
    vectors_length = sum([len(entry.data) for entry in entries])
    name = compact_json(label).encode()
    inner = vectors_length + ROW * len(entries) + 2 * len(name) + docs_length
    length = 2 * BLOCK + aligned(inner)
    if length > MAX_BLOCK:
        raise InputError(
            f"expected at most {MAX_BLOCK} bytes in one commit; found {length}. Write fewer records at once."
        )
    # A header is not zero in any sector, whatever it says, so the count may be taken before there is one.
    place = b"\1" * BLOCK
    block = bytearray().join((
        place, *[entry.data for entry in entries], *_packed(entries, seq, vectors_length, len(name)), name,
        *[entry.doc for entry in entries], name, bytes(length - 2 * BLOCK - inner), place,
    ))  # fmt: skip
    header = BlockHeader(
        type, seq, offset, offset + length if synced is None else synced, head, len(entries), dim, len(name),
        zero_sectors(block, offset), vectors_length, docs_length, time, zlib.crc32(name),
        zlib.crc32(memoryview(block)[BLOCK:-BLOCK]), length,
    )  # fmt: skip
    block[:BLOCK] = header.encode()
    block[-BLOCK:] = header.encode(footer=True)
    return header, block


def _packed(entries: Sequence[Entry], seq: int, vectors_length: int, label_length: int) -> list[bytes]:
    """The rows of a block with that number; the checksum of each stands behind it."""
    crc32, pack, pack_crc = zlib.crc32, _UNCHECKED.pack, _CRC.pack
    rows: list[bytes] = []
    to_doc, to_vectors = ROW * len(entries) + label_length, vectors_length
    birth_here = seq << 32
    for flags, count, revision, version, begin, told, birth, id_hash, doc, data in entries:
        if count > _MAX_VECTORS:
            raise InputError(f"vectors: expected at most {_MAX_VECTORS} of one record; found {count}")
        row = pack(
            flags | count << 8, revision, version, begin, told, birth or birth_here, id_hash,
            to_doc, len(doc), to_vectors, crc32(doc), crc32(data) if count else 0,
        )  # fmt: skip
        rows += (row, pack_crc(crc32(row)))
        birth_here += 1
        to_doc += len(doc) - ROW
        to_vectors += ROW - len(data)
    return rows


def packed_rows(data: bytes | memoryview, count: int) -> npt.NDArray[np.void]:
    """The first `count` rows in `data` as they stand there, see `ROW_FIELDS`."""
    return np.frombuffer(data, ROW_FIELDS, count)


def unpacked_rows(data: bytes | memoryview, count: int) -> Iterator[tuple[int, ...]]:
    """What `packed_rows` gives, row by row."""
    return _ROW.iter_unpack(memoryview(data)[: ROW * count])


def is_sound(row: bytes | memoryview, what: int, crc: int) -> bool:
    """True if the bytes of a row fit its checksum, and its kind is one."""
    return what & KIND < len(KINDS) and zlib.crc32(row[:-4]) == crc


def all_sound(rows: npt.NDArray[np.void], data: bytes | memoryview) -> bool:
    """True if every row in a block, and its document, fits its checksums."""
    crc32 = zlib.crc32
    places = range(0, ROW * len(rows), ROW)
    checks = zip(*(rows[name].tolist() for name in ("what", "crc", "to_doc", "doc_length", "doc_crc")), strict=True)
    return all(
        is_sound(data[place : place + ROW], what, crc)
        and crc32(data[place + to_doc : place + to_doc + length]) == doc_crc
        for place, (what, crc, to_doc, length, doc_crc) in zip(places, checks, strict=True)
    )


def block_rows(header: BlockHeader, data: bytes) -> Iterator[tuple[int, Row | str, bytes]]:
    """Place, content (or what is wrong with it) and document of each row of a block; `data` as for `block_label`."""
    base = header.rows_offset
    places = [base + ROW * number for number in range(header.rows)]
    rows = [Row.decode(data[place - base : place - base + ROW], place) for place in places]
    end = header.docs_offset
    for number, row in enumerate(rows):
        start = end
        if row is not None:
            start, end = row.doc_offset, row.doc_offset + row.doc_length
        else:
            # Documents stand in the order of their rows, so the neighbours tell where this one is.
            after = rows[number + 1] if number + 1 < len(rows) else None
            last = number + 1 == len(rows)
            end = header.label_copy_offset if last else (after.doc_offset if after is not None else start)
        yield (
            places[number],
            row if row is not None else "the row of a record is damaged",
            data[start - base : end - base],
        )
