"""The arena file as an append-only log: reading, appending, and one fsync for many commits."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import weakref
import zlib

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import ClosedError, CorruptionError, FormatError, StorageError
from nanomem_core.fileio import atomic

from .entries import Row
from .format import BLOCK, HEADER, MAGIC, ROOM, ROW, FileHeader, is_room

__all__ = ["VaultFile"]


class VaultFile:
    """An open arena file.

    Attributes:
        identity: device and inode, which tell whether the path still leads to this file.
        writable: False if the file could be opened for reading only.
        seen_size: bytes in the file, whatever they are, when it was last looked at. Under the lock of all writers it is
            the size, once `torn` was asked.
        appended: True after an `append`.
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
        return cls.of(path, descriptor, writable=writable)

    @classmethod
    def of(cls, path: str, descriptor: int, *, writable: bool = False) -> VaultFile | None:
        """As `open`, for a file that is open; `descriptor` belongs to this object from now on."""
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
        self.seen_size = status.st_size
        self._map: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._seek = threading.Lock()
        self._turn = threading.Condition()
        self._syncing = False
        self._written = 0
        self._failure: OSError | None = None
        self.appended = False
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
        row = Row.decode(self._stored(offset, ROW), offset)
        if row is None:
            raise CorruptionError(self.path, offset, "the row of a record is damaged")
        return row

    def doc(self, row: Row) -> bytes:
        """The document of `row`.

        Raises:
            CorruptionError: it is damaged.
        """
        doc = self._stored(row.doc_offset, row.doc_length)
        if len(doc) != row.doc_length or zlib.crc32(doc) != row.doc_crc:
            raise CorruptionError(self.path, row.doc_offset, "the text of a record is damaged")
        return doc

    def vectors(self, row: Row, size: int) -> bytes:
        """The vectors of `row` as they are stored; `size` is that of one.

        Raises:
            CorruptionError: they are damaged.
        """
        data = self.read(row.vectors_offset, row.vectors * size) if row.vectors else b""
        if zlib.crc32(data) != row.vectors_crc:
            raise CorruptionError(self.path, row.vectors_offset, "the vectors of a record are damaged")
        return data

    def _stored(self, offset: int, length: int) -> bytes:
        """What `read` gives, for bytes that nobody cuts off; from memory if they are mapped."""
        data, end = self._map, offset + length
        return data[offset:end].tobytes() if end <= len(data) else self.read(offset, length)

    def mapped(self, end: int) -> npt.NDArray[np.uint8]:
        """The first `end` bytes or more, mapped."""
        if len(self._map) < end:
            # On Windows nobody could replace or cut a file that is mapped, so there it is read into memory.
            if os.name == "nt":
                self._map = np.frombuffer(self.read(0, end), np.uint8)
            else:
                self._map = np.frombuffer(mmap.mmap(self._open(), end, access=mmap.ACCESS_READ), np.uint8)
        return self._map

    def pending(self, end: int) -> bool:
        """True if a block was written at `end`."""
        return self.read(end, BLOCK).strip(b"\0") != b""

    def blank(self, end: int, size: int) -> bool:
        """True if the file, of `size` bytes, has the size it had when it was last looked at, and ends with a few zeros
        from `end` on."""
        room = size - end
        return size == self.seen_size and 0 <= room <= ROOM and is_room(self.read(end, room))

    def torn(self, end: int) -> int:
        """Bytes behind `end`, the last of which is not zero: what a writer left that was killed. Zeros may follow."""
        last = position = end
        while data := self.read(position, ROOM):
            if not is_room(data):
                last = position + len(data.rstrip(b"\0"))
            position += len(data)
            if len(data) < ROOM:
                break
        self.seen_size = position
        return last - end

    def append(self, block: bytes | bytearray, offset: int) -> None:
        """Write `block` at `offset`, behind which there are only zeros. Call `sync` to have it on disk.

        Raises:
            StorageError: it can't be written, and nothing of it is left in the file.
        """
        descriptor, end = self._open(), offset + len(block)
        data = memoryview(block)
        try:
            with self._seek:
                # The header last: who sees it sees the whole block.
                atomic.write_all(descriptor, data[BLOCK:], offset + BLOCK)
                if end > self.seen_size:
                    self._make_room(descriptor, end)
                atomic.write_all(descriptor, data[:BLOCK], offset)
        except OSError as error:
            # If this fails too, a torn tail is left, which the next writer cuts.
            with contextlib.suppress(StorageError):
                self.cut(offset)
            raise StorageError(f"{self.path}: a commit could not be written: {error}. Nothing was changed.") from error
        self.appended = True
        with self._turn:
            self._written = end

    def trim(self, end: int) -> None:
        """Drop the zeros behind `end`, under the lock of all writers, if nothing else is there."""
        if not self.torn(end) and self.seen_size > end:
            with contextlib.suppress(OSError):
                os.ftruncate(self._open(), end)
                self.seen_size = end

    def _make_room(self, descriptor: int, end: int) -> None:
        self.seen_size = end
        # There is no need of it, so a disk that is full is no reason to fail.
        with contextlib.suppress(OSError):
            atomic.write_all(descriptor, bytes(-end % ROOM), end)
            self.seen_size += -end % ROOM

    def cut(self, size: int) -> None:
        """Drop what lies beyond `size`, and wait until that is on disk.

        New bytes would else be written over old ones that a loss of power could bring back in part.
        """
        try:
            os.ftruncate(self._open(), size)
            self.seen_size = size
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
            atomic.sync_data(self._open())
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
