"""From waiting messages to episodes: what to commit, worked out from a snapshot, without any lock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ..changes import Change, Delete, Put
from ..config.model import ConversationSettings
from ..interfaces import Generator
from ..memory import Memory
from ..pipeline.episodes import Episode, Narrative, arrange_groups, make_episode, narrate, text_of
from ..pipeline.merging import choose_merge, gap, merge_changes, move_sources
from ..pipeline.messages import Message
from ..pipeline.segmenting import Segmentation
from ..records import Record, Scope
from ..times import Clock
from .stored import stored

__all__ = ["Cut", "Cutter", "drawn_from"]


@dataclass(slots=True)
class Cut:
    """What one commit does to the buffer of a scope.

    Attributes:
        episodes: ids of the new episodes, in the order of time; merged ones among them.
        merged: stored episodes that go on in new ones, and these.
        changes: takes the messages away and puts the episodes; each change expects what the snapshot held.
    """

    episodes: list[str] = field(default_factory=list)
    merged: dict[str, str | None] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)


class Cutter:
    """Makes a `Cut` of the messages of a scope.

    Args:
        segment: proposes groups of messages (see `nanomem_core.pipeline.segmenting`).
        generator: gives the generator for a phase of the work, None where there is none.
    """

    def __init__(
        self,
        memory: Memory,
        settings: ConversationSettings,
        segment: Callable[[Sequence[Record]], Segmentation],
        generator: Callable[[str], Generator | None],
        clock: Clock,
    ) -> None:
        self._memory = memory
        self._settings = settings
        self._segment = segment
        self._generator = generator
        self._clock = clock
        self._pause = float("inf") if settings.gap_minutes is None else 60 * settings.gap_minutes

    def cut(self, scope: Scope, waiting: Sequence[Record], why: str) -> Cut:
        """Turn `waiting` messages (at least one, in the order of time) into episodes; `why` now. Writes nothing."""
        messages = [Message.from_record(record) for record in waiting]
        proposal = self._segment(waiting)
        topics = {
            index: topic for group, topic in zip(proposal.groups, proposal.topics, strict=True) for index in group
        }
        groups = arrange_groups(
            proposal.groups, messages, self._settings.min_messages, self._settings.max_messages, self._pause
        )
        cut = Cut(changes=[Delete(record.id, expect=record.version) for record in waiting])
        for number, group in enumerate(groups, 1):
            reason = f"{why}; part {number} of {len(groups)} by {proposal.segmenter}"
            self._add(cut, scope, [messages[index] for index in group], reason, topics[group[0]])
        cut.changes += [
            Put(move_sources(record, cut.merged), expect=record.version)
            for record in drawn_from(self._memory, scope, cut.merged)
        ]
        return cut

    def _add(self, cut: Cut, scope: Scope, messages: list[Message], reason: str, topic: str | None) -> None:
        now = self._clock()
        narrative = narrate(messages, self._generator("episode"), reason)
        generator = self._generator("merge")
        merge = None
        if self._settings.merge and generator is not None and narrative.fallback is None:
            candidates = self._candidates(scope, narrative, messages, cut.merged)
            merge = choose_merge(narrative, candidates, generator)
        if merge is None:
            episode = make_episode(messages, narrative, now, reason, topic)
            cut.changes.append(Put(episode, expect=0))
        else:
            episode, changes = merge_changes(merge, messages, now, reason)
            cut.merged[merge.target.id] = episode.id
            cut.changes += changes
        cut.episodes.append(episode.id)

    def _candidates(
        self, scope: Scope, narrative: Narrative, messages: Sequence[Message], taken: Collection[str]
    ) -> list[Record]:
        """Stored episodes that are near in meaning and in time, the nearest in meaning first."""
        settings = self._settings
        hits = self._memory.search(
            text_of(narrative.title, narrative.content),
            settings.merge_top_k,
            {"merged_into": {"$exists": False}, "fallback": {"$exists": False}},
            settings.merge_similarity,
            "present",
            decompose=False,
            mode="vector",
            neighbours=False,
            kind="episode",
            user=scope.user,
            agent=scope.agent,
        )
        return [
            record
            for record in stored(self._memory, scope, (hit.id for hit in hits if hit.id not in taken))
            if gap(messages, Episode.from_record(record).messages) <= 60 * settings.merge_gap_minutes
        ]


def drawn_from(memory: Memory, scope: Scope, episodes: Collection[str]) -> list[Record]:
    """The records that name one of `episodes` among their sources."""
    if not episodes:
        return []
    filter = {"derived_from": {"$in": list(episodes)}}
    named = memory.records(filter=filter, kind=None, user=scope.user, agent=scope.agent)
    return stored(memory, scope, (entry.id for entry in named))
