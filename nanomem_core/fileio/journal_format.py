"""The bytes of a journal: its header and its entries; see ``docs/reference/formats/journal.md``."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..errors import CorruptionError, FormatError
from .boots import UNKNOWN
from .writes import Append, Entry, Remove, Replace, Write

__all__ = ["ENTRY", "MARK", "Header", "decode_entries", "encode_entry"]

_HEADER = struct.Struct("<8s16s16sQ16sQ16sI")
_MAGIC = b"NMJRNL1\n"

ENTRY = struct.Struct("<4sIQQI4x")
"""What an entry begins with: magic, mark, length of the body, head, checksum."""

MARK = struct.Struct("<I")
"""1 once the entry has reached its files; at byte 4 of the entry, and not covered by the checksum."""

_ENTRY_MAGIC = b"NMJE"
_LENGTH = struct.Struct("<I")
_PLACE = struct.Struct("<QQQ")


@dataclass(frozen=True, slots=True)
class Header:
    """What a journal file begins with.

    Attributes:
        origin: the same for all generations, until the journal is deleted.
        base: the head from which this generation counts on.
        previous, previous_end: the generation before this one, and how long it was.
        boot: what `boot_id` gave when this generation began.
    """

    size: ClassVar[int] = _HEADER.size

    origin: bytes
    generation: bytes
    base: int
    previous: bytes = bytes(16)
    previous_end: int = 0
    boot: bytes = UNKNOWN

    def encode(self) -> bytes:
        fields = (_MAGIC, self.origin, self.generation, self.base, self.previous, self.previous_end, self.boot)
        return _HEADER.pack(*fields, zlib.crc32(_HEADER.pack(*fields, 0)))

    @classmethod
    def decode(cls, data: bytes, path: str) -> Header:
        """The header that `data` begins with.

        Raises:
            CorruptionError: it is damaged, or none.
            FormatError: it is of another version.
        """
        version = len(_MAGIC) - 2
        if data[:version] == _MAGIC[:version] and data[version : len(_MAGIC)] != _MAGIC[version:]:
            raise FormatError(
                f"{path}: expected a journal of version 1; found {data[version : version + 1]!r}. Update this library"
            )
        if len(data) < cls.size or not data.startswith(_MAGIC):
            raise CorruptionError(path, 0, f"expected the header of a journal; found {data[:8]!r}")
        magic, *fields, crc = _HEADER.unpack_from(data)
        if zlib.crc32(_HEADER.pack(magic, *fields, 0)) != crc:
            raise CorruptionError(path, 0, "the checksum of the journal's header is wrong")
        return cls(*fields)


def encode_entry(entry: Entry, generation: bytes, offset: int) -> bytes:
    """`entry` as it stands at `offset` of the file, not marked."""
    writes: list[list[object]] = []
    parts: list[bytes] = []
    for write, before in zip(entry.writes, entry.before, strict=True):
        match write:
            case Replace(path, data):
                writes.append(["replace", path, len(data), before])
                parts.append(data)
            case Append(path, start, data):
                writes.append(["append", path, len(data), start])
                parts.append(data)
            case Remove(path):
                writes.append(["remove", path, 0, before])
    text = json.dumps({"note": entry.note, "writes": writes}, ensure_ascii=False, separators=(",", ":")).encode()
    body = b"".join((_LENGTH.pack(len(text)), text, *parts))
    return ENTRY.pack(_ENTRY_MAGIC, 0, len(body), entry.head, _checksum(generation, offset, entry.head, body)) + body


def decode_entries(data: bytes, generation: bytes, start: int, path: str) -> Iterator[tuple[int, int, Entry]]:
    """The sound entries in `data`, which stands at `start` of the file, each with its place in `data` and its length.

    A torn tail yields nothing. Damage before a sound entry is passed over: an entry is written behind a sound one only.

    Raises:
        CorruptionError: an entry is sound and yet no entry.
    """
    position = 0
    while position < len(data):
        length = _sound(data, position, generation, start)
        if length is None:
            position = data.find(_ENTRY_MAGIC, position + 1)
            if position < 0:
                return
            continue
        yield position, length, _decode(data, position, length, start + position, path)
        position += length


def _sound(data: bytes, position: int, generation: bytes, start: int) -> int | None:
    """Length of the whole entry at `position`, or None if there is none."""
    if len(data) - position < ENTRY.size:
        return None
    magic, _, length, head, crc = ENTRY.unpack_from(data, position)
    if magic != _ENTRY_MAGIC or position + ENTRY.size + length > len(data):
        return None
    body = memoryview(data)[position + ENTRY.size : position + ENTRY.size + length]
    return ENTRY.size + int(length) if _checksum(generation, start + position, head, body) == crc else None


def _checksum(generation: bytes, offset: int, head: int, body: bytes | memoryview) -> int:
    # With generation and place, so that bytes of an older file, or a copy inside a text, are no entry.
    return zlib.crc32(body, zlib.crc32(_PLACE.pack(offset, len(body), head), zlib.crc32(generation)))


def _decode(data: bytes, position: int, length: int, offset: int, path: str) -> Entry:
    head = ENTRY.unpack_from(data, position)[3]
    place, end = position + ENTRY.size + _LENGTH.size, position + length
    try:
        (size,) = _LENGTH.unpack_from(data, place - _LENGTH.size)
        described = json.loads(data[place : place + size])
        place += size
        writes: list[Write] = []
        befores: list[str | None] = []
        for kind, name, size, extra in described["writes"]:
            content = data[place : place + size]
            place += size
            writes.append(_write(kind, name, content, extra))
            befores.append(None if kind == "append" else extra)
        if place != end:
            raise ValueError(f"its writes end at {place - end:+d} bytes from its end")
        return Entry(head, described["note"], tuple(writes), tuple(befores))
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise CorruptionError(path, offset, f"the checksum is right, but it is no entry: {error}") from error


def _write(kind: str, path: str, data: bytes, offset: int) -> Write:
    match kind:
        case "replace":
            return Replace(path, data)
        case "append":
            return Append(path, offset, data)
        case "remove":
            return Remove(path)
        case _:
            raise ValueError(f"it has a write of an unknown kind, {kind!r}")
