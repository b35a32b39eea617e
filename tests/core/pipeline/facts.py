"""What is known, for tests of drawing facts; and the answers of a scripted model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nanomem_core.pipeline.episodes import Narrative, make_episode
from nanomem_core.pipeline.messages import read_messages
from nanomem_core.records import Record
from nanomem_core.times import parse_time

__all__ = ["NOW", "KnownList", "episode", "fact", "facts", "verdicts"]

NOW = parse_time("2026-03-10T09:00:00Z")


class KnownList:
    """Knows the facts that it is given; all are related to everything but those that `far` names."""

    def __init__(self, *facts: Record, far: Sequence[str] = ()) -> None:
        self.facts = list(facts)
        self.far = far
        self.asked: list[str] = []

    def related(self, text: str) -> list[Record]:
        self.asked.append(text)
        return [fact for fact in self.facts if fact.id not in self.far]

    def value_of(self, entity: str) -> Record | None:
        values = [fact for fact in self.facts if fact.chain == entity]
        return max(values, key=lambda fact: (fact.valid_from, fact.revision), default=None)

    def entities(self) -> list[str]:
        return sorted({fact.entity for fact in self.facts if fact.entity is not None})


def fact(id: str, text: str, entity: str | None = None, at: str = "2026-01-01", **metadata: Any) -> Record:
    return Record(
        id, text, entity=entity, revision=1, version=1, valid_from=parse_time(at), source="episode", metadata=metadata
    )


def episode(*said: str, id: str = "e1", at: str = "2026-03-01T10:00:00Z") -> Record:
    """An episode of messages a minute apart, alternately of user and assistant."""
    start = parse_time(at)
    messages = read_messages(
        [
            {"role": ("user", "assistant")[number % 2], "content": text, "timestamp": start + 60 * number}
            for number, text in enumerate(said or ("Hello.",))
        ],
        NOW,
    )
    made = make_episode(messages, Narrative("A talk", "They talked.", start), NOW, "flushed")
    return Record(
        id, made.text, kind="episode", version=1, valid_from=made.valid_from, recorded_at=NOW, metadata=made.metadata
    )


def facts(*stated: str | dict[str, Any]) -> str:
    """The answer of a model that states these."""
    return json.dumps({"facts": list(stated)})


def verdicts(*given: tuple[Any, ...]) -> str:
    """The answer of a model with these verdicts: number of the statement, verdict, number of the fact."""
    return json.dumps(
        {"verdicts": [{"statement": s, "verdict": v, "fact": f, "reason": "so it was said"} for s, v, f in given]}
    )
