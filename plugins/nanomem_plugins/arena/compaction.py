"""Compaction beside writers: what is alive is copied while others write, and only the switch needs their lock.

1. Under the lock: note what is alive, and where the file ends.
2. Without it: copy that to a new file; then, again and again, the blocks that were appended meanwhile, each as one
   block, until there are few; force all to disk; prepare the index of the new file.
3. Under the lock: copy the last few blocks, and rename the new file over the old one.

A record that is deleted during the second step is a dead row of the new file. Whoever writes the file anew meanwhile
(`erase` does, without waiting) wins: the copy is thrown away and begun again. A crash leaves the old file or the new
one, and temporary files, which the next compaction removes.
"""

from __future__ import annotations

import contextlib
import os

from nanomem_core.fileio import atomic
from nanomem_core.records import Scope

from .engine import Arena
from .format import BLOCK
from .log import VaultFile
from .rewrite import Copy, alive, alive_entries, batches, deleted_ids, next_header
from .table import Table

__all__ = ["compact"]

_ATTEMPTS = 3
"""After so many copies that somebody else's rewrite made useless, the next one is made under the lock."""

_ROUNDS = 20
_FEW = 1 << 16
"""Bytes that may be left to copy under the lock."""

_MANY_BLOCKS = 256
_OVERHEAD = 8
"""A file without dead rows is written anew if it has this many blocks, and headers are more than one byte in this many:
so records of 500 bytes or less that were written one by one are joined."""


class _OvertakenError(Exception):
    """Somebody else wrote the file anew."""


def compact(arena: Arena) -> int:
    """See `Storage.compact`."""
    if not arena.present():
        return 0
    with arena.compacting:
        for _ in range(_ATTEMPTS):
            with arena.writing():
                if not _prepared(arena):
                    return 0
            with contextlib.suppress(_OvertakenError):
                return _compact_beside(arena)
        with arena.writing():
            if not _prepared(arena):
                return 0
            arena.remove_derived()
            return arena.rewrite()


def _prepared(arena: Arena) -> bool:
    """Clear the quarantine and leftovers, under the lock; True if the file should be written anew."""
    table = arena.read(Table.verified, None)
    if table is None:
        return False
    if table.dead:
        table.require_sound()
    if os.path.exists(arena.quarantine_path):
        deleted = set(deleted_ids(table.file, table.end))
        arena.keep_set_aside(lambda owner, id: _still_wanted(table, deleted, owner, id))
    arena.remove_leftovers()
    return table.dead > 0 or _is_scattered(table)


def _still_wanted(table: Table, deleted: set[tuple[Scope, str]], scope: Scope | None, id: str | None) -> bool:
    """False if bytes that were set aside are, or could be, of a record that was deleted or written again."""
    if scope is None or id is None:
        return table.dead == 0
    return (scope, id) not in deleted and table.find(scope, id) is None


def _is_scattered(table: Table) -> bool:
    blocks = table.next_seq - table.file.header.first_seq
    return (
        blocks >= _MANY_BLOCKS and not table.damaged and not table.gaps and 2 * BLOCK * blocks * _OVERHEAD > table.end
    )


def _compact_beside(arena: Arena) -> int:
    index = f"{arena.index_path}{atomic.TEMPORARY}{os.getpid():x}"
    with contextlib.ExitStack() as locked, arena.disk("it can't be written anew, and is as it was"):
        try:
            with atomic.replacing(arena.path) as descriptor:
                copying = _Copying(arena, descriptor)
                copying.copy()
                copying.prepare_index(index)
                old = locked.enter_context(arena.writing())
                # Erasing removes the temporary file, whether or not it had to write the file anew.
                if old is None or old.file.identity != copying.source.identity or not os.fstat(descriptor).st_nlink:
                    raise _OvertakenError
                old.require_sound()
                copying.follow()
                regained = old.file.size() - copying.end
                arena.remove_derived()
                if os.name == "nt":
                    # Windows replaces no file that is open.
                    old.file.close()
            with contextlib.suppress(OSError):
                os.replace(index, arena.index_path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(index)
            arena.forget()
    return max(0, regained)


class _Copying:
    """A new file on its way to hold what the old one holds.

    Attributes:
        source: the old file.
    """

    def __init__(self, arena: Arena, descriptor: int) -> None:
        self._arena = arena
        self._descriptor = descriptor
        with arena.writing():
            table = arena.read(Table.verified, None)
            if table is None:
                raise _OvertakenError
            table.require_sound()
            self.source = table.file
            self._alive = alive(table)
            self._copied = table.end
            self._copy = Copy(descriptor, next_header(table), table.space)

    @property
    def end(self) -> int:
        """Bytes in the new file."""
        return self._copy.end

    def copy(self) -> None:
        """Copy what was alive at the begin, and nearly all that was written since."""
        size = self._copy.vector_size
        for label, head, offsets in self._alive:
            for entries in batches(alive_entries(self.source, offsets, size)):
                self._copy.commit(label, head, entries)
        self._catch_up()
        atomic.sync(self._descriptor)

    def prepare_index(self, path: str) -> None:
        """Write an index of the new file to `path`, so that nobody has to read all of the file after the switch."""
        file = VaultFile.of(self._arena.path, os.dup(self._descriptor))
        assert file is not None
        try:
            self._arena.save_index_of(Table(file, None, self._arena.report), path)
        finally:
            file.close()
        self._catch_up()

    def _catch_up(self) -> None:
        for _ in range(_ROUNDS):
            if self.follow() <= _FEW:
                break

    def follow(self) -> int:
        """Copy the blocks that were appended to the old file since; returns how many bytes they are."""
        before = self._copied
        self._copied = self._copy.append_from(self.source, before)
        return self._copied - before
