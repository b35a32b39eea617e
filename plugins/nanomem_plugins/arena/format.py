"""Bytes of an arena file: its header, blocks and rows. Pure: nothing here touches a file.

All numbers are little-endian. The format is described byte by byte in ``docs/reference/formats/arena.md``.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from nanomem_core.errors import FormatError, InputError

__all__ = [
    "ALIGN",
    "BLOCK",
    "CLOSED",
    "COMMIT",
    "DECLARED",
    "DELETE",
    "ENDED",
    "FOOT",
    "FORMAT_VERSION",
    "HEAD",
    "HEADER",
    "MAGIC",
    "PUT",
    "ROW",
    "SECTOR",
    "SPACE",
    "BlockHeader",
    "Entry",
    "FileHeader",
    "Row",
    "VectorDtype",
    "block_label",
    "block_rows",
    "compact_json",
    "decode_label",
    "encode_block",
    "vector_stride",
    "zero_sectors",
]

VectorDtype = Literal["float16", "float32"]

MAGIC = b"NMARENA\n"
FORMAT_VERSION = 1
HEADER = 256
"""Bytes of the file header: two equal copies of 128, so that damage to one loses nothing."""

ALIGN = 64
"""Blocks and vectors begin at multiples of this."""

SECTOR = 512
"""The least that a disk writes at once."""

BLOCK = 128
"""Bytes of a block's header, and of the footer, which repeats it."""

ROW = 96

COMMIT, SPACE = 1, 2
"""Types of block."""

PUT, DELETE = 1, 2
"""Types of row."""

DECLARED, ENDED, CLOSED = 1, 2, 4
"""Flags of a row: `declared`, and that `valid_to` and `closed_at` are set."""

_FILE = struct.Struct("<8sII16sQQd")
_BLOCK = struct.Struct("<4sB3xQQQQIIIIQQdII28xQI")
HEAD, FOOT = b"\xabBLK", b"\xbaBLK"
_ROW = struct.Struct("<BBBxIiiddddQQQQIIII")
_CRC = struct.Struct("<I")


