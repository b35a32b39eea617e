"""The plumbing of `Memory`: components, scopes, frames, and the one way to commit."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..changes import Change, Delete, Put, Vectors
from ..columns import ColumnSource, Rows
from ..errors import ClosedError, ConflictError, CorruptionError, InputError, NanomemError
from ..filters import parse_filter
from ..frame import Frame
from ..index.sidecar import VectorSidecar
from ..interfaces import Embedder, Generator, Storage, Tagger, VectorSpace
from ..interfaces.component import Closing
from ..pipeline.chunking import passages
from ..pipeline.search import Mode
from ..records import KINDS, Record, Scope
from ..registry.manager import PluginManager
from ..times import Clock, TimeLike, parse_time, system_clock
from ..tokens import Tokenizer
from ..view import View, has_vectors

__all__ = ["MemoryBase", "retried"]

_T = TypeVar("_T")

_ATTEMPTS = 3
_EMBED_BATCH = 256

_MANY = 4096
"""Records that have to be new before closing prepares searches for them."""


def retried(work: Callable[[], _T], attempts: int = _ATTEMPTS) -> _T:
    """What `work` returns, done anew when somebody else wrote meanwhile.

    Raises:
        ConflictError: somebody else wrote during each attempt.
    """
    for _ in range(attempts - 1):
        with contextlib.suppress(ConflictError):
            return work()
    return work()


@dataclass(slots=True)
class _Pending:
    """What a batch will commit to one scope."""

    changes: list[Change] = field(default_factory=list)
    expect_head: int | None = None

    def add(self, changes: Sequence[Change], expect_head: int | None) -> None:
        self.changes += changes
        # What was computed first saw the oldest head.
        if self.expect_head is None:
            self.expect_head = expect_head


class MemoryBase(Closing):
    def __init__(
        self,
        storage: Storage | str | Mapping[str, Any],
        embedder: Embedder | str | Mapping[str, Any] = "lexical",
        *,
        taggers: Sequence[Tagger | str | Mapping[str, Any]] = ("keyword",),
        generator: Generator | str | Mapping[str, Any] | None = None,
        plugins: PluginManager | None = None,
        user: str = "default",
        agent: str = "default",
        mode: Mode = "hybrid",
        neighbours: bool = False,
        top_k: int = 3,
        language: str = "english",
        clock: Clock = system_clock,
        data_dir: Path | None = None,
    ) -> None:
        self.plugins = PluginManager.discover() if plugins is None else plugins
        self._data_dir = data_dir
        self._closed = False
        self.scope = Scope(user, agent)
        self.mode: Mode = mode
        self.neighbours = neighbours
        self.top_k = top_k
        self._tokenizer = Tokenizer(language)
        self._clock = clock
        with contextlib.ExitStack() as stack:
            self.storage: Storage = self.build("storage", storage, stack)
            self.embedder: Embedder = self.build("embedder", embedder, stack)
            self.taggers: list[Tagger] = [self.build("tagger", tagger, stack) for tagger in taggers]
            self._built = stack.pop_all()
        self._generator = generator
        self._lock = threading.Lock()
        self._views: dict[Scope, View] = {}
        self._fitting: ColumnSource | None = None  # whose vectors are known to be of the embedder's space
        self._sidecar: VectorSidecar | None = None
        self._batch = threading.local()
        self._last_entity: dict[tuple[Scope, str], str] = {}
        self._written: dict[Scope, int] = {}

    # Life.

    def close(self) -> None:
        """Close the store, and the components that were built here. May be called more than once.

        Everything acknowledged is durable already; what searches derive from many new records is prepared now, so that
        the next one to open the store need not. Components that were given as instances stay open.
        """
        if not self._closed:
            for scope, count in self._written.items():
                if count >= _MANY:
                    # Derived, so whatever hinders it is no reason to fail.
                    with contextlib.suppress(NanomemError):
                        self._view(scope).prepare(self.storage.columns(scope))
            self._closed = True
            self.storage.close()
            self._built.close()

    def flush(self) -> None:
        """Does nothing but check that the memory is open: each write is durable when it returns."""
        self._check_open()

    @property
    def generator(self) -> Generator | None:
        """The model that answers where a call names none; None if there is none. Built when it is first asked for."""
        with self._lock:
            if self._generator is None or isinstance(self._generator, Generator):
                return self._generator
            built: Generator = self.build("generator", self._generator, self._built)
            self._generator = built
            return built

    @property
    def clock(self) -> Clock:
        """The present, in unix seconds, as this memory sees it."""
        return self._clock

    def build(self, kind: str, spec: object, stack: contextlib.ExitStack | None = None) -> Any:
        """The component that `spec` describes; see `PluginManager.build`. Relative paths start from the `data_dir`.

        One that is made for it, rather than given, is closed with `stack`.
        """
        self._check_open()
        component = self.plugins.build(kind, spec, data_dir=self._data_dir)
        if stack is not None and component is not spec:
            stack.callback(component.close)
        return component

    # Plumbing.

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the memory is closed; open it again to go on")

    def _refuse_in_batch(self, method: str) -> None:
        if getattr(self._batch, "pending", None) is not None:
            raise InputError(f"{method} rewrites files at once, so it can't be part of a batch; call it outside")

    def _scope(self, user: str | None, agent: str | None) -> Scope:
        self._check_open()
        return self.scope.other(user, agent)

    def _frame(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        kind: str | None = "fact",
        filter: Mapping[str, Any] | None = None,
        entity: str | None = None,
        as_of: TimeLike | None = None,
        known_at: TimeLike | None = None,
    ) -> Frame:
        scope = self._scope(user, agent)
        if kind is not None and kind not in KINDS:
            raise InputError(f"kind: expected one of {', '.join(KINDS)}, or None for all; found {kind!r}")
        return Frame(
            self.storage.columns(scope),
            self._view(scope),
            self._clock(),
            kind,
            parse_filter(filter),
            entity,
            None if as_of is None else parse_time(as_of, "as_of"),
            None if known_at is None else parse_time(known_at, "known_at"),
        )

    def _frame_of(self, id: str, **options: Any) -> tuple[Frame, int | None]:
        """A frame, and the row of `id` in it; None if there is no such record any more."""
        while True:
            frame = self._frame(**options)
            try:
                return frame, frame.row(id)
            except ConflictError:
                continue

    def _view(self, scope: Scope) -> View:
        with self._lock:
            view = self._views.get(scope)
            if view is None:
                embed = None if self.storage.keeps_vectors else self._embed
                view = View(
                    lambda: self.embedder.dim,
                    self._tokenizer,
                    embed,
                    lambda id: self._stored(scope, id),
                    self._kept_path("codes", scope, self.embedder.id),
                    self._kept_path("words", scope, self._tokenizer.id),
                    not self.storage.read_only,
                )
                self._views[scope] = view
            return view

    def _kept_path(self, what: str, scope: Scope, maker: str) -> Path | None:
        """Where to keep what `maker` derived from a scope of a store that has the vectors, too."""
        folder = self.storage.derived() if self.storage.keeps_vectors else None
        name = hashlib.blake2b(f"{scope.user}\0{scope.agent}\0{maker}".encode(), digest_size=16).hexdigest()
        return None if folder is None else folder / f"{what}-{name}.bin"

    def _stored(self, scope: Scope, id: str) -> Record | None:
        try:
            return self.storage.get(scope, id)
        except CorruptionError:
            return None

    def _commit(
        self,
        scope: Scope,
        changes: Sequence[Change],
        expect_head: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """The one way to write: hooks see the changes, texts are embedded, the store commits, hooks are told."""
        self._check_open()
        batch: dict[Scope, _Pending] | None = getattr(self._batch, "pending", None)
        if batch is not None:
            batch.setdefault(scope, _Pending()).add(changes, expect_head)
            return
        given = tuple(changes)
        changes = self.plugins.before_commit(scope, given)
        if changes is not given:
            texts = {c.record.id: c.record.text for c in given if isinstance(c, Put)}
            changes = [
                replace(c, vectors=None) if isinstance(c, Put) and texts.get(c.record.id) != c.record.text else c
                for c in changes
            ]
        if self.storage.keeps_vectors:
            changes = self._with_vectors(changes, progress)
        commit = self.storage.commit(scope, changes, expect_head)
        if commit.records or commit.deleted:
            if self.storage.keeps_vectors:
                self._written[scope] = self._written.get(scope, 0) + len(commit.records)
            self.plugins.committed(commit)

    def _update(self, scope: Scope, compute: Callable[[Frame], Sequence[Change]], **options: Any) -> None:
        """Commit what `compute` makes of the present state; computed anew when somebody else wrote meanwhile."""

        def attempt() -> None:
            frame = self._frame(user=scope.user, agent=scope.agent, **options)
            changes = compute(frame)
            if changes:
                self._commit(scope, changes, expect_head=frame.columns.head)

        retried(attempt)

    def _rewrite(self, scope: Scope, id: str, change: Callable[[Record], Record], expect: int | None) -> bool:
        def attempt() -> bool:
            record = self.storage.get(scope, id)
            if record is None or record.kind == "purged":
                return False
            wanted = record.version if expect is None else expect
            changed = change(record)
            vectors = self._kept_vectors(scope, record) if changed.text == record.text else None
            self._commit(scope, [Put(changed, expect=wanted, vectors=vectors)])
            return True

        return retried(attempt, _ATTEMPTS if expect is None else 1)

    def _kept_vectors(self, scope: Scope, record: Record) -> Vectors | None:
        """The vectors that the store has for `record` as it is, None where it keeps none or wrote it since."""
        if not self.storage.keeps_vectors or not record.text:
            return None
        self._adopt()
        source = self.storage.columns(scope).source
        row = source.row(record.id)
        if row is None or source.records(np.array([row], np.intp)) != [record]:
            return None
        vectors, _ = source.vectors(np.array([row], np.intp))
        return vectors if len(vectors) else None

    def _remove(self, choose: Callable[[Frame], Rows], *, dry_run: bool = False, **options: Any) -> list[str]:
        """Delete the rows that `choose` names, on the newest head; returns their ids."""
        removed: list[str] = []

        def changes(frame: Frame) -> list[Change]:
            rows = choose(frame)
            removed[:] = frame.columns.source.ids(rows)
            return [] if dry_run else [Delete(id) for id in removed]

        scope = self._scope(options.pop("user", None), options.pop("agent", None))
        self._update(scope, changes, **options)
        return removed

    def _adopt(self, *, first: bool = False) -> None:
        """Make sure that the store's vectors and the embedder's are of one space, before anything is compared.

        A store of nobody's vectors becomes the embedder's with the `first` one that it has given: before that, its
        width may turn out to be wrong.
        """
        # Asked each time: another process may have put in the vectors of another embedder since.
        if not self.storage.keeps_vectors:
            return
        held = self.storage.space
        if first if held is None else held != self._space():
            self.storage.adopt(self._space())

    def _space(self) -> VectorSpace:
        return VectorSpace(self.embedder.id, self.embedder.dim)

    def _with_vectors(self, changes: Sequence[Change], progress: Callable[[int, int], None] | None) -> Sequence[Change]:
        missing = [c for c in changes if isinstance(c, Put) and c.vectors is None and has_vectors(c.record)]
        if not missing and not any(isinstance(c, Put) and c.vectors is not None for c in changes):
            return changes
        self._adopt()  # so that no text is embedded in vain
        matrices = iter(self._embed([put.record for put in missing], progress))
        self.storage.adopt(self._space())
        return [
            replace(c, vectors=next(matrices))
            if isinstance(c, Put) and c.vectors is None and has_vectors(c.record)
            else c
            for c in changes
        ]

    def _embed(self, records: list[Record], progress: Callable[[int, int], None] | None = None) -> list[Vectors]:
        """One matrix (m, dim) a record: a unit row for each passage of its text."""
        parts = [passages(record.text) for record in records]
        texts = [text for part in parts for text in part]
        encode: Callable[[Sequence[str]], Vectors] = self.embedder.embed_batch
        if not self.storage.keeps_vectors:
            encode = self._derived_vectors().encoder(encode)
        blocks = []
        for start in range(0, len(texts), _EMBED_BATCH):
            blocks.append(encode(texts[start : start + _EMBED_BATCH]))
            if progress is not None:
                progress(min(start + _EMBED_BATCH, len(texts)), len(texts))
        rows = np.concatenate(blocks) if blocks else np.empty((0, 0), np.float32)
        ends = np.cumsum([len(part) for part in parts])
        return np.split(rows, ends[:-1]) if parts else []

    def _derived_vectors(self) -> VectorSidecar:
        with self._lock:
            if self._sidecar is None:
                self._sidecar = VectorSidecar(self.storage.derived(), self._space())
            return self._sidecar
