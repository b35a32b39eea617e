"""Deleting what came of conversations."""

from __future__ import annotations

from typing import Any

from ..changes import Change, Delete, Put
from ..memory.base import retried
from ..pipeline.consolidate import undo_changes
from ..pipeline.merging import move_sources, sources_of
from .buffer import ATTEMPTS
from .cutting import drawn_from
from .reading import Reading
from .stored import stored

__all__ = ["Removing"]


class Removing(Reading):
    """The part of `MemorySystem` that removes."""

    def delete_episode(
        self, id: str, *, cascade: bool = True, user: str | None = None, agent: str | None = None
    ) -> dict[str, Any]:
        """Delete an episode with its messages, and the earlier ones that it goes on with.

        Facts lose it as a source; with `cascade`, those that have no other source are deleted too. Returns ``deleted``
        (False if there is no such episode) and ``facts``, the ids of those. As with `Memory.delete`, the bytes go with
        the next `Memory.compact`.
        """
        scope = self._scope(user, agent)
        storage = self.memory.storage
        facts: list[str] = []

        def remove() -> bool:
            episode = storage.get(scope, id)
            if episode is None or episode.kind != "episode":
                return False
            doomed = [episode, *stored(self.memory, scope, episode.metadata.get("merged_from") or ())]
            gone: dict[str, str | None] = dict.fromkeys(record.id for record in doomed)
            changes: list[Change] = [Delete(record.id, expect=record.version) for record in doomed]
            facts.clear()
            for fact in drawn_from(self.memory, scope, gone):
                if cascade and gone.keys() >= set(sources_of(fact)):
                    facts.append(fact.id)
                    changes.append(Delete(fact.id, expect=fact.version))
                else:
                    changes.append(Put(move_sources(fact, gone), expect=fact.version))
            self.memory.commit(changes, user=scope.user, agent=scope.agent)
            return True

        deleted = retried(remove, ATTEMPTS)
        if deleted:
            self.memory.plugins.episode_deleted(scope, id, facts)
        return {"deleted": deleted, "facts": facts}

    def delete_fact(self, id: str, *, user: str | None = None, agent: str | None = None) -> bool:
        """Delete a fact; the value before it is current again. Returns False if there is no such fact."""
        scope = self._scope(user, agent)
        record = self.memory.storage.get(scope, id)
        if record is None or record.kind != "fact":
            return False
        deleted = self.memory.delete(id, user=scope.user, agent=scope.agent) > 0
        if deleted:
            self.memory.plugins.fact_deleted(scope, id)
        return deleted

    def undo(self, id: str, *, user: str | None = None, agent: str | None = None) -> list[str]:
        """Take back what a model's verdict did to the fact `id`, or made of it.

        What it retired holds again, and what it was retired for stays as a fact of its own. Returns the ids of the
        facts that were changed.

        Raises:
            NotFoundError: no verdict made, retired or labelled that fact.
        """
        scope = self._scope(user, agent)

        def take_back() -> list[str]:
            changes = undo_changes(id, self.memory.storage.scan(scope, "fact"))
            self.memory.commit(changes, user=scope.user, agent=scope.agent)
            return [change.record.id for change in changes if isinstance(change, Put)]

        return retried(take_back, ATTEMPTS)

    def delete_user(self, user: str, *, agent: str | None = None) -> int:
        """Erase all that is held of a user (of one agent's if `agent` is given): messages, episodes, facts.

        No byte of it stays in any file, and what is being worked out of it is dropped. Returns how many scopes there
        were.
        """
        self._check_open()
        scopes = [s for s in self.memory.storage.scopes() if s.user == user and agent in (None, s.agent)]
        for scope in scopes:
            self.memory.erase(user=scope.user, agent=scope.agent)
        return len(scopes)
