"""Faults that users of other memories reported, each as the behaviour that is right."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.errors import EmbedderMismatchError, InputError
from nanomem_core.memory import Memory
from nanomem_core.pipeline.search import MODES, Mode
from nanomem_core.testing.fakes import FrozenClock, HashEmbedder
from nanomem_core.testing.samples import HOSTILE_NAMES, bytes_below
from nanomem_core.times import parse_time
from tests.memories import DAY, CountingEmbedder, Shelf, WordTagger, texts

# A superseded fact.

OLD = "Works at Alder Foods as a backend engineer"
NEW = "Moved to Birch Labs, now a platform engineer"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reopened", [False, True])
def test_a_superseded_fact_is_never_served_as_current(shelf: Shelf, embedder: Any, mode: Mode, reopened: bool) -> None:
    memory = shelf.open(embedder, mode=mode)
    for at, text in (("2025-01-10T10:00:00Z", OLD), ("2026-02-01T10:00:00Z", NEW)):
        memory.add(text, {"user_id": "u1"}, entity="employer", timestamp=at)
    if reopened:
        memory.close()
        memory = shelf.open(embedder, mode=mode)
    hits = memory.search("where does u1 work?", top_k=3)
    assert [hit.superseded for hit in hits] == [False, True][: len(hits)]
    assert hits[0].text == NEW
    # By words alone only the old value is found, and it gives its place to the new one.
    assert mode == "text" or (texts(hits), hits[1].superseded_at) == ([NEW, OLD], parse_time("2026-02-01T10:00:00Z"))
    assert texts(memory.search("Works at Alder Foods as a backend engineer", top_k=1)) == [NEW]
    history = memory.history(entity="employer", filter={"user_id": "u1"})
    assert [(entry.revision, entry.text) for entry in history] == [(1, OLD), (2, NEW)]
    assert texts(memory.current(as_of="2025-06-01T00:00:00Z")) == [OLD]
    assert texts(memory.search("where does u1 work?", as_of="2025-06-01T00:00:00Z")) == [OLD]
    (change,) = memory.changes(since="2026-01-01T00:00:00Z")
    assert (change.text, change.previous_text, change.change) == (NEW, OLD, "changed")
    assert texts(memory.records()) == [OLD, NEW]


# An additive fact.


def test_an_additive_fact_retires_no_other(shelf: Shelf, embedder: Any) -> None:
    facts = (
        "Dana Reyes is head of compliance at Northwind.",
        "Dana Reyes administers Northwind's source-control organisation.",
        "Dana Reyes asked for an audit trail on every release.",
    )
    memory = shelf.open(embedder, taggers=[WordTagger({"head of": "other_role"})])
    ids = memory.add_many(facts)
    assert texts(memory.current()) == [facts[0]]
    for id in ids:
        found = memory.get(id)
        assert found is not None
        assert found.superseded is not True
    assert set(texts(memory.search("Dana Reyes", top_k=9))) == set(facts)


def test_a_fact_that_was_retired_wrongly_names_the_cause_and_is_undone_with_one_call(memory: Memory) -> None:
    id = memory.add("Dana Reyes is head of compliance at Northwind.", entity="dana role")
    before = memory.get(id)
    memory.retract(id, reason="a model said that record 2 contradicts it")
    ended = [change for change in memory.changes(0) if change.change == "ended"]
    assert [(change.id, change.metadata) for change in ended] == [
        (id, {"retracted_because": "a model said that record 2 contradicts it"})
    ]
    memory.restore(id)
    assert memory.get(id) == {**(before or {}), "version": 3}


# Words without spaces.

SCRIPTS = (
    "用户最近在学习机器学习算法，周末喜欢喝乌龙茶。",
    "プロジェクト記憶の設計は来週レビューする。",
    "프로젝트 메모리 설계를 다음 주에 검토한다.",
    "Meets Zoë at Café Müller 🫖 on Fridays.",
    "用GPT-4o写周报",
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("机器学习", [0]),
        ("乌龙茶", [0]),
        ("記憶", [1]),
        ("설계", [2]),
        ("cafe muller", [3]),
        ("Café Müller", [3]),
        ("GPT-4o", [4]),
        ("🫖", [3]),
        ("，", []),
        ("…!?", []),
        ("的", []),
    ],
)
def test_words_of_every_script_are_found_by_keyword(shelf: Shelf, query: str, expected: list[int]) -> None:
    memory = shelf.open(mode="text")
    memory.add_many(SCRIPTS)
    for opened in (memory, shelf.open(mode="text")):
        assert texts(opened.search(query, top_k=9)) == [SCRIPTS[number] for number in expected]


# Another embedder.


def fingerprint(folder: Path) -> dict[str, str]:
    """A digest of every file but locks."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


