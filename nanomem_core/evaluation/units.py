"""What the turns of a conversation become in a memory: a record each, episodes, or facts drawn from those.

Each function here puts a conversation into the scope of `user` and returns what a search there can find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from ..errors import GeneratorError
from ..interfaces import Generator, Segmenter
from ..memory import Memory
from ..pipeline.episodes import Episode
from ..pipeline.merging import sources_of
from ..records import Kind, Record, Scope
from ..system import MemorySystem

__all__ = ["Ingest", "Turn", "Unit", "episodes", "facts", "turns"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody said. `date` is the session's, as the data set writes it; `time` the same as a moment."""

    id: str
    speaker: str
    text: str
    date: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Unit:
    """A record that a search can find, and the ids of the turns that it holds."""

    id: str
    kind: Kind
    text: str
    turns: frozenset[str]


Ingest = Callable[[Memory, str, Sequence[Turn]], list[Unit]]


def turns(memory: Memory, user: str, conversation: Sequence[Turn]) -> list[Unit]:
    """Each turn by itself, as "date speaker: text"."""
    return _added(memory, user, "fact", [(f"{turn.date} {turn.speaker}: {turn.text}", [turn]) for turn in conversation])


def episodes(
    memory: Memory,
    user: str,
    conversation: Sequence[Turn],
    *,
    segmenter: Segmenter,
    generator: Generator | None = None,
) -> list[Unit]:
    """The groups of `segmenter`, each a text of "speaker: text" lines below their date."""
    messages = [
        Record(turn.id, turn.text, "message", valid_from=turn.time.timestamp(), metadata={"role": turn.speaker})
        for turn in conversation
    ]
    groups = [[conversation[number] for number in group] for group in segmenter.segment(messages, generator)]
    return _added(memory, user, "episode", [(_written(group), group) for group in groups])


def facts(memory: Memory, user: str, conversation: Sequence[Turn], *, system: MemorySystem) -> list[Unit]:
    """The facts that `system`, over `memory` and with a generator, draws from the sessions, taken in one by one.

    A fact is taken to hold every turn of the episodes that it was drawn from, which is the most that it can hold.

    Raises:
        GeneratorError: the facts of an episode could not be drawn.
    """
    for _, said in groupby(conversation, lambda turn: turn.date):
        system.add_messages(
            [{"id": turn.id, "role": turn.speaker, "content": turn.text, "timestamp": turn.time} for turn in said],
            user=user,
        )
        system.flush(user=user)
    done = system.wait(user=user)
    status = system.status(user=user)
    failed = [job for job in (*status["pending"], *status["dead"]) if "facts" in job["lacks"]]
    if failed or not done:
        reason = status["error"] or next((job["error"] for job in failed if job["error"]), "unknown")
        raise GeneratorError(
            f"{user}: expected the facts of every episode; {len(failed)} episodes are without, the first because of: "
            f"{reason}"
        )
    scope = Scope(user, memory.scope.agent)
    held = {
        record.id: frozenset(message.message_id for message in Episode.from_record(record).messages)
        for record in memory.storage.scan(scope, "episode")
    }
    return [
        Unit(record.id, "fact", record.text, frozenset().union(*(held.get(id, ()) for id in sources_of(record))))
        for record in memory.storage.scan(scope, "fact")
    ]


def _added(memory: Memory, user: str, kind: Kind, units: Sequence[tuple[str, Sequence[Turn]]]) -> list[Unit]:
    """Add each text, true from the time of its first turn on, and under the id of that."""
    memory.add_many(
        [
            {"id": said[0].id, "text": text, "kind": kind, "timestamp": said[0].time, "source": "conversation"}
            for text, said in units
        ],
        user=user,
    )
    return [Unit(said[0].id, kind, text, frozenset(turn.id for turn in said)) for text, said in units]


def _written(group: Sequence[Turn]) -> str:
    return "\n".join(
        "\n".join([date, *(f"{turn.speaker}: {turn.text}" for turn in said)])
        for date, said in groupby(group, lambda turn: turn.date)
    )
