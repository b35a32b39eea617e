"""Looking at conversations: episodes, search, how it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..hints import one_line
from ..pipeline.episodes import Episode
from ..pipeline.search import Mode
from ..ranking import NAMED_WEIGHT, TEXT_WEIGHT, VECTOR_WEIGHT
from ..records import Record
from ..results import SearchResults
from ..times import TimeLike
from .base import SystemBase
from .jobs import attempts_of

__all__ = ["Reading"]

KINDS = ("episode", "fact")
"""What `MemorySystem.search` looks at by default."""

SEARCHED = ("message", "episode", "fact", "summary")


def _unbounded(score: float) -> float:
    return score / (score + 1.0)


def _part(score: float) -> float:
    return score / (TEXT_WEIGHT + VECTOR_WEIGHT + NAMED_WEIGHT)


def _positive(score: float) -> float:
    return max(0.0, score)


_SCALES = {"text": _unbounded, "hybrid": _part, "vector": _positive}


class Reading(SystemBase):
    """The part of `MemorySystem` that reads; it makes nothing, not even a scope."""

    def episodes(self, *, merged: bool = False, user: str | None = None, agent: str | None = None) -> list[Episode]:
        """The episodes in the order of time; with `merged` also those that another one goes on with."""
        scope = self._scope(user, agent)
        records = self.memory.storage.snapshot(scope, "episode").records
        shown = [record for record in records if merged or "merged_into" not in record.metadata]
        return [self._episode(scope, record) for record in sorted(shown, key=lambda record: record.valid_from)]

    def episode(self, id: str, *, user: str | None = None, agent: str | None = None) -> Episode | None:
        """The episode with that id, or None."""
        scope = self._scope(user, agent)
        record = self.memory.storage.get(scope, id)
        return None if record is None or record.kind != "episode" else self._episode(scope, record)

    def search(
        self,
        query: str,
        top_k: int | None = None,
        *,
        kinds: Sequence[str] = KINDS,
        mode: Mode | None = None,
        neighbours: bool | None = None,
        filter: Mapping[str, Any] | None = None,
        min_score: float = 0.0,
        as_of: TimeLike | None = None,
        known_at: TimeLike | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> SearchResults:
        """The episodes and facts that answer `query` best, in one list; the entries are those of `Memory.search`.

        An episode that another one continues is left out, since that one tells all of it; `Memory.search` shows both,
        the older one labelled as superseded.

        `score` lies between 0 and 1 in every mode: in ``vector`` it is the cosine (0 where that is negative); in
        ``hybrid`` the fused score as a part of the highest there can be; in ``text`` b / (b + 1) for a BM25 score of b.
        Scores of one mode grow with the fit; those of different modes, or questions, do not compare.

        Args:
            top_k: how many at most; by default as many as `search_all` gives in all.
            kinds: ``episode``, ``fact``, and also ``summary`` and ``message`` (what waits to become an episode, found
                by its words: not in mode ``vector``, nor with a `min_score` in mode ``hybrid``).

        Raises:
            InputError: an unknown kind or mode.
        """
        if isinstance(kinds, str) or not kinds or not set(kinds) <= set(SEARCHED):
            raise InputError(f"kinds: expected some of {', '.join(SEARCHED)}; found {kinds!r}")
        limit = self.settings.search_top_k_episodes + self.settings.search_top_k_facts
        conditions = [{"kind": {"$in": list(kinds)}}, {"merged_into": {"$exists": False}}, filter]
        found = self.memory.search(
            query,
            limit if top_k is None else top_k,
            {"$and": [condition for condition in conditions if condition]},
            min_score,
            mode=mode,
            neighbours=neighbours,
            kind=None,
            as_of=as_of,
            known_at=known_at,
            user=user,
            agent=agent,
        )
        scale = _SCALES[found.summary["mode"]]
        for hit in found:
            hit["score"] = scale(hit["score"])
        return found

    def search_all(
        self, query: str, *, top_k_episodes: int | None = None, top_k_facts: int | None = None, **options: Any
    ) -> dict[str, SearchResults]:
        """The best ``episodes`` and the best ``facts``, each searched by itself; `options` are those of `search`."""
        limits = self.settings.search_top_k_episodes, self.settings.search_top_k_facts
        given = zip(("episode", "fact"), (top_k_episodes, top_k_facts), limits, strict=True)
        return {
            f"{kind}s": self.search(query, limit if top_k is None else top_k, kinds=(kind,), **options)
            for kind, top_k, limit in given
        }

    def stats(self, *, user: str | None = None, agent: str | None = None) -> dict[str, Any]:
        """Counts, as JSON types, and nothing of what was said.

        Of the scope: ``messages`` that wait, ``episodes``, ``merged`` (those that another one goes on with), ``facts``.
        Of all scopes, since this was opened: ``dropped`` (work that somebody else had done first), ``segmentation``
        (what each segmenter did, `nanomem_core.pipeline.segmenting.SegmentationTally.to_dict`), and ``usage`` of the
        model (`nanomem_core.pipeline.usage.Usage.to_dict`).
        """
        scope = self._scope(user, agent)
        columns = self.memory.storage.columns(scope)
        episodes = self.episodes(merged=True, user=scope.user, agent=scope.agent)
        merged = sum("merged_into" in episode.metadata for episode in episodes)
        return {
            "user": scope.user,
            "agent": scope.agent,
            "messages": int(columns.where("message").sum()),
            "episodes": len(episodes) - merged,
            "merged": merged,
            "facts": int(columns.where("fact").sum()),
            "dropped": self._dropped + self._jobs.dropped,
            "segmentation": self._segmented.to_dict(),
            "usage": self._usage.to_dict(),
        }

    def health(self, *, ask: bool = False) -> dict[str, dict[str, Any]]:
        """Whether the ``storage``, the ``embedder`` and the ``generator`` work: ``ok`` and ``detail`` for each.

        The first two are tried. The generator is asked only with `ask`, since that may cost something; else, and where
        there is none, its ``ok`` is None.
        """
        self._check_open()
        checks: dict[str, dict[str, Any]] = {
            "storage": _tried(lambda: f"{len(self.memory.storage.scopes())} scopes"),
            "embedder": _tried(lambda: f"{self.memory.embedder.embed('health').shape[0]} dimensions"),
            "generator": {"ok": None, "detail": "not asked"},
        }
        generator = self._phase("health")
        if generator is None:
            checks["generator"]["detail"] = "there is none"
        elif ask:
            checks["generator"] = _tried(
                lambda: f"answered {len(generator.generate('Say OK.', max_tokens=8))} characters"
            )
        return checks

    def status(self, *, user: str | None = None, agent: str | None = None) -> dict[str, Any]:
        """What is still to do in a scope, as JSON types.

        ``waiting`` (messages), ``running`` (True while it is worked on here), ``pending`` and ``dead`` (episodes with
        something left for a model to do, or that it failed at too often: ``id, title, lacks, attempts, error``, where
        ``lacks`` names the ``account``, the ``facts``, or both), and ``error``, what stopped the work here last, or
        None.
        """
        scope = self._scope(user, agent)
        error = self._lanes.failures.get(scope)
        return {
            "waiting": self.buffers.buffer(scope.user, scope.agent).size(),
            "running": self._lanes.active(scope),
            "pending": [] if self.generator is None else [self._job(each) for each in self._jobs.pending(scope)],
            "dead": [self._job(record) for record in self._jobs.dead(scope)],
            "error": None if error is None else one_line(error),
        }

    def _job(self, record: Record) -> dict[str, Any]:
        return {
            "id": record.id,
            "title": record.metadata.get("title", ""),
            "lacks": self._jobs.lacks(record),
            "attempts": attempts_of(record),
            "error": record.metadata.get("job_error"),
        }


def _tried(probe: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"ok": True, "detail": probe()}
    except Exception as error:
        return {"ok": False, "detail": one_line(error)}
