"""A provider of any of the three interfaces, on a real socket, that fails in a given way until it is mended."""

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

__all__ = [
    "Fault",
    "Provider",
    "assert_all_is_done",
    "assert_nothing_is_lost",
    "opened",
    "said",
    "setting_for",
]

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


class Provider:
    """A script of `tests.scripted_server.ScriptedServer`.

    Attributes:
        use: whose interface it has: ``openai``, ``ollama`` or ``anthropic``.
        fault: what is wrong with it; None once it is mended.
        asked: the kinds of answers that were asked for, in order.
    """

    def __init__(self, use: str, fault: Fault | None = None) -> None:
        self.use = use
        self.fault = fault
        self.asked: list[str] = []
        self._strict = {"openai": providers.openai, "ollama": providers.ollama, "anthropic": providers.anthropic}[use]

    def __call__(self, request: Received) -> Reply:
        reply = self._strict(request)
        if reply.status != 200 or "messages" not in request.body:
            return reply
        schema = self._schema(request.body)
        kind = "text" if schema is None else next(iter(schema["properties"]))
        self.asked.append(kind)
        if self.fault is not None and (faulty := self.fault(self, kind, request)) is not None:
            return faulty
        messages = request.body["messages"]
        if kind == "episodes":
            count = int(re.match(r"\d+", messages[-1]["content"])[0])  # type: ignore[index]
            return self.saying(json.dumps({"episodes": [{"indices": list(range(1, count + 1)), "topic": "a talk"}]}))
        return self.saying(Listener().complete(messages, schema=schema).text)

    def saying(self, text: str) -> Reply:
        """A whole answer of the model."""
        if self.use == "ollama":
            message = {"role": "assistant", "content": text}
            counts = {"prompt_eval_count": 100, "eval_count": 10}
            return Reply({"model": "m", "message": message, "done": True, "done_reason": "stop", **counts})
        if self.use == "anthropic":
            message = {"id": "c", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
            usage = {"input_tokens": 100, "output_tokens": 10}
            return Reply({**message, "content": [{"type": "text", "text": text}], "usage": usage})
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return Reply({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})

    def _schema(self, body: Any) -> Any:
        """The schema that the answer is to follow; None if it is to be a text."""
        if self.use == "ollama":
            return body.get("format")
        if self.use == "anthropic":  # which is told it in words
            _, told, schema = (body.get("system") or "").partition("JSON Schema:\n")
            return json.loads(schema) if told else None
        form = body.get("response_format")
        return None if form is None else form["json_schema"]["schema"]


def setting_for(url: str, use: str, **options: Any) -> dict[str, Any]:
    """The setting of a generator or an embedder that asks the provider at `url`."""
    return {"use": use, "model": "m", "base_url": url, "api_key": providers.KEY} | options


def opened(folder: Path, store: str, url: str, use: str, **options: Any) -> MemorySystem:
    """A system over a store in `folder`, whose model is at `url`; closing it leaves the memory open."""
    memory = Memory(storage_in(folder, store), HashEmbedder(), taggers=(), plugins=PluginManager.discover())
    generator = setting_for(url, use, retries=1) | options
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
