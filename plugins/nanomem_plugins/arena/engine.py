"""An arena file at work: opened, followed while others write, appended to, written anew."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, TypeVar

from nanomem_core.errors import ClosedError, ReadOnlyError, StorageError
from nanomem_core.fileio import atomic
from nanomem_core.fileio.locks import Lock
from nanomem_core.interfaces import VectorSpace
from nanomem_core.records import Scope

from .check import Flaw, keep_set_aside, set_aside
from .entries import Entry, encode_block
from .format import FileHeader, VectorDtype
from .index import IndexDamagedError
from .log import VaultFile
from .rewrite import NewVectors, copy_alive
from .table import Table

__all__ = ["Arena", "Durability", "Written"]

_T = TypeVar("_T")

Durability = Literal["fsync", "os"]

Written = tuple[VaultFile, int]
"""A file, and how much of it a commit needs to be on disk."""

_PATIENCE = 600.0
"""Seconds to wait for a compaction by somebody else."""

_TAIL = 256
"""Rows that an index may always leave to be read from the file."""

_SHARE_AT_REST = 256
"""One row in this many may be left when a handle is closed."""

_SHARE_AT_WORK = 2
"""The same while a handle writes: an index is written in time proportional to all rows."""


class Arena:
    """One arena file, and the files beside it. Safe to use from several threads and processes.

    Readers take no lock: each `read` looks with one `os.stat` whether the file was replaced, and whether there is a
    block behind the last one. Writers take `lock`, then `mutex`; the mutex guards what this object has in memory.

    Args:
        indexed: keep an index beside the file.
    """

    def __init__(
        self,
        path: str,
        *,
        vector_dtype: VectorDtype,
        durability: Durability,
        lock_timeout: float = 30.0,
        read_only: bool = False,
        indexed: bool = True,
    ) -> None:
        self.path = path
        self.vector_dtype = vector_dtype
        self.durability = durability
        self.read_only = read_only
        self.mutex = threading.RLock()
        self.lock = Lock(path + ".lock", lock_timeout)
        self.compacting = Lock(path + ".compact.lock", _PATIENCE)
        self._table: Table | None = None
        self._indexed = indexed
        self._closed = False
        self._broken: str | None = None
        self._warned: set[tuple[int, str]] = set()
        self.read(lambda table: None, None)

    # Reading.

    def read(self, read: Callable[[Table], _T], empty: _T, *, fresh: bool = True) -> _T:
        """What `read` finds in the table of the file as it is now, or `empty` where there is no file.

        Under the lock of all writers nobody else can have changed the file; there, `fresh` False saves looking.
        """
        with self.mutex:
            try:
                table = self._refresh() if fresh else self._table
                return empty if table is None else read(table)
            except IndexDamagedError:
                table = self._reopen(index=False)
                return empty if table is None else read(table)

    def _refresh(self) -> Table | None:
        self._check_open()
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            self._table = None
            return None
        except OSError as error:
            raise StorageError(f"{self.path}: can't be read: {error.strerror}") from error
        table = self._table
        if table is None or table.file.identity != (status.st_dev, status.st_ino) or status.st_size < table.end:
            return self._reopen()
        grown = status.st_size != table.file.seen_size
        if grown or table.file.pending(table.end):
            table.file.seen_size = status.st_size
            if table.file.changed():
                return self._reopen()
            table.absorb()
        return table

    def _reopen(self, *, index: bool = True) -> Table | None:
        # The old file stays open for as long as columns that were handed out need it.
        self._table = None
        file = VaultFile.open(self.path, writable=not self.read_only)
        if file is not None:
            try:
                self._table = Table(file, self.index_path if index and self._indexed else None, self.report)
            except IndexDamagedError:
                self._table = Table(file, None, self.report)
        return self._table

    @property
    def index_path(self) -> str:
        return self.path + ".index"

    @property
    def reembed_path(self) -> str:
        return self.path + ".reembed"

    @property
    def derived_path(self) -> str:
        return self.path + ".derived"

    @property
    def quarantine_path(self) -> str:
        return self.path + ".quarantine"

    def report(self, offset: int, reason: str) -> None:
        """Warn of damage, once for each place."""
        if (offset, reason) not in self._warned:
            self._warned.add((offset, reason))
            self._warn(offset, f"{reason}. Run `nanomem doctor {self.path}` to see all damage.")

    def _warn(self, offset: int, text: str) -> None:
        warnings.warn(f"{self.path} at byte {offset}: {text}", RuntimeWarning, stacklevel=2)

    def known_space(self) -> VectorSpace | None:
        """Whose vectors the file held when it was last looked at."""
        table = self._table
        return None if table is None else table.space

    # Writing.

    @contextlib.contextmanager
    def writing(self, *, cut: bool = True) -> Iterator[Table | None]:
        """Hold the lock of all writers. The table is that of the file as it is, None where there is none yet.

        Args:
            cut: cut the torn tail that a writer may have left.
        """
        self._check_writable()
        if self._table is None:
            with self.disk("its directory can't be created"):
                os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with self.lock:
            self._check_writable()
            table = self._untouched()
            if table is None:
                table = self.read(self._own, None)
                if table is not None and cut:
                    self.cut_tail(table)
            yield table

    def _untouched(self) -> Table | None:
        """The table, if the file is as this object left it: nobody wrote, and no writer was killed. Under the lock.

        One look at the file instead of the several that find out what somebody else did.
        """
        with self.mutex, contextlib.suppress(OSError):
            table = self._table
            if table is not None:
                status = os.stat(self.path)
                same = table.file.identity == (status.st_dev, status.st_ino)
                if same and table.file.writable and table.file.blank(table.end, status.st_size):
                    return table
        return None

    def present(self) -> bool:
        """True if there is a file; raises as `writing` does if it may not be written."""
        self._check_writable()
        return os.path.exists(self.path)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self.path}: the store was closed; open it again")

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnlyError(f"{self.path}: the store was opened with read_only; open it without to write")
        if self._broken is not None:
            raise StorageError(self._broken)

    def _own(self, table: Table) -> Table:
        if not table.file.writable:
            raise ReadOnlyError(f"{self.path}: the file may only be read; change its permissions to write")
        return table

    def cut_tail(self, table: Table) -> None:
        """Cut, under the lock of all writers, what a killed writer left."""
        if not table.file.torn(table.end):
            return
        # A writer that was killed before it wrote the header leaves a block that is whole nevertheless.
        with self.mutex:
            table.absorb()
        torn = table.file.torn(table.end)
        if torn:
            table.file.cut(table.end)
            self._warn(table.end, f"cut a torn tail, {torn} bytes of a commit that was never acknowledged")

    def append(self, type: int, label: Sequence[str | int], entries: Sequence[Entry] = (), head: int = 0) -> Written:
        """Write one block, under the lock of all writers; `sync` it when the lock is free again.

        Raises:
            StorageError: it can't be written; nothing was changed.
        """
        with self.mutex:
            table = self._table if self._table is not None else self._create()
            header, block = encode_block(
                type,
                seq=table.next_seq,
                offset=table.end,
                # Without fsync nothing is known to be on disk; this claim then keeps all but the last block.
                synced=max(table.synced, table.file.synced) if self.durability == "fsync" else table.end,
                time=time.time(),
                label=label,
                head=head,
                dim=0 if table.space is None else table.space.dim,
                entries=entries,
            )
            table.file.append(block, table.end)
            written = (table.file, table.end + len(block))
            self.read(lambda table: table.appended(header, label, block), None, fresh=False)
            if table.uncovered > _TAIL:
                self.read(lambda table: self._save_index(table, _SHARE_AT_WORK), None, fresh=False)
        return written

    def _create(self) -> Table:
        header = FileHeader(self.vector_dtype, uuid.uuid4().bytes, 1, 1, time.time())
        with self.disk("it can't be created"):
            atomic.write(self.path, header.encode())
        table = self._reopen(index=False)
        if table is None:
            raise StorageError(f"{self.path}: somebody removed the file while it was created; try again")
        return table

    def sync(self, written: Written | None) -> None:
        """Wait for the disk. Call it when the lock is free, so that others can write and join in the same fsync.

        Raises:
            StorageError: the disk failed. Nothing more can be written through this object.
        """
        if written is None or self.durability == "os":
            return
        try:
            written[0].sync(written[1])
        except StorageError as error:
            self._broken = str(error)
            raise

    def _save_index(self, table: Table, share: int) -> None:
        if self._indexed and table.uncovered > max(_TAIL, len(table) // share):
            try:
                table.save_index(self.index_path)
            except OSError:
                # It can be done without. On Windows an index that another process has mapped can't be replaced.
                self._indexed = False

    def rewrite(
        self,
        *,
        skip: Scope | None = None,
        leave_out_damaged: bool = False,
        space: VectorSpace | None = None,
        new_vectors: NewVectors | None = None,
    ) -> int:
        """Write the file anew, under the lock of all writers; see `copy_alive`. Returns the bytes regained."""
        table = self.read(Table.verified, None)
        if table is None:
            return 0
        before = table.file.size()
        try:
            with self.disk("it can't be written anew, and is as it was"):
                # First what is derived, so that a crash leaves no old index beside the new file.
                atomic.remove(self.index_path)
                copy_alive(table, skip=skip, leave_out_damaged=leave_out_damaged, space=space, new_vectors=new_vectors)
        finally:
            self.forget()
        self.read(lambda table: self._save_index(table, _SHARE_AT_REST), None)
        return before - os.stat(self.path).st_size

    def forget(self) -> None:
        """Drop what is known of the file: it was replaced."""
        with self.mutex:
            self._table = None

    def save_index_of(self, table: Table, path: str) -> None:
        """Write the index of another file to `path`, if it would have one when it is at rest."""
        if self._indexed and len(table) > _TAIL:
            table.save_index(path)

    # The files beside it; all of this under the lock of all writers.

    def remove_leftovers(self) -> None:
        """Delete what killed processes left of files that they were about to replace."""
        with self.disk("temporary files beside it can't be removed"):
            for path in (self.path, self.index_path, self.quarantine_path, self.reembed_path):
                atomic.remove_leftovers(path)

    def remove_derived(self) -> None:
        """Delete index, new vectors, and what core derived: whatever may hold what is about to be removed from the
        file."""
        with self.disk("files beside it can't be removed"):
            atomic.remove(self.index_path)
            atomic.remove(self.reembed_path)
            atomic.remove_files(self.derived_path)
            # Readers keep what they derive without a lock; where one just did, the folder stays.
            with contextlib.suppress(OSError):
                os.rmdir(self.derived_path)

    def set_aside(self, file: VaultFile, flaws: Sequence[Flaw]) -> None:
        """See `check.set_aside`."""
        with self.disk("damaged bytes can't be set aside, so nothing was changed"):
            set_aside(self.quarantine_path, file, flaws)

    def keep_set_aside(self, keep: Callable[[Scope | None, str | None], bool]) -> None:
        """See `check.keep_set_aside`."""
        with self.disk("what was set aside can't be removed, so nothing was changed"):
            keep_set_aside(self.quarantine_path, keep)

    def delete(self) -> None:
        """Delete the file itself."""
        with self.disk("it can't be removed"):
            atomic.remove(self.path)
            atomic.remove_leftovers(self.path)

    def disk(self, what: str) -> AbstractContextManager[None]:
        """Turn errors of the system into StorageError, which says `what` of the file."""
        return atomic.disk_errors(f"{self.path}: {what}")

    def close(self) -> None:
        """Release the file, without the room behind its end, and write the index if opening would otherwise have much
        to read."""
        with self.mutex:
            table = self._table
            if self._closed:
                return
        changed = table is not None and (table.file.appended or table.uncovered > _TAIL)
        if changed and self._indexed and self._broken is None:
            with contextlib.suppress(StorageError):
                self.lock.acquire(0.0)
                try:
                    self.read(self._tidy, None)
                finally:
                    self.lock.release()
        with self.mutex:
            self._closed = True
            if self._table is not None:
                self._table.file.close()

    def _tidy(self, table: Table) -> None:
        if table.file.writable:
            table.file.trim(table.end)
            self._save_index(table, _SHARE_AT_REST)
