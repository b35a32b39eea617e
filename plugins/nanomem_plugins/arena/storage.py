"""The store that keeps everything in one file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from nanomem_core.changes import Change, Commit, Plan, Put, Vectors, check_rows, plan_commit
from nanomem_core.columns import Columns, MemoryColumns, kind_code
from nanomem_core.errors import EmbedderMismatchError, InputError, NotFoundError
from nanomem_core.interfaces import Damage, Snapshot, Storage, VectorSpace
from nanomem_core.records import Record, Scope

from .check import inspect
from .columns import ScopeColumns, read_records
from .compaction import compact
from .documents import delete_entry, encode_vectors, id_hash, id_hashes, put_entry
from .engine import Arena, Durability, Written
from .format import COMMIT, FORMAT_VERSION, SPACE, VectorDtype
from .reembed import reembed
from .table import Table

__all__ = ["ArenaStorage"]


class ArenaStorage(Storage):
    """Keeps records and their vectors in one append-only file. A commit is one write and a shared fsync.

    Beside the file stand ``<path>.lock``, ``<path>.index`` and ``<path>.derived`` (both may be deleted),
    ``<path>.reembed`` (while the vectors are replaced) and ``<path>.quarantine`` (after a repair). A missing file is
    created by the first write.

    Args:
        path: the file.
        vector_dtype: how vectors are stored in a file that is created; an existing one keeps its own.
        durability: ``fsync``: a commit survives a loss of power; ``os``: it survives the end of the process.
        lock_timeout: seconds to wait for other writers.
        read_only: refuse writes, and leave no trace beside the file.

    Raises:
        NotFoundError: `read_only`, and there is no file.
        FormatError: the file is of another kind, or a newer version.
    """

    name: ClassVar[str] = "arena"
    keeps_vectors: ClassVar[bool] = True

    def __init__(
        self,
        path: str | Path = "memory.dat",
        vector_dtype: VectorDtype = "float16",
        durability: Durability = "fsync",
        lock_timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        _check_choice("vector_dtype", vector_dtype, ("float16", "float32"))
        _check_choice("durability", durability, ("fsync", "os"))
        # The file itself, not a link to it, is what rewrites replace; and all its names share one lock.
        target = os.path.realpath(os.path.expanduser(path))
        if read_only and not os.path.exists(target):
            raise NotFoundError(f"{target}: expected a file to read; there is none", id=target)
        self.read_only = read_only
        self._adopted: VectorSpace | None = None
        self._arena = Arena(
            target,
            vector_dtype=vector_dtype,
            durability=durability,
            lock_timeout=lock_timeout,
            read_only=read_only,
        )

    @property
    def path(self) -> str:
        """The file, as an absolute path."""
        return self._arena.path

    def derived(self) -> Path:
        return Path(self._arena.derived_path)

    def close(self) -> None:
        self._arena.close()

    # Reading.

    def scopes(self) -> list[Scope]:
        return self._arena.read(lambda table: [state.scope for state in table.scopes if state.alive], [])

    def head(self, scope: Scope) -> int:
        return self._arena.read(lambda table: table.head(scope), 0)

    def get(self, scope: Scope, id: str) -> Record | None:
        def get(table: Table) -> Record | None:
            row = table.find(scope, id)
            return None if row is None else table.record(row)

        return self._arena.read(get, None)

    def scan(self, scope: Scope, kind: str | None = None) -> Iterator[Record]:
        return self._at_head(scope, kind)[1]

    def snapshot(self, scope: Scope, kind: str | None = None) -> Snapshot:
        head, records = self._at_head(scope, kind)
        return Snapshot(head, tuple(records))

    def _at_head(self, scope: Scope, kind: str | None) -> tuple[int, Iterator[Record]]:
        def found(table: Table) -> tuple[int, Iterator[Record]]:
            code = table.codes.get(scope)
            if code is None:
                return 0, iter(())
            rows = table.rows_by_birth(code)
            if kind is not None:
                rows = rows[table.take("kind", rows) == kind_code(kind)]
            offsets = table.take("row_offset", rows).tolist()
            return table.head(scope), read_records(table.file, offsets, self._arena.report)

        nothing: Iterator[Record] = iter(())
        return self._arena.read(found, (0, nothing))

    def columns(self, scope: Scope) -> Columns:
        def columns(table: Table) -> Columns | None:
            code = table.codes.get(scope)
            if code is None:
                return None
            held = table.listeners.get(code)
            if not isinstance(held, ScopeColumns):
                held = ScopeColumns(table.verified(), code, self._arena.mutex, self._arena.report)
                table.listeners[code] = held
            return held.columns()

        found = self._arena.read(columns, None)
        return found if found is not None else MemoryColumns(scope, 0, (), lambda id: None).columns()

    def stats(self) -> dict[str, object]:
        """Facts about the store. `dead_rows` is what `compact` would drop, `indexed_rows` what opening need not read,
        `damaged` the places that reading met; `check` finds all."""
        arena = self._arena
        nothing: dict[str, object] = {}
        facts: dict[str, object] = {
            **super().stats(),
            "format_version": FORMAT_VERSION,
            "durability": arena.durability,
            "vector_dtype": arena.vector_dtype,
            "file_size": 0,
            "records": 0,
            "scopes": 0,
            "dead_rows": 0,
            "damaged": 0,
            "torn_tail_bytes": 0,
            "indexed_rows": 0,
            "embedder": None,
            "dim": None,
            "uuid": None,
        }
        return facts | arena.read(_facts, nothing)

    # Writing.

    @contextlib.contextmanager
    def transaction(self, scope: Scope) -> Iterator[ArenaTransaction]:
        with self._arena.writing():
            transaction = ArenaTransaction(self._arena, scope, self._adopted)
            yield transaction
        self._arena.sync(transaction.written)

    def commit(self, scope: Scope, changes: Iterable[Change], expect_head: int | None = None) -> Commit:
        # As for any store, but ids are looked for together; columns are kept up to date by the table.
        changes = list(changes)
        with self.transaction(scope) as transaction:
            transaction.look_for([change.record.id if isinstance(change, Put) else change.id for change in changes])
            plan = plan_commit(transaction, scope, changes, expect_head)
            if plan.empty:
                return Commit(scope, transaction.head)
            transaction.apply(plan)
        return plan.commit

    def erase(self, scope: Scope) -> None:
        """See `Storage`. The file is written anew; bytes that no scope can be told of are lost with it."""
        arena = self._arena
        if not arena.present():
            return
        with arena.writing() as table:
            if table is None:
                return
            absent = scope not in table.codes and not table.gaps
            if not absent:
                others = [flaw for flaw in inspect(table.file) if flaw.scope not in (None, scope)]
                arena.set_aside(table.file, others)
            arena.keep_set_aside(lambda owner, id: owner not in (None, scope))
            arena.remove_leftovers()
            arena.remove_derived()
            if not absent:
                arena.rewrite(skip=scope, leave_out_damaged=True)

    def compact(self) -> int:
        """See `Storage`. Also drops what was set aside of records that were deleted or written again.

        Raises:
            CorruptionError: a record is damaged; `repair` sets it aside.
        """
        return compact(self._arena)

    def check(self) -> list[Damage]:
        file = self._arena.read(lambda table: table.file, None)
        return [] if file is None else [flaw.damage(self.path) for flaw in inspect(file)]

    def repair(self) -> list[Damage]:
        arena = self._arena
        if not arena.present():
            return []
        with arena.writing(cut=False) as table:
            flaws = [] if table is None else list(inspect(table.file))
            if table is not None and flaws:
                arena.set_aside(table.file, flaws)
                arena.rewrite(leave_out_damaged=True)
        return [flaw.damage(self.path) for flaw in flaws]

    # Vectors.

    @property
    def space(self) -> VectorSpace | None:
        return self._arena.read(lambda table: table.space, None)

    def adopt(self, space: VectorSpace) -> None:
        # Writing finds out, under the lock, whether the file is still of that space.
        if self._adopted == space and self._arena.known_space() == space:
            return
        self._adopt(space)
        self._adopted = space

    def _adopt(self, space: VectorSpace) -> None:
        if self._holds(self.space, space) or self._arena.read_only:
            return
        with self._arena.writing() as table:
            if self._holds(None if table is None else table.space, space):
                return
            written = self._arena.append(SPACE, (space.embedder, space.dim))
        self._arena.sync(written)

    def _holds(self, held: VectorSpace | None, space: VectorSpace) -> bool:
        if held is not None:
            _check_space(self.path, held, space)
        return held is not None

    def reembed(
        self,
        space: VectorSpace,
        encode: Callable[[list[Record]], list[Vectors]],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> int:
        """See `Storage`. Records that have no vectors although they have a text get some, but for messages."""
        done = reembed(self._arena, space, encode, progress)
        self._adopted = space
        return done


class ArenaTransaction:
    """Sole write access to an arena, for one scope."""

    def __init__(self, arena: Arena, scope: Scope, adopted: VectorSpace | None = None) -> None:
        self._arena = arena
        self._scope = scope
        self._adopted = adopted
        # Hash of each id that was looked for.
        self._hashes: dict[str, int] = {}
        # What names its record in the file: 0 for a new one.
        self._births: dict[str, int] = {}
        self.written: Written | None = None

    @property
    def head(self) -> int:
        return self._arena.read(lambda table: table.head(self._scope), 0, fresh=False)

    def look_for(self, ids: Sequence[str]) -> None:
        """Find out which of `ids` are new, in less time than `get` takes for each."""
        try:
            self._hashes = dict(zip(ids, id_hashes(self._scope, ids), strict=True))
        except (AttributeError, UnicodeEncodeError):
            return  # planning tells which is no id
        numbers = list(self._hashes.values())
        unknown = self._arena.read(lambda table: table.unknown(numbers), [True] * len(numbers), fresh=False)
        self._births = {id: 0 for id, new in zip(self._hashes, unknown, strict=True) if new}

    def get(self, id: str) -> Record | None:
        if self._births.get(id) == 0:
            return None
        number = self._hashes.get(id)
        if number is None:
            number = self._hashes[id] = id_hash(self._scope, id)

        def get(table: Table) -> tuple[int, Record | None]:
            row = table.find_hashed(number, id)
            return (0, None) if row is None else (table.birth(row), table.record(row))

        nothing: tuple[int, Record | None] = 0, None
        self._births[id], record = self._arena.read(get, nothing, fresh=False)
        return record

    def tip(self, chain: str) -> int:
        return self._arena.read(lambda table: table.tip(self._scope, chain), 0, fresh=False)

    def apply(self, plan: Plan) -> None:
        plan.check_scope(self._scope)
        data = self._encoded([put for put in plan.puts if put.vectors is not None])
        entries = []
        for put in plan.puts:
            part, count = next(data) if put.vectors is not None else (b"", 0)
            entries.append(put_entry(put.record, *self._identity(put.record.id), part, count))
        entries += [delete_entry(id, *self._identity(id)) for id in plan.deletes]
        self.written = self._arena.append(COMMIT, (plan.scope.user, plan.scope.agent), entries, plan.head)

    def _encoded(self, puts: list[Put]) -> Iterator[tuple[memoryview, int]]:
        """The vectors of each of `puts` as they are stored, and how many they are."""
        if not puts:
            return
        table = self._arena.read(lambda table: table, None, fresh=False)
        if table is None or table.space is None:
            raise InputError(f"{self._arena.path}: expected adopt() before the first vectors; it was not called")
        space, dtype = table.space, table.file.header.dtype
        if self._adopted is not None:
            _check_space(self._arena.path, space, self._adopted)
        rows, counts = check_rows(
            [put.vectors for put in puts], space.dim, lambda number: f"vectors of {puts[number].record.id!r}"
        )
        yield from zip(encode_vectors(rows, counts, dtype), counts, strict=True)

    def _identity(self, id: str) -> tuple[int, int]:
        if id not in self._births:
            self.get(id)
        return self._hashes[id], self._births[id]


def _check_space(path: str, held: VectorSpace, space: VectorSpace) -> None:
    if held != space:
        raise EmbedderMismatchError(path, held.embedder, held.dim, space.embedder, space.dim)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name}: expected {' or '.join(choices)}; found {value!r}")


def _facts(table: Table) -> dict[str, object]:
    header, size, space = table.file.header, table.file.size(), table.space
    return {
        "vector_dtype": header.dtype,
        "file_size": size,
        "records": sum(state.alive for state in table.scopes),
        "scopes": sum(state.alive > 0 for state in table.scopes),
        "dead_rows": table.dead,
        "damaged": len(table.damaged) + table.gaps,
        "torn_tail_bytes": table.file.torn(table.end),
        "indexed_rows": table.indexed,
        "embedder": None if space is None else space.embedder,
        "dim": None if space is None else space.dim,
        "uuid": header.uuid.hex(),
    }