REEMBED = """
import os, sys
import nanomem_core.testing.fakes as fakes
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_plugins.arena.storage import ArenaStorage

class Slow(fakes.HashEmbedder):
    seen = 0

    def encode(self, texts):
        if type(self).seen + len(texts) > int(sys.argv[2]):
            os.kill(os.getpid(), 9) if os.name == "posix" else os._exit(9)
        type(self).seen += len(texts)
        return super().encode(texts)

memory = Memory(ArenaStorage(path=sys.argv[1]), Slow(768), taggers=(), plugins=PluginManager())
print(memory.reembed())
"""


@pytest.fixture
def arena(shelf: Shelf) -> Shelf:
    if shelf.store != "arena":
        pytest.skip("the store keeps no vectors, so there are none to convert")
    return shelf


def test_a_store_of_another_embedder_refuses_search_and_add_and_names_the_way_out(arena: Shelf) -> None:
    memory = arena.open(HashEmbedder(384))
    first = memory.add_many(f"fact {number}" for number in range(20))[0]
    memory.close()
    before = fingerprint(arena.folder)
    other = arena.open(HashEmbedder(768))
    for call in (
        lambda: other.search("x"),
        lambda: other.search("x", mode="vector"),
        lambda: other.history("x"),
        lambda: other.forget("x"),
        lambda: other.add("new fact"),
        lambda: other.update(first, "new text"),
    ):
        with pytest.raises(EmbedderMismatchError) as caught:
            call()
        for part in ("'hash-384' (384 dimensions)", "'hash-768' (768 dimensions)", "nanomem reembed"):
            assert part in str(caught.value)
    assert len(other.records()) == 20
    assert texts(other.search("fact 7", mode="text", top_k=1)) == ["fact 7"]
    assert fingerprint(arena.folder) == before
    assert other.delete(first) == 1
    assert len(arena.open(HashEmbedder(384)).search("fact 7", top_k=50)) == 19


