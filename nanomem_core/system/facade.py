"""`MemorySystem`: conversations in, episodes and facts out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConflictError
from ..memory import Memory
from ..pipeline.chats import Chat
from ..pipeline.episodes import Episode
from ..pipeline.messages import Message
from ..registry.manager import PluginManager
from .buffer import Due, sittings
from .removing import Removing
from .stored import stored

if TYPE_CHECKING:
    from ..config.model import Settings

__all__ = ["MemorySystem"]


class MemorySystem(Removing):
    """Remembers conversations in a `Memory`: messages wait, become episodes, and facts are drawn from those.

    Every method takes ``user=`` and ``agent=``, which choose the scope, as those of `Memory` do. A message is durable
    when `add_messages` returns, and is from then on in one place: it waits, or an episode holds it. Models are asked in
    the background, and never under a lock: a slow one delays the episodes and facts of its own scope. Any number of
    processes may do this over one store.

    Use it in a ``with`` block, or call `close`.

    Args:
        memory: holds everything. It is not closed with this.
        segmenter: cuts messages into groups: an instance, a name, or ``{"use": name, **options}``. By default ``batch``
            where there is a generator, and ``texttiling``, which also takes over where another one fails.
        generator: the model that is asked, likewise. Without one episodes are transcripts and no facts are drawn.
        settings: sizes and limits.

    Attributes:
        memory: for all that it can do beside.
        buffers: the messages that wait.
    """

    @classmethod
    def open(
        cls,
        source: str | Path | Settings | None = None,
        *,
        plugins: PluginManager | None = None,
        user: str = "default",
        agent: str = "default",
        **arguments: Any,
    ) -> MemorySystem:
        """One as configured, with a memory of its own; the arguments are those of `Memory.open`.

        Raises:
            ConfigError: a setting is wrong.
        """
        from ..config.sources import settings_of

        settings = settings_of(source, arguments)
        memory = Memory.open(settings, plugins=plugins, user=user, agent=agent)
        try:
            system = cls(
                memory, segmenter=settings.segmenter, generator=settings.generator, settings=settings.conversation
            )
        except BaseException:
            memory.close()
            raise
        system._owns_memory = True
        return system

    def add_messages(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> dict[str, Any]:
        """Take messages in, durable when this returns; see `nanomem_core.pipeline.messages.read_messages` for their
        form. If enough wait then, episodes are made of them in the background.

        Returns ``added`` (their ids), ``skipped`` (how many said nothing or were known by their id) and ``waiting``
        (how many wait now).

        Raises:
            InputError: a message is malformed; none was taken in.
        """
        scope = self._scope(user, agent)
        items = list(messages)
        buffer = self.buffers.buffer(scope.user, scope.agent)
        added = buffer.add_messages(items)
        self._touch(scope, due=bool(added))
        return {
            "added": [message.message_id for message in added],
            "skipped": len(items) - len(added),
            "waiting": buffer.size(),
        }

    def flush(self, *, user: str | None = None, agent: str | None = None) -> list[Episode]:
        """Make episodes of all messages that wait, however few; returns them, in the order of time.

        Their facts are drawn in the background: `wait` for them.

        Raises:
            StorageError: the store failed; the messages wait still.
        """
        scope = self._scope(user, agent)
        with self._lanes.hold(scope):
            cut = self._cut(scope, Due("flushed"))
        self._touched.add(scope)
        self._lanes.ask(scope)
        return [self._episode(scope, each) for each in stored(self.memory, scope, () if cut is None else cut.episodes)]

    def import_chats(
        self,
        chats: Iterable[Chat],
        *,
        progress: Callable[[int, int], None] = lambda done, total: None,
        user: str | None = None,
        agent: str | None = None,
    ) -> dict[str, int]:
        """Take in conversations of an export (`nanomem_core.pipeline.chats.read_chats`), each as episodes of its own.

        A chat is cut at its pauses, and each part is committed by itself. Messages that were taken in before are known
        by their ids and skipped, so an import that was interrupted may be repeated, and goes on where it was. Other
        messages that wait go on waiting. `progress` is told how many messages are done, of how many.

        Returns ``chats``, ``added`` and ``skipped`` (messages), and ``episodes``.
        """
        scope = self._scope(user, agent)
        options = {"user": scope.user, "agent": scope.agent}
        report = {"chats": 0, "added": 0, "skipped": 0, "episodes": 0}
        chats = list(chats)
        done, total = 0, sum(len(chat.messages) for chat in chats)
        for chat in chats:
            ids = {message["message_id"] for message in chat.messages}
            due = Due(f"imported: {chat.title}" if chat.title else "imported")
            with self._lanes.hold(scope):
                added = self.buffers.buffer(**options).add_messages(chat.messages)
                waiting = [record for record in self._waiting(scope) if record.id in ids]
                done += len(chat.messages) - len(waiting)
                for sitting in sittings(waiting, self.settings.gap_minutes):
                    cut = self._cut(scope, due, {record.id for record in sitting})
                    report["episodes"] += 0 if cut is None else len(cut.episodes)
                    done += len(sitting)
                    progress(done, total)
            report["chats"] += 1
            report["added"] += len(added)
            report["skipped"] += len(chat.messages) - len(added)
        self._lanes.ask(scope)
        return report

    def wait(self, timeout: float | None = None, *, user: str | None = None, agent: str | None = None) -> bool:
        """Do what is to do in a scope, and wait for it. True if nothing is left that could be done now: messages that
        are due, episodes that are to be told or whose facts are to be drawn. False after `timeout` seconds, or if the
        work was stopped by an error (see `status`).
        """
        scope = self._scope(user, agent)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            asked = self._lanes.ask(scope)
            if not self._lanes.wait(scope, None if timeout is None else max(0.0, deadline - time.monotonic())):
                return False
            failure = self._lanes.failures.get(scope)
            if failure is None and (self.generator is None or not self._jobs.pending(scope)):
                return True
            # A round ends too where others write again and again, which is no reason to give up before the time.
            if not asked or not isinstance(failure, (ConflictError, type(None))) or time.monotonic() >= deadline:
                return False

    wait_for_semantic = wait
    """Nemori's name of `wait`."""

    def resume(self) -> int:
        """Take up, in the background, what an earlier process left to do, in all scopes; returns how many there are.

        A scope is otherwise taken up when a message is added to it, or by `flush` or `wait`.
        """
        self._check_open()
        scopes = self.memory.storage.scopes()
        for scope in scopes:
            self._lanes.ask(scope)
        return len(scopes)

    def retry(self, id: str | None = None, *, user: str | None = None, agent: str | None = None) -> list[str]:
        """Try anew to tell an episode, or to draw its facts, after that failed too often; returns the ids.

        None takes up all such episodes.
        """
        scope = self._scope(user, agent)
        chosen = self._jobs.retry(scope, id)
        self._lanes.ask(scope)
        return chosen
