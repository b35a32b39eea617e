"""The store that keeps every fact in a Markdown file of its own."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from nanomem_core.changes import Plan
from nanomem_core.columns import Columns, MemoryColumns
from nanomem_core.errors import (
    ConflictError,
    CorruptionError,
    InputError,
    LockTimeoutError,
    NotFoundError,
    StorageError,
)
from nanomem_core.fileio.journal import Remove, Replace, Write
from nanomem_core.fileio.names import confined
from nanomem_core.interfaces import Damage, Snapshot
from nanomem_core.records import Record, Scope

from . import deermem, migration
from .document import digest
from .eviction import POLICIES, Policy
from .layout import Layout, UserFolder
from .manifest import FILE
from .repository import Repository
from .state import AgentState
from .user import User
from .writes import document_writes, erasure

__all__ = ["Check", "MarkdownStorage"]

Check = Literal["second", "always"]

_MOST_USERS = 64
"""Users whose records are held in memory."""


class MarkdownStorage(Repository):
    """Keeps one Markdown file a fact, in the folders and the form of DeerMem's version 2, which can use them too.

    Edits of the files by hand, or by another program, are noticed and become commits. Records that DeerMem has no form
    for (episodes, messages, values that no longer hold) lie beside its folders. See
    ``docs/reference/formats/markdown.md``.

    Args:
        root: the folder; it is created by the first write.
        check: how often a read looks for edits: at most once a second, or always.
        max_facts: how many facts an agent may have after one was added through DeerMem's contract; None sets no limit.
        eviction: which facts make room then: see `Policy`.
        strict_user_scope: refuse calls of DeerMem's contract that name no user.
        lock_timeout: seconds to wait for other writers of the same user.
        read_only: refuse writes, and leave no trace.

    Raises:
        NotFoundError: `read_only`, and there is no such folder.
    """

    name: ClassVar[str] = "markdown"

    def __init__(
        self,
        root: str | Path = "memory",
        check: Check = "second",
        max_facts: int | None = None,
        eviction: Policy = "confidence",
        strict_user_scope: bool = False,
        lock_timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        if check not in ("second", "always"):
            raise InputError(f"check: expected second or always; found {check!r}")
        if max_facts is not None and max_facts < 1:
            raise InputError(f"max_facts: expected a number from 1, or None; found {max_facts}")
        if eviction not in POLICIES:
            raise InputError(f"eviction: expected one of {', '.join(POLICIES)}; found {eviction!r}")
        self.root = Path(os.path.realpath(os.path.expanduser(root)))
        if read_only and not self.root.is_dir():
            raise NotFoundError(f"{self.root}: expected a folder to read; there is none", id=str(self.root))
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"root: expected a folder; found a file at {self.root}")
        self.read_only = read_only
        self._layout = Layout(self.root)
        self._max_facts = max_facts
        self._eviction = eviction
        self._strict_user_scope = strict_user_scope
        self._interval = 1.0 if check == "second" else 0.0
        self._lock_timeout = lock_timeout
        self._mutex = threading.Lock()
        self._users: OrderedDict[str, User] = OrderedDict()
        self._tables: dict[Scope, tuple[tuple[str, int, int], MemoryColumns]] = {}

    def derived(self) -> Path:
        return confined(self.root, ".derived")

    def close(self) -> None:
        with self._mutex:
            users, self._users, self._closed = list(self._users.values()), OrderedDict(), True
            self._tables.clear()
        for user in users:
            user.close()

    # Reading.

    def scopes(self) -> list[Scope]:
        return [scope for scope, state in self._states() if state.records()]

    def head(self, scope: Scope) -> int:
        with self._reading(scope) as state:
            return state.head

    def get(self, scope: Scope, id: str) -> Record | None:
        with self._reading(scope) as state:
            return state.get(id)

    def scan(self, scope: Scope, kind: str | None = None) -> Iterator[Record]:
        return iter(self.snapshot(scope, kind).records)

    def snapshot(self, scope: Scope, kind: str | None = None) -> Snapshot:
        with self._reading(scope) as state:
            head, records = state.head, state.records()
        return Snapshot(head, tuple(records if kind is None else (r for r in records if r.kind == kind)))

    def columns(self, scope: Scope) -> Columns:
        with self._reading(scope) as state:
            key = state.epoch, state.breaks, state.shown if state.pending else 0
            known = self._tables.get(scope)
            table = known[1] if known is not None and known[0] == key else None
            if table is not None:
                for commit in state.log:
                    if commit.head == table.head + 1:
                        table.apply(commit)
            if table is None or table.head != state.head:
                table = MemoryColumns(scope, state.head, state.records(), lambda id: self.get(scope, id))
                self._tables[scope] = key, table
            return table.columns()

    def quarantined(self) -> list[Damage]:
        """The files that hold no record, each with the reason. They are never touched, and hide nothing else."""
        return [
            Damage(os.fspath(self._layout.user(scope.user).path / path), None, None, bad.reason, bad.id, lost=False)
            for scope, state in self._states(force=True)
            for path, bad in sorted(state.bad.items())
        ]

    def _states(self, *, force: bool = False) -> Iterator[tuple[Scope, AgentState]]:
        """Every scope that has a folder, with its state."""
        for folder in self._layout.users():
            user = self._user(folder.name)
            for agent in user.agents():
                with user.reading(agent, force=force) as state:
                    yield Scope(folder.name, agent), state

    def _user(self, name: str, *, migrate: bool = True) -> User:
        """The user's folder at work; unless `migrate` is False with nothing left in an older layout."""
        user = self._held_user(name)
        if migrate:
            user.migrate()
        return user

    def _held_user(self, name: str) -> User:
        with self._mutex:
            self._check_open()
            user = self._users.pop(name, None)
            if user is None:
                user = self._open(self._layout.user(name))
            self._users[name] = user
            oldest = self._users.popitem(last=False) if len(self._users) > _MOST_USERS else None
        if oldest is not None:
            oldest[1].close()
            self._tables = {scope: table for scope, table in self._tables.items() if scope.user != oldest[0]}
        return user

    def _open(self, folder: UserFolder) -> User:
        return User(folder, self.derived(), self._interval, self._lock_timeout, self.read_only)

    # Writing.

    @contextlib.contextmanager
    def transaction(self, scope: Scope, *, look: bool = True) -> Iterator[MarkdownTransaction]:
        """See `Storage`; `look` as in `User.writing`."""
        user = self._user(scope.user)
        self._check_writable()
        with user.writing(scope.agent, look=look) as state:
            yield MarkdownTransaction(user, state)

    def erase(self, scope: Scope) -> None:
        """See `Storage`. Files that hold no record, DeerMem's summaries and what belongs to an agent stay; what a
        migration from an older layout kept of the user goes."""
        user = self._user(scope.user)
        self._check_writable()
        if not user.path.is_dir():
            return
        with user.writing(scope.agent) as state:
            if state.held or state.head:
                kept = map(Remove, migration.copies(state.folder))
                manifest = user.manifest().next(time.time())
                user.commit(state, [*erasure(state), *kept, Replace(FILE, manifest.encode())], {})
            user.settle()
            user.tidy(state)
            deermem.remove_leftovers(user.path)
        with self._mutex:
            self._tables.pop(scope, None)

    def compact(self) -> int:
        self._check_writable()
        freed = 0
        for folder in self._layout.users():
            user = self._user(folder.name)
            for agent in user.agents():
                with user.reading(agent) as state:
                    user.tidy(state)
            with user.locked():
                freed += user.settle() + deermem.remove_leftovers(user.path)
        return freed

    def check(self) -> list[Damage]:
        """See `Storage`. Files that hold no record are listed with `lost` False: whatever they hold is still there."""
        found = []
        for folder in self._layout.users():
            try:
                user = self._user(folder.name)
                user.manifest()
                for agent in user.agents():
                    with user.reading(agent, force=True):
                        pass
                path = os.fspath(folder.path / ".nanomem" / "journal")
                found += [
                    Damage(path, offset, length, "a damaged entry; its files have what it wrote", lost=False)
                    for offset, length in user.gaps()
                ]
            except CorruptionError as error:
                found.append(Damage(error.path, error.offset, None, error.reason, lost=False))
            except LockTimeoutError:
                raise
            except (ConflictError, StorageError) as error:
                # An older layout that can't be taken over; the message tells why.
                found.append(Damage(os.fspath(folder.path), None, None, str(error), lost=False))
        return found + (self.quarantined() if not found else [])

    def repair(self) -> list[Damage]:
        """See `Storage`. A journal that can't be read is set aside; files that people may have at hand stay."""
        self._check_writable()
        found = []
        for folder in self._layout.users():
            user = self._user(folder.name)
            damage = user.repair()
            if damage is not None:
                found.append(damage)
        return found

    def stats(self) -> dict[str, object]:
        """Facts about the store; `quarantined` counts the files that hold no record."""
        states = [state for _, state in self._states()]
        return {
            **super().stats(),
            "users": len({state.scope.user for state in states}),
            "scopes": sum(bool(state.held) for state in states),
            "records": sum(len(state.held) for state in states),
            "quarantined": sum(len(state.bad) for state in states),
        }


