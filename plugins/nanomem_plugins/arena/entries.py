"""Rows of an arena file, and the blocks in which they are written. Pure: nothing here touches a file.

The format is described byte by byte in ``docs/reference/formats/arena.md``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import InputError
from nanomem_core.records import KINDS

from .format import BLOCK, ROW, BlockHeader, aligned, compact_json, zero_sectors

__all__ = [
    "CLOSED",
    "DECLARED",
    "DELETED",
    "ENDED",
    "KIND",
    "MAX_BLOCK",
    "Entry",
    "Row",
    "block_rows",
    "decode_rows",
    "encode_block",
]

MAX_BLOCK = 2**32 - 1
"""Bytes of a block at most, since distances in it have 32 bits."""

KIND, DELETED, DECLARED, ENDED, CLOSED = 7, 8, 16, 32, 64
"""Flags of a row: the bits that hold the kind, that it deletes, `declared`, and that `valid_to` and `closed_at` are
set."""

_ROW = struct.Struct("<IiiddQQIIIIII")
_ROWS = np.dtype(
    [
        ("what", "<u4"),
        ("revision", "<i4"),
        ("version", "<i4"),
        ("valid_from", "<f8"),
        ("recorded_at", "<f8"),
        ("birth", "<u8"),
        ("id_hash", "<u8"),
        ("to_doc", "<u4"),
        ("doc_length", "<u4"),
        ("to_vectors", "<u4"),
        ("doc_crc", "<u4"),
        ("vectors_crc", "<u4"),
        ("crc", "<u4"),
    ]
)
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
        if zlib.crc32(data[:-4]) != crc or what & KIND >= len(KINDS):
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
) -> bytes:
    """A whole block that is to stand at `offset`. With `synced` None it states that it is itself on disk.

    Raises:
        InputError: it would be longer than `MAX_BLOCK`, or a record has too many vectors.
    """
    vectors = b"".join([entry.data for entry in entries])
    docs = b"".join([entry.doc for entry in entries])
    name = compact_json(label)
    length = 2 * BLOCK + aligned(len(vectors) + ROW * len(entries) + 2 * len(name) + len(docs))
    if length > MAX_BLOCK:
        raise InputError(
            f"expected at most {MAX_BLOCK} bytes in one commit; found {length}. Write fewer records at once."
        )
    header = BlockHeader(
        type, seq, offset, offset + length if synced is None else synced, head, len(entries), dim, len(name), 0,
        len(vectors), len(docs), time, zlib.crc32(name), 0, length,
    )  # fmt: skip
    rows = bytearray()
    place, doc_offset, vectors_offset = header.rows_offset, header.docs_offset, header.vectors_offset
    for number, (flags, count, revision, version, begin, told, birth, id_hash, doc, data) in enumerate(entries):
        if count > _MAX_VECTORS:
            raise InputError(f"vectors: expected at most {_MAX_VECTORS} of one record; found {count}")
        row = _ROW.pack(
            flags | count << 8, revision, version, begin, told, birth or seq << 32 | number, id_hash,
            doc_offset - place, len(doc), place - vectors_offset, zlib.crc32(doc), zlib.crc32(data), 0,
        )[:-4]  # fmt: skip
        rows += row
        rows += _CRC.pack(zlib.crc32(row))
        place += ROW
        doc_offset += len(doc)
        vectors_offset += len(data)
    padding = bytes(length - 2 * BLOCK - len(vectors) - len(rows) - 2 * len(name) - len(docs))
    block = bytearray(b"".join((header.encode(), vectors, rows, name, docs, name, padding, header.encode(footer=True))))
    # The headers are not zero in any sector, whatever they say, so the count may be taken before they are final.
    zeros = zero_sectors(block, offset)
    header = header._replace(zeros=zeros, payload_crc=zlib.crc32(memoryview(block)[BLOCK:-BLOCK]))
    block[:BLOCK] = header.encode()
    block[-BLOCK:] = header.encode(footer=True)
    return bytes(block)


def decode_rows(header: BlockHeader, data: bytes) -> tuple[npt.NDArray[Any], set[int]]:
    """The rows of a block, and the numbers of those that are damaged; `data` as for `block_label`.

    A structured array with the fields of `Row`, but for `flags`, `vectors` and the two offsets: ``what`` is
    ``flags | vectors << 8``, ``to_doc`` leads from a row to its document, ``to_vectors`` back to its vectors.
    """
    rows = np.frombuffer(data, _ROWS, header.rows)
    view = memoryview(data)
    found = zip(range(0, ROW * len(rows), ROW), rows["what"].tolist(), rows["crc"].tolist(), strict=True)
    return rows, {
        at // ROW for at, what, crc in found if what & KIND >= len(KINDS) or zlib.crc32(view[at : at + ROW - 4]) != crc
    }


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
