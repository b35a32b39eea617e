"""The interface of stores."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from ..changes import Change, Commit, Plan, Reader, Vectors, plan_commit
from ..columns import Columns, MemoryColumns
from ..errors import ClosedError, ConflictError, InputError, ReadOnlyError
from ..records import Record, Scope
from .component import Component

__all__ = ["PLACES", "Damage", "Migration", "Snapshot", "Storage", "Transaction", "VectorSpace"]

PLACES = ("path", "root")
"""How the option, and the attribute, of a store may be called that says where on disk it is."""


class Transaction(Reader, Protocol):
    """Sole write access to one scope, as long as the ``with`` block lasts."""

    def apply(self, plan: Plan) -> None:
        """Make the plan durable, wholly or not at all. Called at most once.

        A store may finish the work when the block ends (to share an fsync, say); what matters is that the plan is
        durable once the ``with`` statement is left without an exception.
        """
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All records of a scope at one head."""

    head: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """Which vectors can be compared: those of one embedder and width."""

    embedder: str
    dim: int


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place in a store.

    Attributes:
        path: the file.
        offset: byte offset in it, or None.
        length: bytes concerned, or None.
        what: what is damaged and what became of it, for a person to read.
        id: the record concerned, where known.
        lost: False where nothing of a record is lost (a torn tail that was never acknowledged, say).
    """

    path: str
    offset: int | None
    length: int | None
    what: str
    id: str | None = None
    lost: bool = True


@dataclass(frozen=True, slots=True)
class Migration:
    """What became of one user's memory in an older layout.

    Attributes:
        state: ``migrated``, ``planned`` (a dry run) or ``current`` (there was nothing to do).
        moved: records that were taken over.
        skipped: records that were there already.
        refused: for each thing that is no record and stays behind, where it is and why.
    """

    user: str
    state: Literal["migrated", "planned", "current"]
    from_version: str
    to_version: str
    moved: int = 0
    skipped: int = 0
    refused: tuple[str, ...] = ()


class Storage(Component):
    """Keeps records durably, scope by scope. A store makes plans durable; what they mean is decided by core.

    The smallest store implements `scopes`, `head`, `get`, `scan`, `transaction` and `erase`. Everything else is given,
    and may be overridden where the store can do better. Prove it with `nanomem_core.testing.StorageContract`::

        class DictStorage(Storage):
            name = "dict"

            def __init__(self) -> None:
                self._data = {}  # a head and the records by id, for each scope
                self._lock = threading.Lock()

            def scopes(self):
                return [scope for scope, (head, records) in list(self._data.items()) if records]

            def head(self, scope):
                return self._data.get(scope, (0, {}))[0]

            def get(self, scope, id):
                return self._data.get(scope, (0, {}))[1].get(id)

            def scan(self, scope, kind=None):
                records = list(self._data.get(scope, (0, {}))[1].values())
                return (r for r in records if kind is None or r.kind == kind)

            def erase(self, scope):
                with self._lock:
                    self._data.pop(scope, None)

            @contextmanager
            def transaction(self, scope):
                with self._lock:
                    yield DictTransaction(self._data, scope)

        class DictTransaction:
            def __init__(self, data, scope):
                self._data, self._scope = data, scope
                self.head, self._records = data.get(scope, (0, {}))

            def get(self, id):
                return self._records.get(id)

            def tip(self, chain):
                return max((r.revision for r in self._records.values() if r.chain == chain), default=0)

            def apply(self, plan):
                plan.check_scope(self._scope)
                records = {id: record for id, record in self._records.items() if id not in plan.deletes}
                records.update((put.record.id, put.record) for put in plan.puts)
                self._data[self._scope] = (plan.head, records)

    and is offered by a plugin's ``pyproject.toml``::

        [project.entry-points."nanomem.plugins"]
        dict = "nanomem_dict"

    After `close` every call raises `ClosedError`: `close` sets `_closed`, and the calls begin with `_check_open` or
    `_check_writable`. The store above leaves that out, `nanomem_core.testing.DictStorage` does not. A store on disk
    takes its place as the option `path` or `root`, and has it as the attribute of that name: so core opens another one,
    and sees that two are the same.

    Common mistakes: returning from a transaction before the data is durable; reading outside the lock what `apply`
    depends on; counting `head` per process, or from 0 again without another `epoch`; following symbolic links on
    delete; matching scopes by prefix.
    """

    read_only: bool = False
    """True if this object refuses writes; core then leaves no files beside the store either."""

    keeps_vectors: ClassVar[bool] = False
    """True if the store keeps the vectors it is given; it then implements `space` and `adopt`."""

    _closed: bool = False

    # What a store implements.

    @abstractmethod
    def scopes(self) -> list[Scope]:
        """Every scope that holds a record, in no particular order."""

    @abstractmethod
    def head(self, scope: Scope) -> int:
        """Number of the last commit of `scope`, 0 before the first. Sees the commits of other processes."""

    @abstractmethod
    def get(self, scope: Scope, id: str) -> Record | None:
        """The record with that id, or None."""

    @abstractmethod
    def scan(self, scope: Scope, kind: str | None = None) -> Iterator[Record]:
        """The records of `scope` (of one kind) at one head, in the order in which their ids were first written.

        Writing a record again keeps its place; an id that was deleted and comes back in a later commit is new.
        """

    @abstractmethod
    def transaction(self, scope: Scope) -> AbstractContextManager[Transaction]:
        """Hold the scope's write lock, across processes; a plan applied inside is durable when the block is left.

        Raises:
            LockTimeoutError: another process kept the lock.
            ReadOnlyError: the store is open for reading.
        """

    @abstractmethod
    def erase(self, scope: Scope) -> None:
        """Remove the scope and every byte of its content from every file, at once. Absent scopes are no error.

        The head of an erased scope starts again at 0.
        """

    # What core gives.

    @property
    def place(self) -> str | None:
        """The file or folder of the store, without links; None for one that is nowhere on disk."""
        found = next((getattr(self, name) for name in PLACES if hasattr(self, name)), None)
        return None if found is None else os.path.realpath(found)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self.place or self.name}: the store was closed; open it again")

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            where = self.place or self.name
            raise ReadOnlyError(f"{where}: the store was opened with read_only; open it without to write")

    def commit(self, scope: Scope, changes: Iterable[Change], expect_head: int | None = None) -> Commit:
        """Plan and write `changes` as one commit; durable when this returns.

        Changes that come to nothing (deleting what is absent) write nothing and keep the head.

        Raises:
            ConflictError: a precondition does not hold; nothing was written.
            InputError: a record is malformed; nothing was written.
        """
        changes = list(changes)
        with self.transaction(scope) as transaction:
            plan = plan_commit(transaction, scope, changes, expect_head)
            if plan.empty:
                return Commit(scope, transaction.head)
            transaction.apply(plan)
        commit = plan.commit
        self._advance(commit)
        return commit

    def update(self, scope: Scope, compute: Callable[[Snapshot], Iterable[Change]], attempts: int = 3) -> Commit:
        """Commit what `compute` makes of a whole snapshot, recomputing it when somebody else wrote meanwhile.

        Raises:
            ConflictError: somebody else wrote during each of the `attempts`.
        """
        for attempt in range(attempts):
            snapshot = self.snapshot(scope)
            changes = list(compute(snapshot))
            try:
                return self.commit(scope, changes, expect_head=snapshot.head)
            except ConflictError as error:
                if error.id is not None or attempt == attempts - 1:
                    raise
        raise InputError(f"attempts: expected at least 1; found {attempts}")

    def snapshot(self, scope: Scope, kind: str | None = None) -> Snapshot:
        """All records (of one kind) at one head."""
        while True:
            epoch, head = self.epoch(scope), self.head(scope)
            records = tuple(self.scan(scope, kind))
            if (self.epoch(scope), self.head(scope)) == (epoch, head):
                return Snapshot(head, records)

    def epoch(self, scope: Scope) -> object:
        """What tells two contents with the same `head` apart: another value after each `erase`, where heads begin anew.

        A store whose files may be edited by others changes it then too. Values are compared for equality. A store
        on which this always gives None may show columns of before an `erase` by another handle.
        """
        return None

    def columns(self, scope: Scope) -> Columns:
        """The scope's columns at its present head."""
        held = self._held_columns()
        epoch, columns = held.get(scope, (None, None))
        if columns is None or columns.head != self.head(scope) or epoch != self.epoch(scope):
            # An epoch that ends while the snapshot is taken is noticed by the next call.
            epoch, snapshot = self.epoch(scope), self.snapshot(scope)
            columns = MemoryColumns(scope, snapshot.head, snapshot.records, lambda id: self.get(scope, id))
            held[scope] = epoch, columns
        return columns.columns()

    def _advance(self, commit: Commit) -> None:
        """Bring columns that are held in memory from the head before `commit` to the one after it."""
        held = self._held_columns()
        epoch, columns = held.get(commit.scope, (None, None))
        if columns is None:
            return
        known = epoch is not None and commit.head <= columns.head  # they were built after the commit, and hold it
        if epoch != self.epoch(commit.scope) or not (known or columns.apply(commit)):
            held.pop(commit.scope, None)

    def _held_columns(self) -> dict[Scope, tuple[object, MemoryColumns]]:
        # Set here rather than in a constructor, so that a plugin's own constructor needs no super() call.
        return self.__dict__.setdefault("_columns", {})  # type: ignore[no-any-return]

    def derived(self) -> Path | None:
        """A folder where core may keep what it can compute again: codes of vectors, or the vectors of a store without.

        None keeps it in memory. Whatever is in it may be deleted at any time. A store that `keeps_vectors` empties it
        on `erase` and `compact`, which change its rows; for the others core forgets the vectors of what is gone.
        """
        return None

    def profile(self, scope: Scope) -> Sequence[Record]:
        """Summaries that the store keeps of the scope's user as a whole, beside the records of all scopes.

        They have the kind ``summary``; `section` and `title` in their metadata are headings. Most stores keep none.
        """
        return ()

    def compact(self) -> int:
        """Regain space; returns the bytes regained. Afterwards no byte of a deleted record is in any file."""
        return 0

    def check(self) -> list[Damage]:
        """Read everything and report each damaged place; an empty list means that all is well."""
        return []

    def repair(self) -> list[Damage]:
        """Set damaged parts aside (a ``*.quarantine`` file beside the store) and make the rest whole.

        Returns what was set aside. Nothing readable is ever removed.
        """
        return []

    def users(self) -> list[str]:
        """The users of all scopes; for a store that migrates also those whose memory is in an older layout."""
        return sorted({scope.user for scope in self.scopes()})

    def migrate_user(self, user: str, *, dry_run: bool = False) -> Migration:
        """Bring what `user` has in an older layout into that of today; with `dry_run` only tell what would be done.

        A store may well do so by itself when it first meets such a user. One without an older layout has no migration.

        Raises:
            NotFoundError: there is no such user.
            StorageError: it can't be done; nothing was changed.
        """
        raise NotImplementedError(f"the storage {self.name!r} has no older layout to migrate from")

    def stats(self) -> dict[str, object]:
        """Facts about the store, as JSON types; a store adds to these."""
        return {"storage": self.name, "path": self.place, "read_only": self.read_only}

    # What a store with `keeps_vectors` adds.

    @property
    def space(self) -> VectorSpace | None:
        """Whose vectors the store holds, None before the first."""
        return None

    def adopt(self, space: VectorSpace) -> None:
        """State whose vectors will be written; called before the first write and before any comparison.

        Raises:
            EmbedderMismatchError: the store holds vectors of another space.
        """
        return

    def reembed(
        self,
        space: VectorSpace,
        encode: Callable[[list[Record]], list[Vectors]],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> int:
        """Replace every vector by those of `space`; returns how many records were encoded by this call.

        Until all are done the old vectors are used; then the change is made at once. Interrupted work is taken up
        again by the next call with the same `space`. `encode` returns one matrix (m, dim) a record; `progress` is
        told the records done and in all.
        """
        raise NotImplementedError
