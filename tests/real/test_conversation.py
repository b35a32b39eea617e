"""A conversation becomes episodes, facts and answers, by real models, in each store.

What the small model writes is worth nothing, so structure and durability are looked at: that everything is in its
place, once, that it is there still when the store is opened again, and that reports say what happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.system import MemorySystem
from tests.memories import storage_in
from tests.real.models import Brief, make_embedder, make_generator

pytestmark = pytest.mark.real

FIRST = (
    ("user", "I moved to Lisbon in May and work for Acme Corp now."),
    ("assistant", "How do you like Lisbon?"),
    ("user", "I love it. My sister Dana visits me every summer."),
    ("assistant", "That sounds lovely."),
)
LATER = (
    ("user", "Acme Corp closed, so I work for Birch Labs now. 🌳"),
    ("assistant", "I hope that Birch Labs treats you well."),
)
DAY = 86_400


def said(turns: tuple[tuple[str, str], ...], name: str, day: int) -> list[dict[str, Any]]:
    return [
        {"role": role, "content": content, "timestamp": 1_772_000_000 + DAY * day + 60 * number, "message_id": id}
        for number, (role, content) in enumerate(turns)
        for id in [f"{name}{number}"]
    ]


@contextmanager
def opened(folder: Path, store: str, chat_url: str, embeddings_url: str) -> Iterator[MemorySystem]:
    with (
        make_generator(chat_url, Brief) as generator,
        make_embedder(embeddings_url) as embedder,
        Memory(storage_in(folder, store), embedder, generator=generator, plugins=PluginManager.discover()) as memory,
        MemorySystem(memory, generator=generator) as system,
    ):
        yield system


def contents(system: MemorySystem) -> dict[str, Any]:
    records = {record["id"]: record for record in system.memory.records(kind=None)}
    hits = system.search("work in Lisbon", mode="vector", min_score=0.01)
    return {"records": records, "hits": [(hit.id, pytest.approx(hit.score, abs=1e-5)) for hit in hits]}


@pytest.mark.parametrize("store", ["arena", "markdown", "jsonl"])
def test_a_conversation_becomes_episodes_facts_and_answers(
    tmp_path: Path, store: str, chat_url: str, embeddings_url: str
) -> None:
    servers = chat_url, embeddings_url
    with opened(tmp_path, store, *servers) as system:
        assert system.add_messages(said(FIRST, "first", 0))["waiting"] == len(FIRST)
        # Closed without a flush: what waits is taken up by whoever comes next.
    with opened(tmp_path, store, *servers) as system:
        assert system.flush()
        assert system.wait(600)
        check(system, {message["message_id"] for message in said(FIRST, "first", 0)})
        phases = {row["phase"]: row for row in system.stats()["usage"]["phases"]}
        assert {"segmentation", "episode", "facts"} <= phases.keys()
        first = contents(system)
    with opened(tmp_path, store, *servers) as system:
        assert contents(system) == first
        system.add_messages(said(LATER, "later", 1))
        assert system.flush()
        assert system.wait(600)
        every = {message["message_id"] for message in said(FIRST, "first", 0) + said(LATER, "later", 1)}
        check(system, every)
        assert system.add_messages(said(LATER, "later", 1))["added"] == [], "known by their ids"
        assert system.flush() == []
        both = contents(system)
        facts = {id for id, record in first["records"].items() if record["kind"] == "fact"}
        assert facts <= both["records"].keys(), "nothing that was known is gone"
    with opened(tmp_path, store, *servers) as system:
        assert contents(system) == both
        ask(system)


def check(system: MemorySystem, messages: set[str]) -> None:
    """Every message is in one episode, each episode is told, and its facts are where its report says."""
    assert system.buffers.buffer().is_empty()
    assert system.status() | {"running": False} == {
        "waiting": 0,
        "running": False,
        "pending": [],
        "dead": [],
        "error": None,
    }
    episodes = system.episodes()
    held = [message.message_id for episode in episodes for message in episode.messages]
    assert sorted(held) == sorted(messages)
    facts = {record["id"]: record for record in system.memory.records(kind="fact")}
    stated = []
    for episode in system.episodes(merged=True):
        assert episode.title.strip()
        assert episode.content.strip()
        assert "fallback" not in episode.metadata
        if "merged_into" not in episode.metadata:
            report = episode.metadata["distilled"]
            stated += report["facts"]
            assert all(episode.id in facts[id]["metadata"]["derived_from"] for id in report["facts"])
    assert stated
    assert set(stated) <= facts.keys()
    counted = [row for row in system.stats()["usage"]["phases"] if row["calls"]]
    assert all(row["input_tokens"] > 0 and row["output_tokens"] > 0 and not row["uncounted_calls"] for row in counted)
    assert {row["model"] for row in counted} == {"gemma3-270m"}


def ask(system: MemorySystem) -> None:
    memory = system.memory
    answer = memory.ask("Where do I work?", top_k=3)
    assert answer.answer.strip()
    assert 1 <= answer.retrieval["shown"] <= 3
    known = {record["id"] for record in memory.records(kind="fact")}
    assert {cited["id"] for cited in answer.citations} <= known
    assert all(number < 1 or number > answer.retrieval["shown"] for number in answer.invented_citations)
    [row] = answer.usage["phases"]
    assert (row["phase"], row["calls"], row["errors"]) == ("answer", 1, 0)
    with memory.ask_stream("Where do I work?", top_k=3) as stream:
        pieces = list(stream)
    assert len(pieces) > 1
    assert "".join(pieces).strip() == stream.answer.answer
    assert stream.answer.usage["tokens"] > 0
