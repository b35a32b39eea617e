"""Finding the blocks of an arena file, past what is damaged, and telling a torn tail from damage."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from .format import ALIGN, BLOCK, FOOT, HEAD, ROOM, BlockHeader, is_room, zero_sectors
from .log import VaultFile

__all__ = ["Gap", "walk"]

_STEP = 1 << 20
"""Bytes that are looked at together for the next block."""


class Gap(NamedTuple):
    """Bytes between two blocks that belong to no block that can be read."""

    offset: int
    end: int


class _Ahead:
    """A file that is read from `start` on: what comes first in one call of the system rather than one a piece.

    A block whose header is found where it is expected was written whole before, so all of it is at hand. Other blocks
    may be written just now: `refresh` before they are looked for.
    """

    def __init__(self, file: VaultFile, start: int) -> None:
        self._file = file
        self._start = start
        self._data = file.read(start, ROOM)

    def refresh(self) -> None:
        """Forget what was read."""
        self._data = b""

    def read(self, offset: int, length: int) -> bytes:
        """See `VaultFile.read`."""
        begin = offset - self._start
        if begin + length <= len(self._data):
            return self._data[begin : begin + length]
        return self._file.read(offset, length)


def walk(file: VaultFile, start: int, size: int) -> Iterator[BlockHeader | Gap]:
    """The blocks from `start` on that are in the file's first `size` bytes for good, and the gaps between them.

    What follows the last of them is a torn tail: a commit that was never acknowledged. How it is told from damage:

    * A block counts if its header or its footer is sound and the file is long enough to hold it. Where both are
      unsound the next block is looked for; if there is none, the rest is torn, else it is a gap.
    * Appends reach the disk in any order until they are synced, and sectors that were not written read as zeros after
      a loss of power. A block that was not known to be on disk when the last block was written, and that has more
      zero sectors than it was written with, is therefore torn, and so is all that follows it. A block without such
      holes was written whole, so whatever is wrong with it is damage, and its sound rows count.
    """
    synced = 0
    waiting: deque[BlockHeader | Gap] = deque()
    ahead = _Ahead(file, start)
    for found in _walk(ahead, start, size):
        waiting.append(found)
        if isinstance(found, BlockHeader):
            synced = max(synced, found.synced)
            while waiting and waiting[0].end <= synced:
                yield waiting.popleft()
    for found in waiting:
        if isinstance(found, Gap):
            return
        if found.end > synced and zero_sectors(ahead.read(found.offset, found.length), found.offset) > found.zeros:
            return
        yield found


def _walk(file: _Ahead, start: int, size: int) -> Iterator[BlockHeader | Gap]:
    while start + BLOCK <= size:
        header = BlockHeader.decode(file.read(start, BLOCK))
        if header is not None and header.offset == start:
            if header.end > size:
                return
        else:
            if size - start <= ROOM and is_room(file.read(start, size - start)):
                return
            file.refresh()
            header = _next_block(file, start, size)
            if header is None:
                return
            if header.offset > start:
                yield Gap(start, header.offset)
        yield header
        start = header.end


def _next_block(file: _Ahead, start: int, size: int) -> BlockHeader | None:
    """The first whole block from `start` on, found by its header or its footer."""
    position = start
    while position < size:
        data = file.read(position, min(_STEP + BLOCK, size - position))
        for offset in _candidates(data[: _STEP + len(HEAD)]):
            place = position + offset
            copy = data[offset : offset + BLOCK]
            header = BlockHeader.decode(copy)
            if header is not None and header.offset == place and header.end <= size:
                return header
            header = BlockHeader.decode(copy, footer=True)
            if header is not None and header.offset >= start and header.end == place + BLOCK:
                return header
        position += _STEP
    return None


def _candidates(data: bytes) -> list[int]:
    """Where in `data`, which begins at a multiple of `ALIGN`, a header or a footer may begin."""
    found = []
    for magic in (HEAD, FOOT):
        offset = data.find(magic)
        while offset >= 0:
            if offset % ALIGN == 0:
                found.append(offset)
            offset = data.find(magic, offset + 1)
    return sorted(found)
