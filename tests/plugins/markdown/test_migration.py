"""From DeerMem's first layout to the second."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.errors import ConflictError, FormatError, NotFoundError, StorageError
from nanomem_core.fileio import atomic
from nanomem_core.memory import Memory
from nanomem_core.records import Record, Scope
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.fakes import HashEmbedder
from nanomem_core.testing.samples import bytes_below
from nanomem_plugins.markdown.storage import MarkdownStorage

from .material import fact_path, failing_from, write_fact

ANN = {"user_id": "ann", "agent_name": "default"}
SCOPE = Scope("ann")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def v1_fact(id: str, content: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "id": id,
        "content": content or f"text of {id}",
        "category": "preference",
        "confidence": 0.9,
        "createdAt": "2025-05-01T10:00:00Z",
        "source": "thread_1",
        **fields,
    }


def v1(facts: Any, **summaries: str) -> dict[str, Any]:
    """A document of version 1; `summaries` are texts by name."""
    user = {name: {"summary": text, "updatedAt": "2025-05-01T10:00:00Z"} for name, text in summaries.items()}
    return {"version": "1.0", "lastUpdated": "2025-05-02T10:00:00Z", "user": user, "history": {}, "facts": facts}


def write(root: Path, document: Any, agent: str | None = None, user: str = "ann") -> Path:
    folder = root / "users" / user
    path = (folder if agent is None else folder / "agents" / agent) / "memory.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1))
    return path


def tree(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def contents(store: MarkdownStorage, agent: str = "default") -> dict[str, str]:
    return {fact["id"]: fact["content"] for fact in store.list_facts(user_id="ann", agent_name=agent, limit=1000)}


def test_the_first_read_moves_facts_and_keeps_summaries_and_a_copy(root: Path) -> None:
    path = write(root, v1([v1_fact("a"), v1_fact("b", category="knowledge", source="manual")], workContext="Boats"))
    before = path.read_bytes()
    with MarkdownStorage(root) as store:
        document = store.load(**ANN)
        assert [fact["id"] for fact in document["facts"]] == ["a", "b"]
        assert document["facts"][0]["source"] == {"type": "conversation", "threadId": "thread_1"}
        assert document["facts"][0]["createdAt"] == "2025-05-01T10:00:00Z"
        assert document["facts"][1]["categoryExtension"] == "knowledge"
        assert document["user"]["workContext"]["summary"] == "Boats"
    assert path.with_name("memory.json.v1.bak").read_bytes() == before
    found = json.loads(path.read_bytes())
    assert list(found) == ["version", "revision", "lastUpdated", "user", "history"]
    assert found["version"] == "2.0"
    assert "user_id: ann\nagent_name: __default__\n" in fact_path(root, "a").read_text()
    after = tree(root)
    with MarkdownStorage(root) as store:
        assert len(store.load(**ANN)["facts"]) == 2
        assert store.migrate(**ANN) == {
            "migrated": False,
            "fromVersion": "2.0",
            "toVersion": "2.0",
            "revision": found["revision"],
        }
    assert tree(root) == after


_CALLS: dict[str, Callable[[MarkdownStorage], object]] = {
    "get": lambda store: store.get(SCOPE, "a"),
    "head": lambda store: store.head(SCOPE),
    "scan": lambda store: list(store.scan(SCOPE)),
    "scopes": lambda store: store.scopes(),
    "columns": lambda store: store.columns(SCOPE),
    "commit": lambda store: store.commit(SCOPE, [Put(Record("new", "x"))]),
    "delete": lambda store: store.commit(SCOPE, [Delete("missing")]),
    "profile": lambda store: store.profile(SCOPE),
    "get_fact": lambda store: store.get_fact("a", **ANN),
    "list_facts": lambda store: store.list_facts(**ANN),
    "upsert_fact": lambda store: store.upsert_fact({"id": "new", "content": "x"}, **ANN),
    "patch": lambda store: store.upsert_fact({"id": "a", "content": "x"}, expected_fact_revision=1, **ANN),
    "delete_fact": lambda store: store.delete_fact("missing", **ANN),
    "apply_changes": lambda store: store.apply_changes({}, **ANN),
    "update_summaries": lambda store: store.update_summaries({}, user_id="ann"),
    "save": lambda store: store.save({"user": {}}, user_id="ann"),
    "reload": lambda store: store.reload(**ANN),
    "search_facts": lambda store: store.search_facts("text", [SCOPE]),
    "stats": lambda store: store.stats(),
    "compact": lambda store: store.compact(),
    "check": lambda store: store.check(),
    "rebuild_index": lambda store: store.rebuild_index(),
}


@pytest.mark.parametrize("name", _CALLS)
def test_whichever_call_comes_first_facts_of_version_1_are_seen_and_kept(root: Path, name: str) -> None:
    path = write(root, v1([v1_fact("a"), v1_fact("b")]))
    before = path.read_bytes()
    with MarkdownStorage(root) as store:
        _CALLS[name](store)
        assert path.with_name("memory.json.v1.bak").read_bytes() == before
        assert {"a", "b"} <= contents(store).keys()


def test_the_first_call_may_patch_or_delete_a_fact_of_version_1(root: Path) -> None:
    write(root, v1([v1_fact("a"), v1_fact("b")]))
    with MarkdownStorage(root) as store:
        assert store.delete_fact("a", expected_fact_revision=1, **ANN)["deletedFactIds"] == ["a"]
        assert contents(store) == {"b": "text of b"}


def test_a_memory_over_it_knows_the_facts_and_their_times(root: Path) -> None:
    write(root, v1([v1_fact("a", "Prefers tea")], topOfMind="Sailing"))
    with Memory(MarkdownStorage(root), HashEmbedder(), taggers=(), plugins=PluginManager(), user="ann") as memory:
        [hit] = memory.search("tea")
        assert (hit.text, hit.timestamp, hit.source) == ("Prefers tea", 1_746_093_600.0, "thread_1")
        assert memory.context().startswith("User Context:\n- Current Focus: Sailing\n\nFacts:\n- [preference | 0.90]")


def test_odd_facts_stay_behind_and_are_told_of_while_good_ones_move(root: Path) -> None:
    odd: list[Any] = [
        v1_fact("null", confidence=None),
        v1_fact("text", confidence="95"),
        v1_fact("much", confidence=95),
        v1_fact("dotted.id"),
        v1_fact("empty") | {"content": " "},
        v1_fact("soon", createdAt="soon"),
        v1_fact("good", "another content"),
        "no object",
        None,
        {},
    ]
    path = write(root, v1([v1_fact("good"), *odd, v1_fact("also-good")]))
    before = path.read_bytes()
    with MarkdownStorage(root) as store:
        report = store.migrate_user("ann")
        assert (report.state, report.from_version, report.moved) == ("migrated", "1.0", 2)
        assert len(report.refused) == len(odd)
        assert report.refused[3].startswith("memory.json: facts[4]: id: ")
        assert contents(store) == {"good": "text of good", "also-good": "text of also-good"}
    with MarkdownStorage(root) as store:
        assert contents(store) == {"good": "text of good", "also-good": "text of also-good"}
        assert store.migrate_user("ann").state == "current"
    kept = json.loads((root / "users/ann/.nanomem/migration.json").read_bytes())
    assert [item["fact"] for item in kept["refused"]] == odd
    assert path.with_name("memory.json.v1.bak").read_bytes() == before


def test_a_fact_without_an_id_gets_the_same_one_each_time_and_without_a_time_that_of_today(root: Path) -> None:
    fact = v1_fact("x", "Prefers tea", createdAt="")
    del fact["id"]
    write(root, v1([fact, fact]))
    with MarkdownStorage(root) as store:
        [id] = contents(store)
    assert id == "fact_" + hashlib.sha256(b"Prefers tea").hexdigest()[:32]


def test_another_copy_stops_it_and_nothing_is_changed(root: Path) -> None:
    path = write(root, v1([v1_fact("a")]))
    path.with_name("memory.json.v1.bak").write_text("another")
    before = path.read_bytes()
    with MarkdownStorage(root) as store:
        for call in (lambda: store.get(SCOPE, "a"), lambda: store.migrate_user("ann", dry_run=True)):
            with pytest.raises(ConflictError, match=r"v1\.bak"):
                call()
    assert path.read_bytes() == before
    assert path.with_name("memory.json.v1.bak").read_text() == "another"
    assert not (root / "users/ann/agents").exists()


def test_a_copy_that_can_not_be_written_stops_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(root, v1([v1_fact("a")]))
    before = path.read_bytes()
    real = atomic.write

    def full(target: Any, data: bytes, **options: Any) -> None:
        if os.fspath(target).endswith(".bak"):
            raise OSError(28, "No space left on device")
        real(target, data, **options)

    monkeypatch.setattr(atomic, "write", full)
    with MarkdownStorage(root) as store, pytest.raises(StorageError, match=r"v1\.bak"):
        store.get(SCOPE, "a")
    assert path.read_bytes() == before
    assert not (root / "users/ann/agents").exists()
    monkeypatch.undo()
    with MarkdownStorage(root) as store:
        assert contents(store) == {"a": "text of a"}


def test_a_fact_that_is_there_already_is_skipped(root: Path) -> None:
    write_fact(root, "a")
    old = {
        "id": "a",
        "content": "Project uses Python 3.12.",
        "category": "constraint",
        "confidence": 0.95,
        "topics": ["python", "runtime"],
        "source": "thread_123",
        "createdAt": "2020-01-01T00:00:00Z",
    }
    write(root, v1([old, v1_fact("b")]))
    before = fact_path(root, "a").read_bytes()
    with MarkdownStorage(root) as store:
        report = store.migrate_user("ann")
        assert (report.moved, report.skipped, report.refused) == (1, 1, ())
    assert fact_path(root, "a").read_bytes() == before


def test_a_fact_that_says_something_else_under_one_id_stops_it(root: Path) -> None:
    write_fact(root, "a")
    path = write(root, v1([v1_fact("a"), v1_fact("b")]))
    before = path.read_bytes()
    with MarkdownStorage(root) as store, pytest.raises(ConflictError) as caught:
        store.get_fact("b", **ANN)
    assert caught.value.id == "a"
    assert path.read_bytes() == before
    assert not fact_path(root, "b").exists()
    assert not path.with_name("memory.json.v1.bak").exists()


# Files of agents.


def test_an_agents_file_gives_its_facts_to_the_agent_and_its_summaries_to_the_user(root: Path) -> None:
    write(root, v1([v1_fact("a")], workContext="Boats"))
    path = write(root, v1([v1_fact("b")], workContext=" Boats ", topOfMind="Sailing"), agent="coder")
    before = path.read_bytes()
    with MarkdownStorage(root) as store:
        assert contents(store) == {"a": "text of a"}
        assert contents(store, "coder") == {"b": "text of b"}
        summaries = store.get_summaries(user_id="ann")["user"]
        assert (summaries["workContext"]["summary"], summaries["topOfMind"]["summary"]) == ("Boats", "Sailing")
    assert not path.exists()
    assert path.with_name("memory.json.v1.bak").read_bytes() == before


def test_summaries_that_differ_stop_it_and_the_agents_file_stays(root: Path) -> None:
    write(root, v1([v1_fact("a")], workContext="Boats"))
    path = write(root, v1([v1_fact("b")], workContext="Ships"), agent="coder")
    before = tree(root)
    with MarkdownStorage(root) as store, pytest.raises(ConflictError, match=r"user\.workContext"):
        store.load(**ANN)
    assert path.exists()
    assert {name: data for name, data in tree(root).items() if ".nanomem" not in name and ".lock" not in name} == before


def test_clearing_needs_no_agreement_and_nothing_comes_back(root: Path) -> None:
    write(root, v1([v1_fact("a")], workContext="Boats"))
    write(root, v1([v1_fact("b"), v1_fact("a", "another")], workContext="Ships"), agent="coder")
    config = root / "users/ann/agents/coder/config.yaml"
    config.write_text("model: x\n")
    with MarkdownStorage(root) as store:
        assert store.clear_all(user_id="ann")["facts"] == []
    with MarkdownStorage(root) as store:
        assert contents(store) == contents(store, "coder") == {}
        assert store.profile(SCOPE) == []
    assert config.read_text() == "model: x\n"


def lead(root: Path, **files: bytes) -> Path:
    folder = root / "users/ann/agents/lead-agent"
    write_fact(root, "a", agent="lead-agent")
    for name, data in files.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    return folder


def test_facts_of_an_older_default_agent_move_to_that_of_today(root: Path) -> None:
    folder = lead(root)
    with MarkdownStorage(root) as store:
        assert contents(store) == {"a": "Project uses Python 3.12."}
    assert not folder.exists()
    assert "agent_name: __default__\n" in fact_path(root, "a").read_text()


def test_an_agent_of_that_name_with_its_own_configuration_is_left_alone(root: Path) -> None:
    folder = lead(root, config_yaml=b"model: x\n")
    before = tree(folder)
    with MarkdownStorage(root) as store:
        assert contents(store) == {}
        assert contents(store, "lead-agent") == {"a": "Project uses Python 3.12."}
    assert {name: data for name, data in tree(folder).items() if ".nanomem" not in name} == before


def test_an_older_default_agent_with_something_else_stops_it(root: Path) -> None:
    folder = lead(root, notes_txt=b"mine")
    before = tree(folder)
    with MarkdownStorage(root) as store, pytest.raises(StorageError, match=r"notes\.txt"):
        store.load(**ANN)
    assert tree(folder) == before


# The early second layout.


def test_facts_that_are_named_by_their_files_are_taken_from_there(root: Path) -> None:
    path = write_fact(root, "a")
    place = path.relative_to(root / "users/ann").as_posix()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    facts = {
        "a": {"path": place, "contentHash": digest},
        "b": {"path": "../../outside.md"},
        "c": {"path": place},
        "d": {"path": "agents/__default__/facts/none.md"},
        "e": {"path": place, "contentHash": "0" * 64},
        "f": 3,
    }
    write(root, {**v1(facts), "version": "2.0"})
    (root / "outside.md").write_bytes(path.read_bytes())
    with MarkdownStorage(root) as store:
        report = store.migrate_user("ann")
        assert (report.from_version, report.moved, report.skipped) == ("2.0", 0, 1)
        assert [line.split(": ")[1] for line in report.refused] == [f"facts.{id}" for id in "bcdef"]
        assert contents(store) == {"a": "Project uses Python 3.12."}


# At work.


def test_a_newer_version_is_refused_and_left_alone(root: Path) -> None:
    path = write(root, {**v1([]), "version": "3.0"})
    before = path.read_bytes()
    with MarkdownStorage(root) as store, pytest.raises(FormatError, match=r"3\.0"):
        store.load(**ANN)
    assert path.read_bytes() == before


def test_a_store_for_reading_only_says_that_it_can_not_migrate(root: Path) -> None:
    write(root, v1([v1_fact("a")]))
    before = tree(root)
    with MarkdownStorage(root, read_only=True) as store, pytest.raises(FormatError, match="nanomem migrate markdown"):
        store.get(SCOPE, "a")
    assert tree(root) == before


def test_a_dry_run_tells_what_would_be_done_and_writes_nothing(root: Path) -> None:
    write(root, v1([v1_fact("a"), v1_fact("b", confidence=None)]))
    before = tree(root)
    with MarkdownStorage(root) as store:
        assert store.users() == ["ann"]
        report = store.migrate_user("ann", dry_run=True)
    assert (report.state, report.moved, len(report.refused)) == ("planned", 1, 1)
    assert tree(root) == before


def test_facts_may_be_sent_to_another_agent(root: Path) -> None:
    write(root, v1([v1_fact("a")]))
    with MarkdownStorage(root) as store:
        done = store.migrate(user_id="ann", agent_name="coder")
        assert (done["migrated"], done["fromVersion"], done["toVersion"]) == (True, "1.0", "2.0")
        assert (contents(store), contents(store, "coder")) == ({}, {"a": "text of a"})


def test_a_user_that_can_not_be_migrated_is_told_of_beside_the_damage_of_others(root: Path) -> None:
    path = write(root, v1([v1_fact("a")]))
    path.with_name("memory.json.v1.bak").write_text("another")
    write(root, "no object", user="bob")
    for options in ({}, {"read_only": True}):
        with MarkdownStorage(root, **options) as store:
            found = {Path(damage.path): damage for damage in store.check()}
            assert found.keys() == {path.parent, root / "users/bob/memory.json"}
            assert not any(damage.lost for damage in found.values())
            expected = "nanomem migrate markdown" if options else "move it away"
            assert expected in found[path.parent].what


@pytest.mark.parametrize(("agent", "other"), [("default", "coder"), ("coder", "default")])
def test_what_a_migration_kept_goes_when_the_agent_is_erased(root: Path, agent: str, other: str) -> None:
    def left() -> set[str]:
        found = [path for path, content in bytes_below(root) if b"zebra" in content]
        return {path.relative_to(root / "users/ann").as_posix() for path in found}

    write(root, v1([v1_fact("a", "zebra"), v1_fact("b.c", "zebra")], workContext="Boats"))
    write(root, v1([v1_fact("d", "zebra")]), agent="coder")
    folders = {"default": "agents/__default__/", "coder": "agents/coder/"}
    with MarkdownStorage(root) as store:
        assert store.migrate_user("ann").moved == 2
        kept = {"memory.json.v1.bak", "agents/coder/memory.json.v1.bak", ".nanomem/migration.json"}
        assert left() >= kept
        store.erase(Scope("ann", agent))
        assert {path for path in left() if not path.startswith(folders[other])} == set()
        assert len(contents(store, other)) == 1
        assert store.get_summaries(user_id="ann")["user"]["workContext"]["summary"] == "Boats"
        store.erase(Scope("ann", other))
    assert left() == set()


def test_nobody_is_not_migrated(root: Path) -> None:
    root.mkdir()
    with MarkdownStorage(root) as store, pytest.raises(NotFoundError, match="nobody"):
        store.migrate_user("nobody")


def test_a_folder_whose_user_is_only_known_by_a_hash_waits_for_the_name(root: Path) -> None:
    name = "ann@example.org"
    folder = f"ann-example-org-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    path = write(root, v1([v1_fact("a")]), user=folder)
    with MarkdownStorage(root) as store:
        assert store.users() == [folder]
        for call in (lambda: store.migrate_user(folder), lambda: store.get(Scope(folder), "a")):
            with pytest.raises(StorageError, match="--user"):
                call()
        assert store.migrate_user(name).moved == 1
        assert store.users() == [name]
        assert store.get(Scope(name), "a").text == "text of a"
    assert path.with_name("memory.json.v1.bak").exists()


def _migrate(root: Path, start: Any, results: Any) -> None:
    with MarkdownStorage(root) as store:
        start.wait()
        results.put(len(store.list_facts(limit=1000, **ANN)))


def test_two_processes_at_once_end_with_one_result(root: Path) -> None:
    write(root, v1([v1_fact(f"f{n}") for n in range(200)], workContext="Boats"))
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_migrate, args=(root, start, results)) for _ in range(2)]
    for process in processes:
        process.start()
    assert [results.get(timeout=60) for _ in processes] == [200, 200]
    for process in processes:
        process.join()
    with MarkdownStorage(root) as store:
        assert {record.version for record in store.scan(SCOPE)} == {1}
        assert store.head(SCOPE) == 1


def test_an_interruption_at_any_moment_leaves_the_old_layout_or_the_new_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call that changes the disk fails once, with what was done before it left as it is."""
    steps = 0
    for number in range(200):
        place = tmp_path / str(number)
        write(place, v1([v1_fact("a"), v1_fact("b", confidence=None)], workContext="Boats"))
        write(place, v1([v1_fact("c")]), agent="coder")
        with monkeypatch.context() as patch:
            count = failing_from(number, patch)
            store = MarkdownStorage(place)
            try:
                store.get(SCOPE, "a")
                done = True
            except (StorageError, OSError):
                done = False
        with MarkdownStorage(place) as again:
            assert contents(again) == {"a": "text of a"}
            assert contents(again, "coder") == {"c": "text of c"}
            assert again.get_summaries(user_id="ann")["user"]["workContext"]["summary"] == "Boats"
            assert [record.version for record in again.scan(SCOPE)] == [1]
        steps = number
        if done and next(count) <= number:
            break
    assert 10 < steps < 199
