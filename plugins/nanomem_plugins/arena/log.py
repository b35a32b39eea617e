"""The arena file as an append-only log: reading, appending, finding blocks, and one fsync for many commits."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import ClosedError, CorruptionError, FormatError, StorageError
from nanomem_core.fileio import atomic

from .entries import Row
from .format import ALIGN, BLOCK, FOOT, HEAD, HEADER, MAGIC, ROW, BlockHeader, FileHeader, zero_sectors

__all__ = ["Gap", "VaultFile", "walk"]

_STEP = 1 << 20


class Gap(NamedTuple):
    """Bytes between two blocks that belong to no block that can be read."""

    offset: int
    end: int


class VaultFile:
    """An open arena file.

    Attributes:
        identity: device and inode, which tell whether the path still leads to this file.
        writable: False if the file could be opened for reading only.
    """

    @classmethod
    def open(cls, path: str, *, writable: bool) -> VaultFile | None:
        """Open `path`; None where there is no file yet, or one whose creation didn't get as far as its header.

        Raises:
            FormatError: the file is no arena file.
            StorageError: the file can't be opened.
        """
        flags = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            try:
                descriptor = os.open(path, flags | (os.O_RDWR if writable else os.O_RDONLY))
            except OSError as error:
                if not writable or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                descriptor, writable = os.open(path, flags | os.O_RDONLY), False
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{path}: can't be opened: {error.strerror}") from error
        file = cls(path, descriptor, writable)
        try:
            start = file.read(0, HEADER)
            if len(start) == HEADER:
                file.header, file._start = FileHeader.decode(start, path), start
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        if not start.startswith(MAGIC[: len(start)]):
            raise FormatError(f"{path}: expected an arena file, or none; found {len(start)} bytes of something else")
        return None

    header: FileHeader
    _start: bytes

    def __init__(self, path: str, descriptor: int, writable: bool) -> None:
        self.path = path
        self.writable = writable
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        status = os.fstat(descriptor)
        self.identity = (status.st_dev, status.st_ino)
        self._map: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._seek = threading.Lock()
        self._turn = threading.Condition()
        self._syncing = False
        self._written = 0
        self._failure: OSError | None = None
        self.synced = 0
        """Bytes that `sync` has seen to be on disk. What block headers claim doesn't count: writers with durability
        ``os`` claim too much."""

    def close(self) -> None:
        """Close the descriptor; vectors that were handed out stay valid."""
        self._close()
        self._map = np.empty(0, np.uint8)

    def size(self) -> int:
        """Bytes in the file, whatever they are."""
        return os.fstat(self._open()).st_size

    def changed(self) -> bool:
        """True if somebody wrote other content into the file, rather than replacing it."""
        return self.read(0, HEADER) != self._start

    def read(self, offset: int, length: int) -> bytes:
        """The bytes at `offset`, fewer at the end of the file.

        Raises:
            ClosedError: the file was closed.
            StorageError: the file can't be read.
        """
        descriptor = self._open()
        try:
            if hasattr(os, "pread"):
                return os.pread(descriptor, length, offset)
            with self._seek:
                os.lseek(descriptor, offset, os.SEEK_SET)
                return os.read(descriptor, length)
        except OSError as error:
            raise StorageError(f"{self.path}: {length} bytes at byte {offset} can't be read: {error}") from error

    def row(self, offset: int) -> Row:
        """The row at `offset`.

        Raises:
            CorruptionError: it is damaged.
        """
        row = Row.decode(self.read(offset, ROW), offset)
        if row is None:
            raise CorruptionError(self.path, offset, "the row of a record is damaged")
        return row

    def doc(self, row: Row) -> bytes:
        """The document of `row`.

        Raises:
            CorruptionError: it is damaged.
        """
        doc = self.read(row.doc_offset, row.doc_length)
        if len(doc) != row.doc_length or zlib.crc32(doc) != row.doc_crc:
            raise CorruptionError(self.path, row.doc_offset, "the text of a record is damaged")
        return doc

    def mapped(self, end: int) -> npt.NDArray[np.uint8]:
        """The first `end` bytes or more, mapped."""
        if len(self._map) < end:
            # On Windows nobody could replace or cut a file that is mapped, so there it is read into memory.
            if os.name == "nt":
                self._map = np.frombuffer(self.read(0, end), np.uint8)
            else:
                self._map = np.frombuffer(mmap.mmap(self._open(), end, access=mmap.ACCESS_READ), np.uint8)
        return self._map

    def append(self, block: bytes, offset: int) -> None:
        """Write `block` at `offset`, which is the end of the file. Call `sync` to have it on disk.

        Raises:
            StorageError: it can't be written, and nothing of it is left in the file.
        """
        try:
            with self._seek:
                atomic.write_all(self._open(), block, offset)
        except OSError as error:
            # If this fails too, a torn tail is left, which the next writer cuts.
            with contextlib.suppress(OSError):
                os.ftruncate(self._open(), offset)
            raise StorageError(f"{self.path}: a commit could not be written: {error}. Nothing was changed.") from error
        with self._turn:
            self._written = offset + len(block)

    def cut(self, size: int) -> None:
        """Drop what lies beyond `size`, and wait until that is on disk.

        New bytes would else be written over old ones that a loss of power could bring back in part.
        """
        try:
            os.ftruncate(self._open(), size)
            atomic.sync(self._open())
        except OSError as error:
            raise StorageError(f"{self.path}: the torn tail at byte {size} can't be cut: {error}") from error

    def sync(self, end: int) -> None:
        """Wait until the first `end` bytes are on disk. Threads that wait at the same time share one fsync.

        Raises:
            StorageError: the disk failed; what it holds is unknown.
        """
        with self._turn:
            while True:
                if self.synced >= end:
                    return
                if self._failure is not None:
                    raise self._failed(self._failure) from self._failure
                if not self._syncing:
                    break
                self._turn.wait()
            self._syncing = True
            target = self._written
        done = False
        try:
            atomic.sync(self._open())
            done = True
        except OSError as error:
            self._failure = error
            raise self._failed(error) from error
        finally:
            with self._turn:
                self._syncing = False
                if done:
                    self.synced = max(self.synced, target)
                self._turn.notify_all()

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self.path}: the disk did not confirm a commit: {error}. Whether it is stored is unknown; "
            f"reopen the store and look before you write again."
        )

    def _open(self) -> int:
        if not self._close.alive:
            raise ClosedError(f"{self.path}: the store was closed; open it again")
        return self._descriptor


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
    for found in _walk(file, start, size):
        waiting.append(found)
        if isinstance(found, BlockHeader):
            synced = max(synced, found.synced)
            while waiting and waiting[0].end <= synced:
                yield waiting.popleft()
    for found in waiting:
        if isinstance(found, Gap):
            return
        if found.end > synced and zero_sectors(file.read(found.offset, found.length), found.offset) > found.zeros:
            return
        yield found


def _walk(file: VaultFile, start: int, size: int) -> Iterator[BlockHeader | Gap]:
    while start + BLOCK <= size:
        header = BlockHeader.decode(file.read(start, BLOCK))
        if header is not None and header.offset == start:
            if header.end > size:
                return
        else:
            header = _next_block(file, start, size)
            if header is None:
                return
            if header.offset > start:
                yield Gap(start, header.offset)
        yield header
        start = header.end


def _next_block(file: VaultFile, start: int, size: int) -> BlockHeader | None:
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
