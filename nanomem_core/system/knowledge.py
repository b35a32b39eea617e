"""What a scope knows, as drawing facts asks for it (`nanomem_core.pipeline.consolidate.Known`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..config.model import ConversationSettings
from ..memory import Memory
from ..records import Record, Scope
from ..results import Entry
from .stored import stored

__all__ = ["ScopeKnowledge"]


class ScopeKnowledge:
    """The facts of one scope of a memory that hold now."""

    def __init__(self, memory: Memory, scope: Scope, settings: ConversationSettings) -> None:
        self._memory = memory
        self._scope = scope
        self._settings = settings

    def related(self, text: str) -> Sequence[Record]:
        """Facts that hold now and are near `text` in meaning, the nearest first; within the limits of the settings."""
        hits = self._memory.search(
            text,
            self._settings.related_facts,
            min_score=self._settings.related_similarity,
            temporal_direction="present",
            decompose=False,
            mode="vector",
            neighbours=False,
            user=self._scope.user,
            agent=self._scope.agent,
        )
        return self._records(hit for hit in hits if not hit["superseded"])

    def value_of(self, entity: str) -> Record | None:
        """The value of that attribute which holds now; not of one that belongs to a ``user_id`` or ``project``."""
        current = self._memory.current(entity=entity, user=self._scope.user, agent=self._scope.agent)
        found = self._records(current)
        return next((record for record in found if record.chain == entity), None)

    def entities(self) -> Sequence[str]:
        """The attributes in use, those that changed last first."""
        known = self._memory.entities(user=self._scope.user, agent=self._scope.agent)
        return list(dict.fromkeys(row["entity"] for row in sorted(known, key=lambda row: -row["last_ts"])))

    def same(self, entity: str, other: str) -> bool:
        """Whether two names mean one attribute, as the taggers see it."""
        return entity == other or any(tagger.same(entity, other) for tagger in self._memory.taggers)

    def _records(self, entries: Iterable[Entry]) -> list[Record]:
        found = stored(self._memory, self._scope, (entry.id for entry in entries))
        return [record for record in found if record.kind == "fact"]
