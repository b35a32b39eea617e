"""The two storages of Nemori, over a `JsonlStorage`: what was written for them finds its calls and its items again.

An item is a mapping with Nemori's keys, as its classes give by ``to_dict``; an object with that method will do too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from nanomem_core.changes import Delete, Put
from nanomem_core.errors import InputError
from nanomem_core.fileio import atomic
from nanomem_core.interfaces import Snapshot
from nanomem_core.records import Kind, Record, Scope, new_id
from nanomem_core.times import format_time, system_clock

from .lines import decode, encode
from .storage import JsonlStorage

__all__ = ["EpisodeStorage", "SemanticStorage"]

Item = dict[str, Any]


class _Items:
    """What both storages share. `agent` is whose memory of the users it is; Nemori v0.1.1 knows one."""

    kind: ClassVar[Kind]
    key: ClassVar[str]

    def __init__(self, storage: JsonlStorage, agent: str = "default") -> None:
        self.storage = storage
        self.agent = agent

    def save(self, item: object) -> str:
        """Insert the item, or replace the one with its id; returns the id.

        Raises:
            InputError: it is no item; nothing was written.
        """
        data = dict(item) if isinstance(item, Mapping) else getattr(item, "to_dict", dict)()
        if not isinstance(data.get("user_id"), str):
            raise InputError(f"{self.kind}: expected an item with a user_id; found {data!r:.200}")
        now = format_time(system_clock())
        data = {self.key: data.get("id") or new_id(), "created_at": now} | data
        scope = self._scope(data["user_id"])
        self.storage.commit(scope, [Put(decode(data, b"", self.kind, scope).record)])
        return str(data[self.key])

    def load(self, id: str, user: str | None = None) -> Item | None:
        """The item with that id, of `user` or whoever has it."""
        scope = self._owner(id, user)
        record = None if scope is None else self.storage.get(scope, id)
        return None if scope is None or record is None else _item(record, scope)

    def exists(self, id: str, user: str | None = None) -> bool:
        return self._owner(id, user) is not None

    def delete(self, id: str, user: str | None = None) -> bool:
        """Delete the item with that id, of `user` or whoever has it; False if there is none."""
        scope = self._owner(id, user)
        return scope is not None and bool(self.storage.commit(scope, [Delete(id)]).deleted)

    def list_user_items(self, user: str) -> list[Item]:
        """All items of a user, in the order in which they were first saved."""
        scope = self._scope(user)
        return [_item(record, scope) for record in self.storage.scan(scope, self.kind)]

    def delete_user_data(self, user: str) -> bool:
        """Delete all items of a user, and their bytes; False if there were none."""

        def all_of_them(snapshot: Snapshot) -> list[Delete]:
            return [Delete(record.id) for record in snapshot.records if record.kind == self.kind]

        deleted = self.storage.update(self._scope(user), all_of_them).deleted
        if deleted:
            self.storage.compact()
            # Vectors that a memory keeps beside the store: whose they are can't be told here.
            atomic.remove_files(self.storage.derived())
        return bool(deleted)

    def _scope(self, user: str) -> Scope:
        return Scope(user, self.agent)

    def _owner(self, id: str, user: str | None) -> Scope | None:
        scopes = self.storage.scopes() if user is None else [self._scope(user)]
        for scope in scopes:
            if scope.agent == self.agent:
                record = self.storage.get(scope, id)
                if record is not None and record.kind == self.kind:
                    return scope
        return None


class EpisodeStorage(_Items):
    """Nemori's ``EpisodeStorage``."""

    kind: ClassVar[Kind] = "episode"
    key: ClassVar[str] = "episode_id"

    def get_user_stats(self, user: str) -> dict[str, Any]:
        """``episode_count``, ``total_messages``, ``avg_messages_per_episode`` and ``date_range``."""
        items = self.list_user_items(user)
        messages = sum(item["message_count"] for item in items)
        times = sorted(item["timestamp"] for item in items)
        return {
            "episode_count": len(items),
            "total_messages": messages,
            "avg_messages_per_episode": messages / len(items) if items else 0,
            "date_range": {"earliest": times[0], "latest": times[-1]} if times else None,
        }


class SemanticStorage(_Items):
    """Nemori's ``SemanticStorage``."""

    kind: ClassVar[Kind] = "fact"
    key: ClassVar[str] = "memory_id"

    def list_user_items(self, user: str) -> list[Item]:
        """All items of a user, the newest ``created_at`` first."""
        return sorted(super().list_user_items(user), key=lambda item: str(item["created_at"]), reverse=True)

    def find_similar_statement(self, user: str, content: str) -> Item | None:
        """The item that says the same, but for upper and lower case."""
        wanted = content.casefold()
        return next((item for item in self.list_user_items(user) if item["content"].casefold() == wanted), None)

    def get_user_stats(self, user: str) -> dict[str, Any]:
        """``semantic_memory_count``, ``first_memory`` and ``last_memory`` (times)."""
        times = sorted(str(item["created_at"]) for item in self.list_user_items(user))
        return {
            "semantic_memory_count": len(times),
            "first_memory": times[0] if times else None,
            "last_memory": times[-1] if times else None,
        }


def _item(record: Record, scope: Scope) -> Item:
    data: Item = json.loads(encode(record, scope, 0).raw)
    data["metadata"].pop("nanomem", None)
    return data