def _aligned(size: int) -> int:
    """The next multiple of `ALIGN`."""
    return -(-size // ALIGN) * ALIGN


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What the first 256 bytes say.

    Attributes:
        uuid: 16 bytes that stay with the store.
        generation: rises with each rewrite of the file.
        first_seq: number of the file's first block; later ones count on, and rewrites never reuse a number.
        created: when the store was created, unix seconds.
    """

    dtype: VectorDtype
    uuid: bytes
    generation: int
    first_seq: int
    created: float

    def encode(self) -> bytes:
        flags = 1 if self.dtype == "float32" else 0
        copy = _FILE.pack(MAGIC, FORMAT_VERSION, flags, self.uuid, self.generation, self.first_seq, self.created)
        copy = copy.ljust(HEADER // 2 - 4, b"\0")
        return (copy + _CRC.pack(zlib.crc32(copy))) * 2

    @classmethod
    def decode(cls, data: bytes, path: str) -> FileHeader:
        """Read either copy.

        Raises:
            FormatError: neither copy is the header of an arena file that this release can read.
        """
        for copy in (data[: HEADER // 2], data[HEADER // 2 : HEADER]):
            if len(copy) < HEADER // 2 or not copy.startswith(MAGIC):
                continue
            if zlib.crc32(copy[:-4]) != _CRC.unpack(copy[-4:])[0]:
                continue
            _, version, flags, uuid, generation, first_seq, created = _FILE.unpack_from(copy)
            if version != FORMAT_VERSION or flags & ~1:
                raise FormatError(
                    f"{path}: expected an arena file of format version {FORMAT_VERSION}; found version {version} with "
                    f"flags {flags:#x}. Open it with the release of nanomem-core that wrote it, or a newer one."
                )
            return cls("float32" if flags & 1 else "float16", uuid, generation, first_seq, created)
        if MAGIC in (data[:8], data[HEADER // 2 : HEADER // 2 + 8]):
            raise FormatError(f"{path}: both copies of the file header are damaged. Restore the file from a backup.")
        raise FormatError(
            f"{path}: expected an arena file, which begins with {MAGIC!r}; found {data[:8]!r}. "
            f"Give the path of an arena file, or of a file that doesn't exist yet."
        )


class BlockHeader(NamedTuple):
    """What a block's header, and its footer, say.

    Attributes:
        type: `COMMIT` or `SPACE`.
        seq: number of the block; see `FileHeader.first_seq`.
        offset: where in the file the block begins; this ties a header to its place.
        synced: bytes of the file that were known to be on disk when the block was written. Blocks that end before
            this were acknowledged.
        head: head of the scope after the commit.
        rows: how many rows there are.
        dim: numbers in a vector, 0 without vectors.
        label_length: bytes of the label, which is JSON and is stored twice: ``[user, agent]`` of a commit,
            ``[embedder id, dim]`` of a space.
        zeros: `zero_sectors` of the block as it was written.
        vectors_length, docs_length: bytes of these sections.
        time: when the block was written, unix seconds.
        label_crc, payload_crc: CRC-32 of the label, and of all between header and footer.
        length: bytes of the block, with header and footer. It stands last, and is never zero, so that neither half
            of a header is all zeros; `zero_sectors` depends on that.
    """

    type: int
    seq: int
    offset: int
    synced: int
    head: int
    rows: int
    dim: int
    label_length: int
    zeros: int
    vectors_length: int
    docs_length: int
    time: float
    label_crc: int
    payload_crc: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length

    @property
    def vectors_offset(self) -> int:
        return self.offset + BLOCK

    @property
    def rows_offset(self) -> int:
        return self.vectors_offset + self.vectors_length

    @property
    def label_offset(self) -> int:
        return self.rows_offset + self.rows * ROW

    @property
    def docs_offset(self) -> int:
        return self.label_offset + self.label_length

    @property
    def label_copy_offset(self) -> int:
        return self.docs_offset + self.docs_length

    def encode(self, *, footer: bool = False) -> bytes:
        copy = _BLOCK.pack(FOOT if footer else HEAD, *self, 0)[:-4]
        return copy + _CRC.pack(zlib.crc32(copy))

    @classmethod
    def decode(cls, data: bytes, *, footer: bool = False) -> Self | None:
        """The header in `data`, or None if there is none or it is damaged."""
        if len(data) != BLOCK or not data.startswith(FOOT if footer else HEAD):
            return None
        if zlib.crc32(data[:-4]) != _CRC.unpack(data[-4:])[0]:
            return None
        return cls(*_BLOCK.unpack(data)[1:-1])


class Row(NamedTuple):
    """A fixed-width row: a record that was written, or one that was deleted.

    Attributes:
        type: `PUT` or `DELETE`.
        kind: `nanomem_core.columns.kind_code` of the record's kind.
        flags: bit 0 declared, bit 1 `valid_to` is set, bit 2 `closed_at` is set.
        vectors: how many vectors the record has.
        birth: 64 bits that name the record from its first write to its deletion: number of the block of the first
            write times 2^32, plus the row in it. Later versions, and the deletion, carry it too. Sorting by it gives
            the order of first writes.
        id_hash: `id_hash` of the record.
        doc_offset, vectors_offset: from the begin of the file.
        doc_crc, vectors_crc: CRC-32 of the document, and of all vectors.
    """

    type: int
    kind: int
    flags: int
    vectors: int
    revision: int
    version: int
    valid_from: float
    valid_to: float
    recorded_at: float
    closed_at: float
    birth: int
    id_hash: int
    doc_offset: int
    vectors_offset: int
    doc_length: int
    doc_crc: int
    vectors_crc: int

    @property
    def declared(self) -> bool:
        return bool(self.flags & DECLARED)

    @property
    def end(self) -> float:
        """`valid_to` as columns have it: infinity where the record has none."""
        return self.valid_to if self.flags & ENDED else math.inf

    @property
    def closed(self) -> float:
        """`closed_at` as columns have it."""
        if not self.flags & ENDED:
            return math.inf
        return self.closed_at if self.flags & CLOSED else self.recorded_at

    def encode(self) -> bytes:
        copy = _ROW.pack(*self, 0)[:-4]
        return copy + _CRC.pack(zlib.crc32(copy))

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """The row in `data`, or None if it is damaged."""
        if len(data) != ROW or zlib.crc32(data[:-4]) != _CRC.unpack(data[-4:])[0]:
            return None
        return cls(*_ROW.unpack(data)[:-1])


class Entry(NamedTuple):
    """A row that is to be written, with its document and its vectors. `encode_block` sets offsets and checksums."""

    row: Row
    doc: bytes
    vectors: bytes = b""


def compact_json(value: Any) -> bytes:
    """`value` in as few bytes as UTF-8 JSON can be.

    Raises:
        InputError: JSON can't hold it.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"metadata: expected what JSON can hold; found a value it can't: {error}") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        # An unpaired surrogate has no UTF-8 form, but an escape.
        return json.dumps(value, separators=(",", ":")).encode()


def vector_stride(dim: int, dtype: VectorDtype) -> int:
    """Bytes from one vector to the next."""
    return _aligned(dim * np.dtype(dtype).itemsize)


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
    """A whole block that is to stand at `offset`. With `synced` None it states that it is itself on disk."""
    vectors = b"".join(entry.vectors for entry in entries)
    docs = b"".join(entry.doc for entry in entries)
    name = compact_json(label)
    length = 2 * BLOCK + _aligned(len(vectors) + ROW * len(entries) + 2 * len(name) + len(docs))
    header = BlockHeader(
        type, seq, offset, offset + length if synced is None else synced, head, len(entries), dim, len(name), 0,
        len(vectors), len(docs), time, zlib.crc32(name), 0, length,
    )  # fmt: skip
    rows = bytearray()
    doc_offset, vectors_offset = header.docs_offset, header.vectors_offset
    for number, entry in enumerate(entries):
        row = entry.row._replace(
            birth=entry.row.birth or seq << 32 | number,
            doc_offset=doc_offset,
            doc_length=len(entry.doc),
            doc_crc=zlib.crc32(entry.doc),
            vectors_offset=vectors_offset if entry.vectors else 0,
            vectors_crc=zlib.crc32(entry.vectors),
        )
        rows += row.encode()
        doc_offset += len(entry.doc)
        vectors_offset += len(entry.vectors)
    payload = b"".join((vectors, rows, name, docs, name)).ljust(length - 2 * BLOCK, b"\0")
    # The headers are not zero in any sector, whatever they say, so the count may be taken before they are final.
    zeros = zero_sectors(header.encode() + payload + header.encode(footer=True), offset)
    header = header._replace(zeros=zeros, payload_crc=zlib.crc32(payload))
    return b"".join((header.encode(), payload, header.encode(footer=True)))


def decode_label(data: bytes, crc: int) -> list[Any] | None:
    """The label in `data`, or None if it is damaged."""
    if zlib.crc32(data) != crc:
        return None
    label: list[Any] = json.loads(data)
    return label


def zero_sectors(block: bytes, offset: int) -> int:
    """How many sectors of the file, as far as they belong to the `block` at `offset`, are all zeros."""
    lead = offset % SECTOR
    padded = np.zeros(-(-(lead + len(block)) // SECTOR) * SECTOR, np.uint8)
    padded[lead : lead + len(block)] = np.frombuffer(block, np.uint8)
    return int((~padded.view(np.uint64).reshape(-1, SECTOR // 8).any(axis=1)).sum())


def block_label(header: BlockHeader, data: bytes) -> list[Any] | None:
    """The label of a block, from either copy. `data` begins at the rows and ends behind the second label."""
    length, base = header.label_length, header.rows_offset
    for offset in (header.label_offset, header.label_copy_offset):
        label = decode_label(data[offset - base : offset - base + length], header.label_crc)
        if label is not None:
            return label
    return None


def block_rows(header: BlockHeader, data: bytes) -> Iterator[tuple[int, Row | str, bytes]]:
    """Place, content (or what is wrong with it) and document of each row of a block; `data` as for `block_label`."""
    base = header.rows_offset
    places = [base + ROW * number for number in range(header.rows)]
    rows = [Row.decode(data[place - base : place - base + ROW]) for place in places]
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
