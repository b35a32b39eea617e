"""One user's folder at work: its lock, its journal, and the states of its agents.

Readers follow the journal and never wait for a writer. A writer holds the user's lock, the one that DeerMem takes too,
and has a journal of its own to write, so that what readers hold is guarded by a mutex that nobody keeps for long.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nanomem_core.errors import CorruptionError, FormatError, LockTimeoutError, NanomemError, StorageError
from nanomem_core.fileio import atomic
from nanomem_core.fileio.journal import Ahead, Entry, Journal, Write
from nanomem_core.fileio.locks import Lock
from nanomem_core.fileio.names import confined
from nanomem_core.interfaces import Damage
from nanomem_core.records import Scope

from . import deermem, migration
from .cache import load_cache, save_cache
from .layout import UserFolder, agent_folder
from .manifest import FILE, Manifest, parse_manifest
from .state import AgentState
from .writes import adoption

__all__ = ["User"]

_LONG, _MANY = 1 << 24, 4096
"""Bytes and entries of the journal at which it is settled; at twice as many nobody commits before that is done.

The folders above the files are forced to disk once for all of them, so that many entries make each cheap. But whoever
settles waits longer, and so does the next to open a store that was killed.
"""


class User:
    """See the module. Safe for threads.

    Args:
        caches: folder for what can be computed again, None for nowhere.
        interval: seconds between two looks for edits.

    Attributes:
        mutex: guards the states; hold it while using one.
        lock: the user's lock, across processes.
    """

    def __init__(
        self,
        folder: UserFolder,
        caches: Path | None,
        interval: float,
        lock_timeout: float,
        read_only: bool,
    ) -> None:
        self.folder = folder
        self.path = folder.path
        self.mutex = threading.RLock()
        self.lock = Lock(self.path / ".memory.lock", lock_timeout, self.path / ".nanomem" / "queue")
        self.read_only = read_only
        self._caches = caches
        self._interval = interval
        self._is_migrated = False
        place = confined(self.path, ".nanomem")
        self._journal = Journal(place, self.path)
        self._written = Journal(place, self.path, max_bytes=2 * _LONG, max_entries=2 * _MANY)
        self._states: dict[str, AgentState] = {}
        self._seen = 0
        self._has_committed = False
        self._is_long = False

    def migrate(self) -> None:
        """Take over what lies here in an older layout, the first time that it is asked for.

        Raises:
            FormatError: it is open for reading only.
            NanomemError: it can't be done; nothing was changed.
        """
        if self._is_migrated:
            return
        try:
            is_legacy = migration.is_legacy(self.folder)
        except CorruptionError:
            return  # whoever needs memory.json meets it; facts can be read without
        if is_legacy:
            if self.read_only:
                raise FormatError(
                    f"{self.path} is in an older layout, and open for reading only; "
                    f"`nanomem migrate markdown {self.path.parent.parent} --user {self.folder.name}` brings it into "
                    "that of today"
                )
            self.folder.remember("default")
            with self.locked():
                migration.migrate(self)
        self._is_migrated = True

    # Reading.

    @contextlib.contextmanager
    def reading(self, agent: str, *, force: bool = False) -> Iterator[AgentState]:
        """The state of an agent as it is now, under the mutex; `force` looks for edits whenever that was last done."""
        folder = agent_folder(self.folder, agent)
        with self.mutex:
            state = self._current(agent, folder)
            self._look(state, force)
            # Once for each look, whoever looked; the lock may be taken, or the disk refuse.
            is_due = (bool(state.pending) or state.unsure) and state.offered != state.swept
            state.offered = state.swept
        if is_due and not self.read_only:
            self._adopt_if_free(agent)
        with self.mutex:
            yield self._current(agent, folder)

    def read(self, path: str) -> bytes | None:
        """A file of the user as it is after the last commit."""
        with self.mutex, atomic.disk_errors(str(self.path)):
            self._follow()
            return self._journal.read(path)

    def agents(self) -> list[str]:
        """The agents that have a folder, or will have one when a commit has reached the files."""
        with self.mutex, atomic.disk_errors(str(self.path)):
            self._follow()
            noted = {(entry.note or {}).get("folder", "") for entry in self._journal.entries}
        found = dict(self.folder.agents())
        named = ((self.folder.agent_in(folder), folder) for folder in sorted(noted))
        return list(found | {agent: folder for agent, folder in named if agent is not None})

    def on_disk(self, path: str) -> bytes | None:
        """A file of the user as it is; under the user's lock, when no commit is on its way."""
        with atomic.disk_errors(str(self.path)):
            return atomic.read(self.path / path)

    def manifest(self) -> Manifest:
        """What ``memory.json`` says."""
        return parse_manifest(self.read(FILE), os.fspath(self.path / FILE))

    def _current(self, agent: str, folder: str) -> AgentState:
        with atomic.disk_errors(str(self.path)):
            self._follow()
            state = self._states.get(folder)
            if state is None:
                state = AgentState(Scope(self.folder.name, agent), folder, self.folder.owner(folder))
                self._states[folder] = state
                self._load(state)
            return state

    def _load(self, state: AgentState) -> None:
        cached = load_cache(self._caches, state, self._journal.origin)
        state.exact = cached is not None and self._take_over(state, cached)
        state.read_side_files(self._journal.read)
        self._look(state, force=True)
        self._save(state)

    def _take_over(self, state: AgentState, since: int) -> bool:
        """Bring what the cache held after commit `since` to the present; False if commits in between are unknown."""
        later = [entry for entry in self._journal.entries if entry.head > since]
        if since + len(later) != self._journal.head:
            return False
        for entry in later:
            if (entry.note or {}).get("folder") == state.folder:
                state.follow(entry)
        return True

    def _follow(self, own: Entry | None = None) -> list[Entry] | None:
        """Take over the commits since the last look, and return them; None if they can't be told.

        Args:
            own: one that this process has just made.
        """
        # The lock is held where there is one of our own, so that nobody changes `_written`.
        fresh = self._journal.follow(None if own is None else self._written)
        if own is not None and self._journal.head == own.head == self._seen + 1:
            fresh = [own]
        self._seen = self._journal.head
        if fresh is None:
            for state in self._states.values():
                state.doubt()
                state.read_side_files(self._journal.read)
                self._look(state, force=True)
            return None
        for entry in fresh:
            state_of = (entry.note or {}).get("folder")
            if state_of in self._states:
                self._states[state_of].follow(entry)
        return fresh

    def _look(self, state: AgentState, force: bool, locked: bool = False) -> None:
        """Compare a state with the files, if it is time to."""
        if not force and time.monotonic() - state.swept < self._interval:
            return
        with atomic.disk_errors(str(self.path)):
            while True:
                interrupted = None if locked else deermem.read_interrupted(self.path)
                swept = state.sweep(
                    self.path, None if locked else self._journal, {} if interrupted is None else interrupted.undone
                )
                # What was committed meanwhile is no edit.
                fresh = self._follow() if swept.found or swept.gone or swept.unsure else []
                if fresh is not None:
                    break
            state.take(swept, {write.path for entry in fresh for write in entry.writes})

    def _adopt_if_free(self, agent: str) -> None:
        """Make a commit of the edits that were found, unless somebody holds the lock or the disk refuses."""
        with contextlib.suppress(LockTimeoutError, StorageError), self.writing(agent, timeout=0.0):
            pass

    # Writing.

    @contextlib.contextmanager
    def writing(self, agent: str, timeout: float | None = None, *, look: bool = True) -> Iterator[AgentState]:
        """The user's lock, with everything recovered, migrated and taken up. The state must not be changed.

        Args:
            look: look for edits, if it is time to. Whoever changes single records by their revisions need not, since
                `MarkdownTransaction.get` compares the file of each.
        """
        with atomic.disk_errors(str(self.path)):
            self.folder.remember(agent)
        with self.mutex:
            # Here, so that other writers don't wait for it.
            state = self._current(agent, agent_folder(self.folder, agent))
            if look:
                self._look(state, force=False)
        with self.locked(timeout):
            if not self.manifest().is_current:
                migration.migrate(self)
            yield self.ready(agent)

    def ready(self, agent: str) -> AgentState:
        """The state of an agent with all edits taken up that were found; under the user's lock."""
        folder = agent_folder(self.folder, agent)
        with self.mutex:
            state = self._current(agent, folder)
            if state.pending or state.unsure:
                self._look(state, force=True, locked=True)
        if state.pending:
            self._adopt(state)
        return state

    def look_again(self, state: AgentState) -> None:
        """Take up edits that were made since the lock was taken; under the user's lock."""
        with self.mutex:
            self._look(state, force=True, locked=True)
        if state.pending:
            self._adopt(state)

    @contextlib.contextmanager
    def locked(self, timeout: float | None = None) -> Iterator[None]:
        """The user's lock, with everything finished or undone that others left. The folder must exist."""
        with self._holding(timeout):
            yield
        if self._is_long:
            self._is_long = False
            # Who commits meanwhile waits for little of it. What hinders it is no fault of the commit that was made.
            with contextlib.suppress(StorageError, LockTimeoutError):
                ahead = Journal(confined(self.path, ".nanomem"), self.path).sync_ahead()
                with self._holding(None):
                    self.settle(ahead)

    @contextlib.contextmanager
    def _holding(self, timeout: float | None) -> Iterator[None]:
        with atomic.disk_errors(str(self.path)):
            atomic.make_directory(self.path / ".nanomem")
        self.lock.acquire(timeout, self._catch_up)
        try:
            with atomic.disk_errors(str(self.path)):
                deermem.recover_interrupted(self.path)
                self._written.recover()
            yield
        finally:
            self.lock.release()

    def _catch_up(self) -> None:
        """Take over the commits of others before the lock is held, so that nobody waits for it to be done then."""
        with self.mutex, atomic.disk_errors(str(self.path)):
            self._follow()
            self._written.follow(self._journal)

    def _adopt(self, state: AgentState) -> None:
        """Make a commit of what was edited."""
        with self.mutex:
            writes, note = adoption(state, self.on_disk, time.time())
        self.commit(state, writes, note)
        # The journal must not bring back what was there before the edit.
        self.settle()

    def commit(self, state: AgentState, writes: list[Write], note: dict[str, Any]) -> None:
        """Make `writes` durable as the next commit of an agent; under the user's lock."""
        head, size, count = self._written.head + 1, self._written.size, len(self._written.entries)
        note = {"folder": state.folder, **note}
        self._written.commit(head, writes, note)
        self._has_committed = True
        # Only the one who passes the mark, not everybody behind it.
        is_past = self._written.size // _LONG > size // _LONG or len(self._written.entries) // _MANY > count // _MANY
        self._is_long = self._is_long or is_past
        with self.mutex:
            self._follow(Entry(head, note, tuple(writes), ()))

    def settle(self, ahead: Ahead | None = None) -> int:
        """Force everything to disk and leave nothing of earlier commits in the journal; under the user's lock."""
        before = self._written.size
        with atomic.disk_errors(str(self.path)):
            self._written.settle(ahead)
        return before - self._written.size

    def tidy(self, state: AgentState) -> None:
        """See that what is derived from the records of an agent holds none that is gone."""
        if self._caches is None:
            return
        with self.mutex, atomic.disk_errors(str(self.path)):
            path = self._caches / state.cache_name
            atomic.remove_leftovers(path)
            if state.held and state.dirty and not state.pending:
                save_cache(self._caches, state, self._journal.origin, self._seen)
                state.dirty = 0
            elif state.dirty or not state.held:
                atomic.remove(path, durable=False)

    def repair(self) -> Damage | None:
        """Begin a new journal in place of one that can't be read, which is set aside."""
        path = self.path / ".nanomem" / "journal"
        if not path.exists():
            return None
        self.lock.acquire()
        try:
            with self.mutex, atomic.disk_errors(str(self.path)):
                try:
                    self._journal.follow()
                    return None
                except CorruptionError as error:
                    atomic.write(f"{path}.quarantine", atomic.read(path) or b"")
                    self._written.restart(0)
                    self._follow()
                    return Damage(error.path, error.offset, None, error.reason, lost=False)
        finally:
            self.lock.release()

    def gaps(self) -> list[tuple[int, int]]:
        """Offset and length of damaged places in the journal."""
        with self.mutex:
            self._follow()
            return list(self._journal.gaps)

    def _save(self, state: AgentState) -> None:
        few = max(1, len(state.held) // 10)
        if self._caches is not None and not self.read_only and state.dirty >= min(few, 200) and not state.pending:
            # Derived: whatever hinders it is no reason to fail.
            with contextlib.suppress(OSError):
                save_cache(self._caches, state, self._journal.origin, self._seen)
                state.dirty = 0

    def close(self) -> None:
        """Force commits to their files, so that these may be edited before anybody opens the folder again; and keep
        what spares the next one to open it reading every file."""
        if self._has_committed:
            with contextlib.suppress(NanomemError), self.locked(timeout=0.0):
                self.settle()
        with self.mutex, contextlib.suppress(NanomemError):
            for state in self._states.values():
                self._save(state)
