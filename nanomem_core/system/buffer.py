"""Buffers: the messages of a scope that wait to become episodes.

A buffer *is* the records of kind ``message`` in its scope: it outlives the process, every process sees the same one,
and a message leaves it only in the commit that stores its episode.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..changes import Change, Delete, Put
from ..columns import ColumnSource
from ..config.model import ConversationSettings
from ..interfaces import Segmenter
from ..memory import Memory
from ..memory.base import retried
from ..pipeline.context import estimate_tokens
from ..pipeline.messages import Message, read_messages, transcript
from ..records import Record, Scope

__all__ = ["ATTEMPTS", "Due", "MessageBuffer", "MessageBufferManager", "find_due", "sittings"]

ATTEMPTS = 10
"""A scope is written to by a few at once, each in milliseconds, so that one loses ten times is no accident."""


@dataclass(frozen=True, slots=True)
class Due:
    """That waiting messages should become episodes now.

    Attributes:
        reason: why, for a person to read; kept in the episodes.
        count: how many of them, from the first on; None for all.
    """

    reason: str
    count: int | None = None


def find_due(
    waiting: Sequence[Record], settings: ConversationSettings, segmenter: Segmenter | None = None
) -> Due | None:
    """Whether the `waiting` messages, in the order of time, should become episodes; the first reason that applies.

    Their number; their size; a pause, in which case the messages after it go on waiting; or what the segmenter says.
    """
    if not waiting:
        return None
    if len(waiting) >= settings.batch_threshold:
        return Due(f"{len(waiting)} messages wait (batch_threshold {settings.batch_threshold})")
    if settings.token_threshold is not None:
        tokens = sum(estimate_tokens(record.text) for record in waiting)
        if tokens >= settings.token_threshold:
            return Due(f"about {tokens} tokens wait (token_threshold {settings.token_threshold})")
    *_, before, after = [waiting[:0], *sittings(waiting, settings.gap_minutes)]
    if before and len(waiting) - len(after) >= settings.min_messages:
        pause = (after[0].valid_from - before[-1].valid_from) / 60
        return Due(f"a pause of {pause:.0f} minutes (gap_minutes {settings.gap_minutes:g})", len(waiting) - len(after))
    reason = None if segmenter is None else segmenter.due(waiting)
    return Due(reason) if reason else None


def sittings(messages: Sequence[Record], gap_minutes: float | None) -> list[list[Record]]:
    """`messages` (in the order of time) parted at each pause of more than `gap_minutes`; nowhere for None."""
    parts: list[list[Record]] = []
    longest = float("inf") if gap_minutes is None else 60 * gap_minutes
    for message in messages:
        if not parts or message.valid_from - parts[-1][-1].valid_from > longest:
            parts.append([])
        parts[-1].append(message)
    return parts


class _Held:
    """Which messages the episodes of each scope hold, by id. An episode is read once; safe to use from several threads.

    What it tells is as old as the columns of the store; whoever relies on it commits with an `expect_head`.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._scopes: dict[Scope, tuple[ColumnSource, int, dict[str, list[int]]]] = {}

    def among(self, scope: Scope, ids: Iterable[str]) -> set[str]:
        """Those of `ids` that name a message in an episode."""
        with self._lock:
            columns = self._memory.storage.columns(scope)
            live, source = columns.where("episode"), columns.source
            known, upto, rows = self._scopes.get(scope, (source, 0, {}))
            if known is not source or upto > len(columns):
                upto, rows = 0, {}
            new = np.flatnonzero(live[upto:]) + upto
            row_of = dict(zip(source.ids(new), new.tolist(), strict=True))
            for record in source.records(new):
                for id in record.metadata.get("message_ids", ()):
                    rows.setdefault(id, []).append(row_of[record.id])
            self._scopes[scope] = source, len(columns), rows
            return {id for id in ids if any(live[row] for row in rows.get(id, ()))}


