"""The plumbing of `MemorySystem`: parts, lanes, and the two kinds of work."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from ..changes import Change
from ..config.model import ConversationSettings
from ..errors import ClosedError, ConflictError
from ..interfaces import Generator, Segmenter
from ..memory import Memory
from ..memory.base import retried
from ..pipeline.distil import distil
from ..pipeline.episodes import Episode, retold
from ..pipeline.segmenting import Segmentation, SegmentationTally, segment_with_fallback
from ..pipeline.usage import Usage
from ..records import Record, Scope
from .buffer import ATTEMPTS, Due, MessageBufferManager, find_due
from .cutting import Cut, Cutter
from .jobs import Jobs
from .knowledge import ScopeKnowledge
from .lanes import Lanes
from .stored import stored

__all__ = ["SystemBase"]

_SEGMENTERS = ("batch", "texttiling")
"""Asked in turn where none is configured, as far as plugins offer them; the first needs a generator."""

_CLOSING = 30.0
"""Seconds that `close` gives the work that runs."""


class SystemBase:
    def __init__(
        self,
        memory: Memory,
        *,
        segmenter: Segmenter | str | Mapping[str, Any] | None = None,
        generator: Generator | str | Mapping[str, Any] | None = None,
        settings: ConversationSettings | None = None,
    ) -> None:
        self.memory = memory
        self.settings = ConversationSettings() if settings is None else settings
        with ExitStack() as stack:
            self.generator: Generator | None = (
                None if generator is None else memory.build("generator", generator, stack)
            )
            self.segmenters = _segmenters(memory, segmenter, self.generator is not None, stack)
            self._built = stack.pop_all()
        for each in self.segmenters:
            if each.embedder is None:
                each.embedder = memory.embedder
        self.buffers = MessageBufferManager(memory)
        self._usage = Usage(self.settings.token_budget)
        self._segmented = SegmentationTally()
        self._cutter = Cutter(memory, self.settings, self._segment, self._phase, memory.clock)
        self._jobs = Jobs(
            memory,
            self._retell,
            self._distil if self.settings.facts else None,
            self.settings.attempts,
            memory.plugins.episode_distilled,
        )
        self._lanes = Lanes(self._work, self.settings.workers)
        self._touched: set[Scope] = set()
        self._dropped = 0
        self._owns_memory = False
        self._closed = False

    # Life.

    def close(self, timeout: float | None = _CLOSING) -> bool:
        """Let the work that runs come to its end, for at most `timeout` seconds (None: however long), and close.

        Nothing is lost by a time-out: messages that wait, and episodes whose facts are not drawn, are found again by
        whoever opens the store next. What a model is being asked then is given up, if the model was made here.
        Returns True if no work was cut off. May be called more than once.
        """
        if self._closed:
            return True
        try:
            return self._lanes.close(timeout)
        finally:
            # Also when Ctrl-C ends the wait. Closing the generator ends the calls that are under way.
            self._closed = True
            self._built.close()
            if self._owns_memory:
                self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever presses Ctrl-C does not want to wait for a model.
        self.close(0.0 if kind is KeyboardInterrupt else _CLOSING)

    # Plumbing.

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the memory system is closed; open it again to go on")

    def _scope(self, user: str | None, agent: str | None) -> Scope:
        self._check_open()
        return self.memory.scope.other(user, agent)

    def _episode(self, scope: Scope, record: Record) -> Episode:
        return Episode.from_record(record, scope.user, scope.agent)

    def _phase(self, name: str) -> Generator | None:
        return None if self.generator is None else self._usage.meter(self.generator, name)

    def _segment(self, messages: Sequence[Record]) -> Segmentation:
        found = segment_with_fallback(self.segmenters, messages, self._phase("segmentation"))
        self._segmented.add(found)
        return found

    def _touch(self, scope: Scope, due: bool = True) -> None:
        """Have the scope worked on if there may be something to do."""
        new = scope not in self._touched
        self._touched.add(scope)
        if new or (due and (self._lanes.active(scope) or self._may_be_due(scope))):
            self._lanes.ask(scope)

    def _may_be_due(self, scope: Scope) -> bool:
        try:
            return self._due(self._waiting(scope)) is not None
        except Exception:
            # The message is stored, so this must not look like a failure to store it. The round tells what is wrong.
            return True

    def _waiting(self, scope: Scope) -> list[Record]:
        return self.buffers.buffer(scope.user, scope.agent).records()

    def _due(self, waiting: Sequence[Record]) -> Due | None:
        return find_due(waiting, self.settings, self.segmenters[0] if self.segmenters else None)

    def _work(self, scope: Scope) -> None:
        while self._cut(scope) is not None:
            pass
        if self.generator is not None:
            self._jobs.run(scope)

    def _cut(self, scope: Scope, given: Due | None = None, ids: Collection[str] | None = None) -> Cut | None:
        """Make episodes, in one commit, of the messages that are due; with `given`, of all, or of those with `ids`.

        None if there are none.
        """

        def cut_once() -> Cut | None:
            waiting = [record for record in self._waiting(scope) if ids is None or record.id in ids]
            due = self._due(waiting) if given is None else given
            if due is None or not waiting:
                return None
            cut = self._cutter.cut(scope, waiting[: due.count], due.reason)
            # Of a model that was closed meanwhile there are no narratives to keep.
            self._check_open()
            try:
                self.memory.commit(cut.changes, user=scope.user, agent=scope.agent)
            except ConflictError:
                self._dropped += 1
                raise
            return cut

        cut = retried(cut_once, ATTEMPTS)
        for record in stored(self.memory, scope, () if cut is None else cut.episodes):
            self.memory.plugins.episode_created(scope, record)
        return cut

    def _retell(self, episode: Record) -> Record:
        generator = self._phase("episode")
        assert generator is not None
        return retold(episode, generator)

    def _distil(self, scope: Scope, episode: Record) -> tuple[list[Change], dict[str, Any]]:
        generator = self._phase("facts")
        assert generator is not None
        known = ScopeKnowledge(self.memory, scope, self.settings)
        return distil(episode, known, generator, self.memory.clock(), same=known.same)


def _segmenters(
    memory: Memory, given: Segmenter | str | Mapping[str, Any] | None, has_generator: bool, stack: ExitStack
) -> list[Segmenter]:
    """The segmenter that was given, then those that take over, as far as there are such plugins."""
    chosen: list[Segmenter] = [] if given is None else [memory.build("segmenter", given, stack)]
    offered = {offer.name for offer in memory.plugins.classes("segmenter")} - {each.name for each in chosen}
    more = [name for name in _SEGMENTERS if name in offered and (name != "batch" or (has_generator and not chosen))]
    return chosen + [memory.build("segmenter", name, stack) for name in more]
