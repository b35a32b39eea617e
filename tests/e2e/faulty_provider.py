"""A provider of OpenAI's interface, on a real socket, that fails in a given way until it is mended."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nanomem_core.config.model import ConversationSettings
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.system import MemorySystem
from nanomem_core.testing import HashEmbedder
from tests import providers
from tests.core.system.models import Listener
from tests.core.system.test_system import where
from tests.memories import storage_in, texts
from tests.scripted_server import Received, Reply

__all__ = ["Fault", "Provider", "assert_all_is_done", "assert_nothing_is_lost", "completion", "opened", "said"]

Fault = Callable[["Provider", str, Received], Reply | None]
"""What to answer to a request for an answer of a kind (the first property of its schema); None is a right answer."""

FACTS = ["Ann likes tea", "Ann lives in Oslo"]


def said() -> list[dict[str, Any]]:
    """A conversation in which two facts are told."""
    contents = [f"fact: {FACTS[0]}", "Good to know.", f"fact: {FACTS[1]}", "I see."]
    return [
        {
            "role": ("user", "assistant")[n % 2],
            "content": text,
            "timestamp": 1_772_000_000 + 60 * n,
            "message_id": f"m{n}",
        }
        for n, text in enumerate(contents)
    ]


def completion(text: str) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return Reply({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})


class Provider:
    """A script of `tests.scripted_server.ScriptedServer`.

    Attributes:
        fault: what is wrong with it; None once it is mended.
        asked: the kinds of answers that were asked for, in order.
    """

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.asked: list[str] = []

    def __call__(self, request: Received) -> Reply:
        reply = providers.openai(request)
        if reply.status != 200 or not request.path.endswith("/chat/completions"):
            return reply
        form = request.body.get("response_format")
        schema = None if form is None else form["json_schema"]["schema"]
        kind = "text" if schema is None else next(iter(schema["properties"]))
        self.asked.append(kind)
        if self.fault is not None and (faulty := self.fault(self, kind, request)) is not None:
            return faulty
        if kind == "episodes":
            count = int(re.match(r"\d+", request.body["messages"][-1]["content"])[0])  # type: ignore[index]
            return completion(json.dumps({"episodes": [{"indices": list(range(1, count + 1)), "topic": "a talk"}]}))
        return completion(Listener().complete(request.body["messages"], schema=schema).text)


def opened(folder: Path, store: str, url: str, **options: Any) -> MemorySystem:
    """A system over a store in `folder`, whose model is at `url`; closing it leaves the memory open."""
    memory = Memory(storage_in(folder, store), HashEmbedder(), taggers=(), plugins=PluginManager.discover())
    generator = {"use": "openai", "model": "m", "base_url": url, "api_key": providers.KEY, "retries": 1} | options
    return MemorySystem(memory, generator=generator, settings=ConversationSettings())


def assert_nothing_is_lost(system: MemorySystem) -> None:
    places = where(system)
    assert sorted(places) == [message["message_id"] for message in said()]
    assert {id: found for id, found in places.items() if len(found) != 1} == {}


def assert_all_is_done(system: MemorySystem) -> None:
    """Every message is in the one episode, which is told; each fact is there, once."""
    assert_nothing_is_lost(system)
    [episode] = system.episodes()
    assert episode.title == f"About fact: {FACTS[0]}"
    assert "fallback" not in episode.metadata
    assert Counter(texts(system.memory.records())) == Counter(FACTS)
    assert system.status()["pending"] == system.status()["dead"] == []
