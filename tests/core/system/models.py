"""Models for tests: they answer by what they are asked, so it does not matter in which order."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nanomem_core.interfaces import ChatMessage, Completion, Generator, Segmenter
from nanomem_core.records import Record

__all__ = ["FIXED", "Blocked", "Listener", "Pairs", "messages"]

FIXED: dict[str, Any] = {"title": "A talk", "content": "They talked.", "facts": [], "verdicts": [], "continues": None}
"""An answer that fits every question of the pipeline: an account, no merge, no fact."""


class Listener(Generator):
    """Tells an episode by its first message, and states the messages that begin with ``fact:`` as facts."""

    name = "listener"

    def __init__(self, change: Callable[[str, Any], Any] = lambda kind, answer: answer) -> None:
        self.asked: list[str] = []
        self._change = change

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        kind = next(iter((schema or {}).get("properties", {"text": None})))
        self.asked.append(kind)
        prompt = messages[-1]["content"]
        said = re.findall(r"^\[\S+\] \w+: (.*)$", prompt, re.MULTILINE)
        answer: Any = dict(FIXED)
        if kind == "title":
            answer = {"title": f"About {said[0]}", "content": "; ".join(said)}
        elif kind == "facts":
            answer = {"facts": [{"text": text.removeprefix("fact: ")} for text in said if text.startswith("fact: ")]}
        changed = self._change(kind, answer)
        return Completion(changed if isinstance(changed, str) else json.dumps(changed), "listener-1", 100, 10)


class Blocked(Listener):
    """Waits, when it is asked, until it is let go."""

    name = "blocked"

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()
        self.go = threading.Event()

    def complete(self, messages: Sequence[ChatMessage], **options: Any) -> Completion:
        self.waiting.set()
        assert self.go.wait(60)
        return super().complete(messages, **options)


class Pairs(Segmenter):
    """Groups of two."""

    name = "pairs"

    def split(self, messages: Sequence[Record], generator: Generator | None = None) -> list[list[int]]:
        return [list(range(start, min(start + 2, len(messages)))) for start in range(0, len(messages), 2)]


def messages(count: int, start: int = 0, step: float = 60.0) -> list[dict[str, Any]]:
    """What two people say, a minute apart, each with an id."""
    return [
        {
            "role": "user" if number % 2 == 0 else "assistant",
            "content": f"sentence {number}",
            "timestamp": 1_772_000_000 + step * number,
            "message_id": f"m{number:04}",
        }
        for number in range(start, start + count)
    ]