class MessageBuffer:
    """The waiting messages of one scope. They are in the store: any number of these, anywhere, are the same buffer."""

    def __init__(self, memory: Memory, scope: Scope, held: _Held | None = None) -> None:
        self._memory = memory
        self._held = _Held(memory) if held is None else held
        self.scope = scope

    def add_message(self, message: Message | Mapping[str, Any]) -> int:
        """Add one message; returns how many wait now. See `add_messages`."""
        self.add_messages([message])
        return self.size()

    def add_messages(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[Message]:
        """Add messages in one commit; returns those that were added, durable by then.

        Messages that say nothing are left out, and so are those whose id is in the buffer or in an episode already:
        adding again what may have been added is safe.

        Raises:
            InputError: a message is malformed (see `read_messages`); none was added.
        """
        items = list(messages)
        now = self._memory.clock()
        read = read_messages(items, now)
        given = {id for item in items if (id := _given_id(item)) is not None}
        if not given:
            self._commit([Put(message.to_record(now), expect=0) for message in read])
            return read

        def add_new() -> list[Message]:
            head = self._memory.storage.head(self.scope)
            known = self.known(given)
            new = [message for message in read if message.message_id not in known]
            self._commit([Put(message.to_record(now), expect=0) for message in new], head)
            return new

        return retried(add_new, ATTEMPTS)

    def records(self) -> list[Record]:
        """The records of the waiting messages, in the order of time; of one time, in the order of arrival."""
        found = self._memory.storage.snapshot(self.scope, "message").records
        return sorted(found, key=lambda record: record.valid_from)

    def get_messages(self) -> list[Message]:
        """The waiting messages, in the order of time; of one time, in the order of arrival."""
        return [Message.from_record(record) for record in self.records()]

    def size(self) -> int:
        """How many messages wait."""
        return int(np.count_nonzero(self._memory.storage.columns(self.scope).where("message")))

    def is_empty(self) -> bool:
        """True if no message waits."""
        return self.size() == 0

    def clear(self) -> list[Message]:
        """Remove the waiting messages without making episodes of them; returns what was removed."""

        def remove() -> list[Record]:
            records = self.records()
            self._commit([Delete(record.id, expect=record.version) for record in records])
            return records

        return [Message.from_record(record) for record in retried(remove, ATTEMPTS)]

    def get_conversation_text(self) -> str:
        """The waiting messages as lines ``role: content``."""
        return transcript(self.get_messages())

    def stats(self) -> dict[str, Any]:
        """``user``, ``agent``, ``size``, ``tokens`` (estimated), and the times of the ``first`` and ``last`` one."""
        records = self.records()
        return {
            "user": self.scope.user,
            "agent": self.scope.agent,
            "size": len(records),
            "tokens": sum(estimate_tokens(record.text) for record in records),
            "first": records[0].valid_from if records else None,
            "last": records[-1].valid_from if records else None,
        }

    def known(self, ids: Iterable[str]) -> set[str]:
        """Those of `ids` that name a message in the buffer or in an episode."""
        wanted = set(ids)
        found = {id for id in wanted if self._memory.storage.get(self.scope, id) is not None}
        return found | self._held.among(self.scope, wanted - found)

    def _commit(self, changes: Sequence[Change], expect_head: int | None = None) -> None:
        if changes:
            self._memory.commit(changes, expect_head=expect_head, user=self.scope.user, agent=self.scope.agent)


def _given_id(item: object) -> str | None:
    if isinstance(item, Message):
        return item.message_id
    if isinstance(item, Mapping):
        id = item.get("message_id", item.get("id"))
        return id if isinstance(id, str) else None
    return None


class MessageBufferManager:
    """The buffers of all scopes of a memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held = _Held(memory)

    def buffer(self, user: str | None = None, agent: str | None = None) -> MessageBuffer:
        """The buffer of a scope, the memory's own by default. Makes nothing: a scope exists once it holds a message."""
        return MessageBuffer(self._memory, self._memory.scope.other(user, agent), self._held)

    def buffers(self) -> list[MessageBuffer]:
        """The buffers in which a message waits."""
        scopes = sorted(self._memory.storage.scopes())
        buffers = [MessageBuffer(self._memory, scope, self._held) for scope in scopes]
        return [buffer for buffer in buffers if not buffer.is_empty()]

    def stats(self) -> dict[str, Any]:
        """``buffers`` and ``messages`` in all, and ``each``: `MessageBuffer.stats` where a message waits."""
        each = [buffer.stats() for buffer in self.buffers()]
        return {"buffers": len(each), "messages": sum(stats["size"] for stats in each), "each": each}
