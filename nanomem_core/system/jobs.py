"""What a model does for episodes that are stored: telling those that are transcripts, and drawing facts.

What is to do can be read off the store, so that no crash forgets it or does it twice: an episode with the mark
``fallback`` is to be told, one without the mark ``distilled`` to be distilled. The facts and that mark come in one
commit, which expects the episode to be as it was; of two processes that worked on one episode, the second's work is
dropped. A failure is counted in the episode itself; after so many the episode is set aside until `Jobs.retry`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..changes import Change, Put
from ..columns import Columns
from ..errors import (
    AuthenticationError,
    BudgetError,
    ClosedError,
    ConflictError,
    RateLimitedError,
    StorageError,
    UnreachableError,
)
from ..hints import one_line
from ..memory import Memory
from ..memory.base import retried
from ..records import Record, Scope
from .buffer import ATTEMPTS
from .stored import stored

__all__ = ["Distil", "Jobs", "attempts_of"]

_NO_FAULT_OF_THE_EPISODE = (
    AuthenticationError,
    BudgetError,
    ClosedError,
    ConflictError,
    RateLimitedError,
    StorageError,
    UnreachableError,
)
"""What says nothing about the episode that was being worked on, and would stop the work on the next one as well."""

_TO_TELL = {"fallback": {"$exists": True}}
_TO_DISTIL = {"distilled": {"$exists": False}}
_MAX_ERROR = 300
_IDLE_ROUNDS = 3

Distil = Callable[[Scope, Record], tuple[list[Change], dict[str, Any]]]
"""The changes that the facts of an episode make, and a report of them in JSON types; raises GeneratorError."""


class Jobs:
    """The episodes of a memory for which a model has something to do.

    Args:
        tell: the episode, whose text is a transcript, as a model tells it; raises GeneratorError.
        distil: None where no facts are drawn.
        done: told of each episode whose facts were drawn.

    Attributes:
        dropped: how often work was dropped since somebody else had done it, or the episode had changed.
    """

    def __init__(
        self,
        memory: Memory,
        tell: Callable[[Record], Record],
        distil: Distil | None,
        attempts: int,
        done: Callable[[Scope, str, dict[str, Any]], None],
    ) -> None:
        self._memory = memory
        self._tell = tell
        self._distil = distil
        self._attempts = attempts
        self._done = done
        self.dropped = 0

    def pending(self, scope: Scope) -> list[Record]:
        """What is to do, the oldest episode first."""
        return [record for record in self._to_do(scope) if attempts_of(record) < self._attempts]

    def dead(self, scope: Scope) -> list[Record]:
        """What failed too often."""
        return [record for record in self._to_do(scope) if attempts_of(record) >= self._attempts]

    def lacks(self, episode: Record) -> list[str]:
        """What is to do for an episode, in this order: ``account``, ``facts``."""
        metadata = episode.metadata
        if "merged_into" in metadata:
            return []
        untold = "fallback" in metadata and bool(metadata.get("messages"))
        return ["account"] * untold + ["facts"] * (self._distil is not None and "distilled" not in metadata)

    def run(self, scope: Scope) -> None:
        """Do what is to do, one episode after the other; each is tried until it is done or its attempts are used.

        Raises:
            GeneratorError: the model can't be asked at all (no token is left, nobody answers, the key is refused);
                what is to do stays to be done, and no attempt is counted.
            StorageError: the store failed; likewise.
        """
        idle = 0
        # If nothing comes of it again and again, others are at the same episodes; the next run finds what they leave.
        while idle < _IDLE_ROUNDS and (pending := self.pending(scope)):
            done = [self._run_one(scope, episode) for episode in pending]
            idle = 0 if any(done) else idle + 1

    def retry(self, scope: Scope, id: str | None = None) -> list[str]:
        """Let what failed too often (the episode `id`, or all) be tried anew; returns the ids."""
        chosen = [record for record in self.dead(scope) if id in (None, record.id)]
        for record in chosen:
            self._put(scope, replace(record, metadata=_without_failures(record)))
        return [record.id for record in chosen]

    def _to_do(self, scope: Scope) -> list[Record]:
        wanted = {"$or": [_TO_TELL, _TO_DISTIL]} if self._distil is not None else _TO_TELL
        entries = self._memory.records(kind="episode", filter=wanted, user=scope.user, agent=scope.agent)
        there = stored(self._memory, scope, (entry.id for entry in entries))
        return sorted(filter(self.lacks, there), key=lambda record: record.valid_from)

    def _run_one(self, scope: Scope, episode: Record) -> bool:
        """Do what `episode` lacks; False if that came to nothing since somebody else wrote meanwhile."""
        steps = {"account": self._retell, "facts": self._draw}
        failure: Exception | None = None
        try:
            for lacking in self.lacks(episode):
                try:
                    episode = steps[lacking](scope, episode)
                except _NO_FAULT_OF_THE_EPISODE:
                    raise
                except Exception as error:
                    # Whatever it is, neither the next step nor the episodes behind this one shall wait for ever.
                    failure = error
            if failure is not None:
                failed = {"job_attempts": attempts_of(episode) + 1, "job_error": one_line(failure)[:_MAX_ERROR]}
                self._put(scope, replace(episode, metadata={**episode.metadata, **failed}))
        except ConflictError:
            self.dropped += 1
            return False
        return True

    def _retell(self, scope: Scope, episode: Record) -> Record:
        told = self._tell(episode)
        return self._put(scope, replace(told, metadata=_without_failures(told)))

    def _draw(self, scope: Scope, episode: Record) -> Record:
        assert self._distil is not None
        known = _facts_of(self._memory.storage.columns(scope))
        changes, report = self._distil(scope, episode)
        marked = replace(episode, metadata={**_without_failures(episode), "distilled": report})
        self._put_facts(scope, known, [*changes, Put(marked, expect=episode.version)])
        self._done(scope, episode.id, report)
        return self._stored(scope, episode.id)

    def _put(self, scope: Scope, episode: Record) -> Record:
        self._memory.commit([Put(episode, expect=episode.version)], user=scope.user, agent=scope.agent)
        return self._stored(scope, episode.id)

    def _stored(self, scope: Scope, id: str) -> Record:
        record = self._memory.storage.get(scope, id)
        if record is None:
            raise ConflictError(f"scope {scope}: the episode {id!r} was deleted while it was worked on")
        return record

    def _put_facts(self, scope: Scope, known: _Facts, changes: list[Change]) -> None:
        """Commit what was drawn if the facts that it was compared with are all there are still.

        Otherwise two processes could draw one fact from two episodes at the same time.
        """

        def put() -> bool:
            columns = self._memory.storage.columns(scope)
            if _facts_of(columns) != known:
                return False
            self._memory.commit(changes, expect_head=columns.head, user=scope.user, agent=scope.agent)
            return True

        if not retried(put, ATTEMPTS):
            raise ConflictError(f"scope {scope}: its facts changed while more were drawn; draw them again")


_Facts = tuple[float, ...]
"""Differs where the facts differ, for all that writing facts does to them."""


def _facts_of(columns: Columns) -> _Facts:
    facts = columns.where("fact")
    numbers = (columns.recorded_at, columns.valid_from, columns.revision)
    return (float(np.count_nonzero(facts)), *(float(column[facts].sum()) for column in numbers))


def attempts_of(episode: Record) -> int:
    """How often working on it failed."""
    attempts = episode.metadata.get("job_attempts")
    return attempts if isinstance(attempts, int) else 0


def _without_failures(episode: Record) -> dict[str, Any]:
    return {key: value for key, value in episode.metadata.items() if key not in ("job_attempts", "job_error")}
