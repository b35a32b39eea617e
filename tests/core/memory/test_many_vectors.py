"""Memories with so many vectors that a search reads codes first: the answers are those of a full scan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanomem_core import view
from nanomem_core.changes import Vectors
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.fakes import HashEmbedder
from nanomem_plugins.arena.columns import ScopeColumns
from nanomem_plugins.arena.storage import ArenaStorage

pytest.importorskip("numkong", reason="int8 products need the extra fast")

COUNT, DIM = 5000, 256
WORDS = ("amber", "birch", "cedar", "dune", "elm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 5000 records, every seventh of them a value of one of 40 declared chains."""
    folder = tmp_path_factory.mktemp("many")
    chance = np.random.default_rng(5)
    vectors = chance.normal(size=(COUNT, DIM)).astype(np.float32)
    with opened(folder) as memory:
        memory.add_many(
            {
                "text": f"{WORDS[n % 5]} {WORDS[n % 3]} record {n}",
                "vectors": vectors[n],
                "timestamp": 1_000_000 + (n * 7919) % COUNT,
                "metadata": {"tenth": n % 10},
                **({"entity": f"attribute {n % 40}"} if n % 7 == 0 else {}),
            }
            for n in range(COUNT)
        )
        memory.delete(ids=[record.id for record in memory.records(limit=20, offset=100)])
    return folder


def opened(folder: Path, read_only: bool = False) -> Memory:
    storage = ArenaStorage(folder / "memory.dat", durability="os", read_only=read_only)
    return Memory(storage, HashEmbedder(DIM), taggers=(), plugins=PluginManager())


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many vectors the store was asked for, call by call."""
    counts: list[int] = []
    original = ScopeColumns.vectors

    def count(self: ScopeColumns, rows: Any) -> tuple[Vectors, Any]:
        counts.append(len(rows))
        return original(self, rows)

    monkeypatch.setattr(ScopeColumns, "vectors", count)
    return counts


QUESTIONS = ("amber", "what about birch and cedar", "record 77", "nothing of the kind")
WAYS: list[dict[str, Any]] = [
    {"mode": "vector"},
    {"mode": "hybrid"},
    {"mode": "vector", "top_k": 500},
    {"mode": "vector", "min_score": 0.1},
    {"mode": "hybrid", "min_score": 0.05},
    {"mode": "hybrid", "filter": {"tenth": 3}},
    {"mode": "vector", "as_of": 1_002_000},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_codes_give_the_answers_of_a_full_scan(
    folder: Path, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for kernel in (True, False):
        monkeypatch.setattr(view, "has_kernel", lambda kernel=kernel: kernel)
        with opened(folder) as memory:
            results = [memory.search(question, **{"top_k": 10} | way) for question in QUESTIONS]
        answers.append(
            [
                (found.n_above_floor, [(hit.id, pytest.approx(hit.score, abs=1e-6), hit.superseded) for hit in found])
                for found in results
            ]
        )
    assert answers[0] == answers[1]


def test_few_vectors_are_read_for_an_answer_and_none_to_open(folder: Path, fetched: list[int]) -> None:
    with opened(folder) as memory:
        memory.search("amber", mode="vector")
    fetched.clear()
    with opened(folder) as memory:
        memory.search("amber", mode="vector", top_k=10)
    assert sum(fetched) < 500


def test_codes_that_are_gone_are_made_again(folder: Path, fetched: list[int]) -> None:
    with opened(folder) as memory:
        before = memory.search("amber", mode="vector", top_k=10)
    for codes in (folder / "memory.dat.derived").iterdir():
        codes.unlink()
    with opened(folder) as memory:
        assert memory.search("amber", mode="vector", top_k=10) == before
    assert max(fetched) > 500


def test_reading_leaves_no_codes_behind(folder: Path) -> None:
    for codes in (folder / "memory.dat.derived").iterdir():
        codes.unlink()
    with opened(folder, read_only=True) as memory:
        assert len(memory.search("amber", mode="vector", top_k=10)) == 10
    assert list((folder / "memory.dat.derived").iterdir()) == []


def test_what_is_written_while_codes_are_held_is_found(tmp_path: Path) -> None:
    chance = np.random.default_rng(6)
    vectors = chance.normal(size=(COUNT, DIM)).astype(np.float32)
    with opened(tmp_path) as memory:
        memory.add_many({"text": f"record {n}", "vectors": vectors[n]} for n in range(COUNT))
        embedder = memory.embedder
        assert len(memory.search("anything", mode="vector")) == 3
        id = memory.add("the newest of all")
        hit = memory.search("the newest of all", mode="vector", top_k=1)[0]
        assert (hit.id, hit.cosine) == (id, pytest.approx(1.0, abs=1e-3))
        memory.delete(id)
        assert memory.search("the newest of all", mode="vector", top_k=1)[0].id != id
        memory.purge(memory.records(limit=1)[0].id)
        query = embedder.embed_query("anything")
        stored = vectors[1:].astype(np.float16).astype(np.float32)
        stored /= np.linalg.norm(stored, axis=1, keepdims=True)
        best = int(np.argmax(stored @ query)) + 1
        assert memory.search("anything", mode="vector", top_k=1)[0].text == f"record {best}"


def test_closing_prepares_the_first_answer_of_whoever_opens_next(tmp_path: Path, fetched: list[int]) -> None:
    vectors = np.random.default_rng(8).normal(size=(COUNT, DIM)).astype(np.float32)
    with opened(tmp_path) as memory:
        memory.add_many({"text": f"record {n}", "vectors": vectors[n]} for n in range(COUNT))
    fetched.clear()
    with opened(tmp_path, read_only=True) as memory:
        assert len(memory.search("anything", mode="vector")) == 3
    assert sum(fetched) < 500