def test_reembedding_that_was_killed_half_way_leaves_the_old_vectors_and_is_taken_up_again(arena: Shelf) -> None:
    memory = arena.open(HashEmbedder(384))
    memory.add_many(f"fact {number}" for number in range(300))
    memory.close()
    path = arena.folder / "memory.dat"
    before = path.read_bytes()

    def reembed(limit: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", REEMBED, str(path), str(limit)], capture_output=True, text=True)

    killed = reembed(200)
    assert killed.returncode != 0
    assert killed.stdout == ""
    assert path.read_bytes() == before
    with arena.open(HashEmbedder(384)) as old:
        hit = old.search("fact 7", top_k=1, mode="vector")[0]
        assert (hit.text, round(hit.cosine, 2)) == ("fact 7", 1.0)
    resumed = reembed(10_000)
    assert resumed.returncode == 0, resumed.stderr
    assert 0 < int(resumed.stdout) < 300, "what was done before the kill is not done again"
    with arena.open(HashEmbedder(768)) as new:
        assert len(new.records()) == 300
        for number in (0, 7, 299):
            hit = new.search(f"fact {number}", top_k=1, mode="vector")[0]
            assert (hit.text, round(hit.cosine, 2)) == (f"fact {number}", 1.0)
    with arena.open(HashEmbedder(384)) as first, pytest.raises(EmbedderMismatchError, match=r"hash-768.*hash-384"):
        first.search("fact 7")


def test_a_memory_that_is_open_while_another_one_reembeds_gets_the_same_error(arena: Shelf) -> None:
    memory = arena.open(HashEmbedder(384))
    memory.add("fact")
    memory.search("fact")
    arena.open(HashEmbedder(768)).reembed()
    for call in (lambda: memory.search("fact"), lambda: memory.add("more")):
        with pytest.raises(EmbedderMismatchError):
            call()
    assert texts(memory.search("fact", mode="text")) == ["fact"]


# Deleting everywhere.


def test_a_purged_fact_is_nowhere_and_a_deleted_one_only_out_of_sight(shelf: Shelf, clock: FrozenClock) -> None:
    embedder = CountingEmbedder()
    memory = shelf.open(embedder, user="u1")
    first = memory.add("The locker code is 7431-ZEBRA", entity="locker code", timestamp=clock.now - 3 * DAY)
    second = memory.add("The locker code is 8852-ZEBRA", entity="locker code", timestamp=clock.now - 2 * DAY)
    episode = memory.add("They spoke of ZEBRA", {"derived_from": [first]}, kind="episode")
    summary = memory.add("Codes: ZEBRA", {"derived_from": [episode]}, kind="summary")
    kept = memory.add("The gate is open")
    memory.search("ZEBRA")
    exported = shelf.folder / "elsewhere.jsonl"
    memory.export(exported)
    exported.unlink()

    # Deleting hides one value and keeps the rest of its history.
    memory.delete(second)
    assert [(entry.id, entry.superseded) for entry in memory.history(id=first)] == [(first, False)]

    assert set(memory.purge(first)) == {first, episode, summary}
    assert memory.purge(first) == []
    memory.compact()
    for opened in (memory, shelf.open(embedder, user="u1")):
        for mode in MODES:
            assert "ZEBRA" not in str(opened.search("ZEBRA", mode=mode, kind=None, top_k=99))
            assert "ZEBRA" not in str(opened.search("ZEBRA", mode=mode, as_of=clock.now - DAY))
        assert [(entry.status, entry.text) for entry in opened.history(id=first)] == [("purged", "")]
        assert opened.history(entity="locker code") == []
        assert opened.current(as_of=clock.now - DAY) == opened.records(kind="episode") == []
        assert [entry.id for entry in opened.records(kind=None)] == [kept]
        assert "ZEBRA" not in str(opened.changes(0, kind=None))
    assert [str(path) for path, content in bytes_below(shelf.folder) if b"ZEBRA" in content] == []
    memory.add("The locker code is 7431-ZEBRA", entity="locker code", id=first)
    assert texts(memory.search("locker code", mode="text")) == ["The locker code is 7431-ZEBRA"]


def test_the_two_ways_to_remove_are_told_apart_in_their_documentation() -> None:
    assert "`purge` removes a fact with its history" in " ".join((Memory.delete.__doc__ or "").split())
    assert "no byte of the text in any file" in " ".join((Memory.purge.__doc__ or "").split())


# Names that are paths.


def test_a_user_name_that_is_a_path_touches_nothing_outside_the_store(
    store: str, tmp_path: Path, clock: FrozenClock
) -> None:
    sentinel = tmp_path / "sentinel"
    sentinel.write_text("untouched")
    (tmp_path / "above" / "store").mkdir(parents=True)
    shelf = Shelf(store, tmp_path / "above" / "store", clock)
    memory = shelf.open()
    for user in HOSTILE_NAMES:
        memory.add(f"the fact of {user!r}", user=user, agent=user)
    for user in ("a\0b", ""):
        for call in (memory.add, memory.search):
            with pytest.raises(InputError, match="user: "):
                call("x", user=user)
        for other in (memory.records, memory.erase):
            with pytest.raises(InputError, match="user: "):
                other(user=user)
    for user in HOSTILE_NAMES:
        expected = [f"the fact of {user!r}"]
        assert texts(memory.search("the fact", user=user, agent=user, top_k=99)) == expected
        assert texts(shelf.open().records(user=user, agent=user)) == expected
    for number, user in enumerate(HOSTILE_NAMES):
        memory.erase(user=user, agent=user)
        assert memory.records(user=user, agent=user) == []
        rest = HOSTILE_NAMES[number + 1 :]
        assert all(len(memory.records(user=other, agent=other)) == 1 for other in rest)
    assert sentinel.read_text() == "untouched"
    outside = {path for path in tmp_path.rglob("*") if (tmp_path / "above" / "store") not in path.parents}
    assert outside == {sentinel, tmp_path / "above", tmp_path / "above" / "store"}
    shelf.close()


def test_a_link_that_was_planted_beside_the_store_is_not_written_through(arena: Shelf) -> None:
    target = arena.folder.parent / f"{arena.folder.name}-outside"
    target.touch()
    memory = arena.open()
    memory.add("secret")
    try:
        for name in ("index", "reembed", "quarantine"):
            os.symlink(target, arena.folder / f"memory.dat.{name}")
    except OSError:
        pytest.skip("this system makes no symbolic links")
    memory.erase()
    memory.add_many(f"more {number}" for number in range(600))
    memory.compact()
    arena.open(HashEmbedder(8)).reembed()
    memory.close()
    assert target.read_bytes() == b""
    target.unlink()
