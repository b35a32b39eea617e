"""Bytes of an arena file: its header, and those of its blocks. Pure: nothing here touches a file.

All numbers are little-endian. The format is described byte by byte in ``docs/reference/formats/arena.md``.
"""

from __future__ import annotations

import functools
import json
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json import encoder as json_encoder
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from nanomem_core.errors import FormatError, InputError

__all__ = [
    "ALIGN",
    "BLOCK",
    "COMMIT",
    "FOOT",
    "FORMAT_VERSION",
    "HEAD",
    "HEADER",
    "MAGIC",
    "ROOM",
    "ROW",
    "ROW_FIELDS",
    "SECTOR",
    "SPACE",
    "BlockHeader",
    "FileHeader",
    "VectorDtype",
    "aligned",
    "block_label",
    "compact_json",
    "decode_label",
    "is_room",
    "vector_size",
    "zero_sectors",
]

VectorDtype = Literal["float16", "float32"]

MAGIC = b"NMARENA\n"
FORMAT_VERSION = 1
HEADER = 256
"""Bytes of the file header: two equal copies of 128, so that damage to one loses nothing."""

ALIGN = 32
"""Blocks, their headers and their footers begin at multiples of this."""

SECTOR = 512
"""The least that a disk writes at once."""

BLOCK = 96
"""Bytes of a block's header, and of the footer, which repeats it."""

ROW_FIELDS = np.dtype(
    [
        ("what", "<u4"), ("revision", "<i4"), ("version", "<i4"), ("valid_from", "<f8"), ("recorded_at", "<f8"),
        ("birth", "<u8"), ("id_hash", "<u8"), ("to_doc", "<u4"), ("doc_length", "<u4"), ("to_vectors", "<u4"),
        ("doc_crc", "<u4"), ("vectors_crc", "<u4"), ("crc", "<u4"),
    ]
)  # fmt: skip
"""What a row says: ``flags | vectors << 8``, revision, version, the two times, birth, hash of the id, distance from the
row to its document, the document's length, distance back to the vectors, and checksums of document, vectors and row."""

ROW = ROW_FIELDS.itemsize
"""Bytes of a row."""

ROOM = 1 << 14
"""The file grows in multiples of this, by zeros, so that most commits change no size: an fsync then takes a third less
time."""

_ZEROS = bytes(ROOM)

COMMIT, SPACE = 1, 2
"""Types of block."""

_FILE = struct.Struct("<8sII16sQQd")
_BLOCK = struct.Struct("<4sB3xQQQQIIIIIIdII8xII")
HEAD, FOOT = b"\xabBLK", b"\xbaBLK"
_CRC = struct.Struct("<I")


def aligned(size: int) -> int:
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
        length: bytes of the block, with header and footer. It stands last, and is never zero, so that neither part
            of a header that the edge of a sector cuts is all zeros; `zero_sectors` depends on that.
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


def compact_json(value: Any) -> str:
    """`value` as the shortest JSON.

    Raises:
        InputError: JSON can't hold it.
    """
    try:
        return "".join(_ENCODE(value, 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"metadata: expected what JSON can hold; found a value it can't: {error}") from None


def _encoder() -> Callable[[Any, int], Iterable[str]]:
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    make: Callable[..., Callable[[Any, int], Iterable[str]]] | None = getattr(json_encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: encoder.iterencode(value)
    # What `JSONEncoder.encode` makes anew for each value, which takes two thirds of its time.
    return make(None, encoder.default, json_encoder.encode_basestring, None, ":", ",", False, False, False)


_ENCODE = _encoder()


def vector_size(dim: int, dtype: VectorDtype) -> int:
    """Bytes of a vector."""
    return dim * np.dtype(dtype).itemsize


def decode_label(data: bytes, crc: int) -> tuple[Any, ...] | None:
    """The label in `data`, or None if it is damaged."""
    return _parsed(data) if zlib.crc32(data) == crc else None


@functools.lru_cache
def _parsed(label: bytes) -> tuple[Any, ...]:
    return tuple(json.loads(label))


def is_room(data: bytes) -> bool:
    """True if `data` holds zeros only, and not more than there is ever made room for."""
    return len(data) <= ROOM and data == _ZEROS[: len(data)]


def zero_sectors(block: bytes | bytearray, offset: int) -> int:
    """How many sectors of the file, as far as they belong to the `block` at `offset`, are all zeros."""
    first = -offset % SECTOR
    # Nearly every sector begins with something, so it is enough to look at those that don't.
    starts = block[first::SECTOR]
    count = int(first > 0 and not any(block[:first]))
    number = starts.find(0)
    while number >= 0:
        start = first + number * SECTOR
        count += not any(block[start : start + SECTOR])
        number = starts.find(0, number + 1)
    return count


def block_label(header: BlockHeader, data: bytes) -> tuple[Any, ...] | None:
    """The label of a block, from either copy. `data` begins at the rows and ends behind the second label."""
    length, base = header.label_length, header.rows_offset
    for offset in (header.label_offset, header.label_copy_offset):
        label = decode_label(data[offset - base : offset - base + length], header.label_crc)
        if label is not None:
            return label
    return None