class MarkdownTransaction:
    """Sole write access to one user's files, for one agent."""

    def __init__(self, user: User, state: AgentState) -> None:
        self.user = user
        self.state = state

    @property
    def head(self) -> int:
        return self.state.head

    def get(self, id: str) -> Record | None:
        """See `Transaction`. An edit of that very file is taken up first, so that no write passes over it."""
        user, state = self.user, self.state
        with user.mutex:
            held = state.held.get(id)
            path = state.expected_path(id)
            content = None if path is None else user.on_disk(path)
            changed = (None if content is None else digest(content)) != (None if held is None else held.digest)
        if changed:
            user.look_again(state)
        return state.get(id)

    def tip(self, chain: str) -> int:
        return self.state.tip(chain)

    def apply(
        self,
        plan: Plan,
        sections: Mapping[str, Mapping[str, Any]] | None = None,
        beside: Iterable[Write] = (),
        updated: Mapping[str, float] | None = None,
    ) -> None:
        """See `Transaction`.

        Args:
            sections: the summaries after the commit, None for those of before.
            beside: writes of other files that belong to the commit.
            updated: see `document_writes`.
        """
        user, state = self.user, self.state
        plan.check_scope(state.scope)
        now = time.time()
        records = [put.record for put in plan.puts]
        writes, note = document_writes(state, user.on_disk, records, plan.deletes, now, updated)
        manifest = user.manifest().next(now, sections)
        user.commit(state, [*writes, *beside, Replace(FILE, manifest.encode())], note)
