"""The store that keeps one line a record, in Nemori's files."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from nanomem_core.changes import Plan
from nanomem_core.errors import CorruptionError, InputError, NotFoundError
from nanomem_core.fileio import atomic
from nanomem_core.fileio.locks import Lock
from nanomem_core.interfaces import Damage, Snapshot, Storage
from nanomem_core.records import Record, Scope

from .datafile import Bad, id_in
from .layout import FILES, Layout, quarantine
from .state import ScopeState

__all__ = ["JsonlStorage", "JsonlTransaction"]


class JsonlStorage(Storage):
    """Keeps records as lines of JSON, in one file for each user and kind, which Nemori v0.1.1 reads and writes too.

    Files of Nemori (v0.1.1, v0.2.0, and its older arrays) are read as they are; the first write brings them into one
    form. Lines that can't be read are passed over with a warning, and set aside by the next write.

    Args:
        root: the folder; Nemori's ``storage_path``. It is created by the first write.
        lock_timeout: seconds to wait for other writers.
        read_only: refuse writes, and leave no trace.
        cache_ttl: seconds after which files are read anew though `os.stat` shows no change, for remote disks that
            answer late; None where stat can be relied on.

    Raises:
        NotFoundError: `read_only`, and there is no folder.
    """

    name: ClassVar[str] = "jsonl"

    def __init__(
        self,
        root: str | Path = "memory",
        lock_timeout: float = 30.0,
        read_only: bool = False,
        cache_ttl: float | None = None,
    ) -> None:
        if cache_ttl is not None and not cache_ttl >= 0:
            raise InputError(f"cache_ttl: expected a number of seconds from 0, or None; found {cache_ttl!r}")
        self.root = os.path.realpath(os.path.expanduser(root))
        if read_only and not os.path.isdir(self.root):
            raise NotFoundError(f"{self.root}: expected a folder to read; there is none", id=self.root)
        self.read_only = read_only
        self._layout = Layout(self.root)
        self._cache_ttl = cache_ttl
        self._lock_timeout = lock_timeout
        self._mutex = threading.Lock()
        self._locks: dict[Path, Lock] = {}
        self._states: dict[Scope, ScopeState] = {}
        self._warned: set[tuple[str, bytes]] = set()

    def derived(self) -> Path:
        return self._layout.derived

    def close(self) -> None:
        """Release what is held, and force to disk what the journals still hold, if nobody else is writing."""
        if self._closed:
            return
        for scope, state in list(self._states.items()):
            with contextlib.suppress(OSError):
                if state.journal.entries and not self.read_only:
                    with self._locked(scope, timeout=0.0), state.mutex:
                        state.recover()
                        state.journal.settle()
        self._closed = True
        self._states.clear()

    # Reading.

    def scopes(self) -> list[Scope]:
        self._check_open()
        return [scope for scope in self._layout.scopes() if self._count(scope)]

    def _count(self, scope: Scope) -> int:
        with self._reading(scope) as state:
            return state.count()

    def head(self, scope: Scope) -> int:
        with self._reading(scope) as state:
            return state.head

    def epoch(self, scope: Scope) -> tuple[str, int]:
        with self._reading(scope) as state:
            return state.journal.origin, state.edits

    def get(self, scope: Scope, id: str) -> Record | None:
        with self._reading(scope) as state:
            line = state.find(id)
            return None if line is None else line.record

    def scan(self, scope: Scope, kind: str | None = None) -> Iterator[Record]:
        return iter(self.snapshot(scope, kind).records)

    def snapshot(self, scope: Scope, kind: str | None = None) -> Snapshot:
        with self._reading(scope) as state:
            return Snapshot(state.head, tuple(line.record for line in state.lines(kind)))

    def stats(self) -> dict[str, object]:
        """Facts about the store; `records` by kind, `damaged` the lines that can't be read, `journal_bytes` what
        `compact` would regain."""
        records = dict.fromkeys(FILES, 0)
        scopes = damaged = journal = 0
        for scope in self._layout.scopes():
            with self._reading(scope) as state:
                for kind, file in state.files.items():
                    records[kind] += len(file.lines)
                scopes += state.count() > 0
                damaged += len(state.bad())
                journal += state.journal.size
        return {
            **super().stats(),
            "scopes": scopes,
            "records": sum(records.values()),
            "kinds": records,
            "damaged": damaged,
            "journal_bytes": journal,
        }

    @contextlib.contextmanager
    def _reading(self, scope: Scope) -> Iterator[ScopeState]:
        """The scope as it is now."""
        state = self._state(scope)
        with state.mutex:
            with self._disk():
                state.refresh()
            self._report(state)
            if self.read_only or not state.unfinished:
                yield state
                return
        # Older files are taken over when they are first seen, whatever is asked.
        with self._writing(scope) as state, state.mutex:
            yield state

    def _state(self, scope: Scope) -> ScopeState:
        self._check_open()
        with self._mutex:
            state = self._states.get(scope)
            if state is None:
                state = self._states[scope] = ScopeState(self._layout, scope, self._cache_ttl)
            return state

    def _report(self, state: ScopeState) -> None:
        """Warn of lines that can't be read, once of each."""
        for file in state.files.values():
            for bad in file.bad:
                if (bad.path, bad.raw) not in self._warned:
                    self._warned.add((bad.path, bad.raw))
                    warnings.warn(
                        f"{self.root}/{bad.path}, line {bad.line}: {bad.reason}. It is left out; the next write or "
                        f"`repair` sets it aside in {quarantine(file.path)}",
                        RuntimeWarning,
                        stacklevel=4,
                    )

    # Writing.

    @contextlib.contextmanager
    def transaction(self, scope: Scope) -> Iterator[JsonlTransaction]:
        with self._writing(scope) as state:
            yield JsonlTransaction(state)

    @contextlib.contextmanager
    def _writing(self, scope: Scope, *, absorb: bool = True) -> Iterator[ScopeState]:
        """Hold the scope's lock; all that others did has then reached the files, and been made a commit."""
        state = self._state(scope)
        self._check_writable()
        with self._locked(scope):
            self._check_open()
            if absorb:
                with state.mutex, self._disk():
                    state.recover()
                    self._report(state)
                    state.absorb()
            yield state

    @contextlib.contextmanager
    def _locked(self, scope: Scope, timeout: float | None = None) -> Iterator[None]:
        path = self._layout.lock(scope)
        with self._mutex:
            lock = self._locks.setdefault(path, Lock(path, self._lock_timeout))
        with self._disk():
            atomic.make_directory(path.parent)
        lock.acquire(timeout)
        try:
            yield
        finally:
            lock.release()

    def erase(self, scope: Scope) -> None:
        self._check_open()
        if scope not in self._layout.scopes() and not os.path.isdir(self._layout.folder(scope)):
            self._check_writable()
            return
        with self._writing(scope, absorb=False) as state, state.mutex, self._disk():
            try:
                state.recover()
            except CorruptionError:
                state.journal.restart(0)
                state.recover()
            state.erase()

    def compact(self) -> int:
        """Empty the journals, and remove older files whose records were taken over; returns the bytes regained."""
        self._check_open()
        regained = 0
        for scope in self._layout.scopes():
            with self._writing(scope) as state, state.mutex, self._disk():
                regained += state.settle()
        return regained

    # Damage.

    def check(self) -> list[Damage]:
        self._check_open()
        return [damage for scope in self._layout.scopes() for damage in self._inspect(scope)]

    def _inspect(self, scope: Scope) -> Iterator[Damage]:
        state = ScopeState(self._layout, scope)
        try:
            with self._disk():
                state.refresh()
        except CorruptionError as error:
            yield Damage(error.path, error.offset, None, f"{error.reason}; `repair` begins a new journal", lost=False)
            return
        for bad in state.bad():
            yield self._damage(bad)
        for offset, length in state.journal.gaps:
            yield Damage(state.journal.path, offset, length, "a damaged entry; its files were written", lost=False)

    def _damage(self, bad: Bad) -> Damage:
        path = str(self._layout.absolute(bad.path))
        return Damage(path, bad.offset, len(bad.raw), f"line {bad.line}: {bad.reason}", id_in(bad.raw), bad.lost)

    def repair(self) -> list[Damage]:
        self._check_open()
        found = []
        for scope in self._layout.scopes():
            damages = list(self._inspect(scope))
            if not damages:
                continue
            with self._writing(scope, absorb=False) as state, state.mutex, self._disk():
                try:
                    state.recover()
                except CorruptionError:
                    atomic.write(quarantine(state.journal.path), atomic.read(state.journal.path) or b"")
                    state.journal.restart(0)
                    state.recover()
                state.absorb()
                state.journal.settle()
            found += damages
        return found

    def _disk(self) -> AbstractContextManager[None]:
        return atomic.disk_errors(f"{self.root}: the disk failed")


class JsonlTransaction:
    """Sole write access to one scope."""

    def __init__(self, state: ScopeState) -> None:
        self._state = state

    @property
    def head(self) -> int:
        return self._state.head

    def get(self, id: str) -> Record | None:
        line = self._state.find(id)
        return None if line is None else line.record

    def tip(self, chain: str) -> int:
        return self._state.tip(chain)

    def apply(self, plan: Plan) -> None:
        plan.check_scope(self._state.scope)
        with self._state.mutex:
            self._state.commit(plan.head, plan.puts, plan.deletes)
