"""What an operation costs follows what has changed, not how much there is."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import pytest

from nanomem_core.columns import MemoryColumns
from nanomem_core.errors import ConflictError, LockTimeoutError
from nanomem_core.fileio.journal import Journal
from nanomem_core.fileio.locks import Lock
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_plugins.markdown import shown, state
from nanomem_plugins.markdown.state import AgentState
from nanomem_plugins.markdown.storage import MarkdownStorage
from tests.memories import CountingEmbedder

from .material import ANN, edit, fact_path, write_fact

OWNER = {"user_id": "ann", "agent_name": "default"}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "memory"


@pytest.fixture
def storage(root):
    with MarkdownStorage(root) as storage:
        yield storage


def fill(storage, count):
    facts = [{"id": f"f{n:03}", "content": f"Fact {n}", "topics": ["a"], "notes": {"x": [n]}} for n in range(count)]
    storage.apply_changes({"upserts": facts}, **OWNER)


def listed(storage):
    return storage.list_facts(limit=10_000, **OWNER)


def counted(monkeypatch, owner, name):
    """The arguments of each call of a function from now on."""
    calls, real = [], getattr(owner, name)

    def counting(*arguments, **options):
        calls.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, counting)
    return calls


def look_no_more(storage, monkeypatch):
    """Look for edits once; the time for the next look never comes."""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    storage.reload(**OWNER)


def test_a_load_of_what_is_in_memory_lists_and_opens_no_fact_file(storage, monkeypatch):
    fill(storage, 50)
    look_no_more(storage, monkeypatch)
    before = storage.load(**OWNER)
    listings, read = counted(monkeypatch, state, "find_files"), counted(monkeypatch, Path, "read_bytes")
    assert storage.load(**OWNER) == before
    assert listings == []
    assert [path for (path,) in read if path.suffix == ".md"] == []


def test_of_10_000_facts_the_one_that_changed_is_all_that_is_written_and_indexed(storage, root, monkeypatch):
    for number in range(10_000):
        write_fact(root, f"f{number:03}", content=f"Fact {number}", title=f"Fact {number}")
    look_no_more(storage, monkeypatch)
    storage.upsert_fact({"id": "first", "content": "The first of this store"}, **OWNER)
    embedder = CountingEmbedder()
    memory = Memory(storage, embedder, taggers=(), plugins=PluginManager(), user="ann")
    assert memory.search("Fact 77", 1)[0].text == "Fact 77"
    embedder.encoded.clear()
    fact = storage.get_fact("f077", **OWNER)
    listings, read = counted(monkeypatch, state, "find_files"), counted(monkeypatch, Path, "read_bytes")
    replaced, followed = counted(monkeypatch, os, "replace"), counted(monkeypatch, MemoryColumns, "apply")

    def written():
        return [Path(new) for _, new in replaced if str(new).endswith(".md")]

    storage.apply_changes({"upserts": [{**fact, "confidence": 0.75}]}, **OWNER)
    assert written() == [fact_path(root, "f077")]
    storage.apply_changes({"upserts": [{**fact, "revision": 2, "content": "Changed"}]}, **OWNER)
    [old] = [record for record in storage.scan(ANN) if record.text == "Fact 77"]
    assert written()[1:] == [fact_path(root, old.id, place="history"), fact_path(root, "f077")]
    assert {path.stem for (path,) in read if path.suffix == ".md"} == {"f077", old.id}
    assert memory.search("Changed", 1)[0].text == "Changed"
    assert [[record.id for record in commit.records] for _, commit in followed] == [["f077"], [old.id, "f077"]]
    assert embedder.encoded == ["Changed"]
    assert listings == []


def test_a_write_of_another_agent_leaves_what_is_in_memory_of_this_one(storage, monkeypatch):
    fill(storage, 50)
    look_no_more(storage, monkeypatch)
    before, columns = listed(storage), storage.columns(ANN).source
    storage.upsert_fact({"id": "new", "content": "New"}, user_id="ann", agent_name="other")
    made, read = counted(monkeypatch, shown, "fact_of"), counted(monkeypatch, Path, "read_bytes")
    listings = counted(monkeypatch, state, "find_files")
    assert listed(storage) == before
    assert storage.columns(ANN).source is columns
    assert made == listings == []
    assert [path for (path,) in read if path.suffix == ".md"] == []


@pytest.mark.parametrize("count", [1, 300])
def test_a_create_or_an_update_forces_at_most_three_files_to_disk(storage, monkeypatch, count):
    fill(storage, count)
    storage.upsert_fact({"id": "f000", "content": "Changed"}, None, 1, **OWNER)
    syncs = counted(monkeypatch, os, "fsync")
    for number in range(5):
        before = len(syncs)
        storage.upsert_fact({"id": f"new{number}", "content": "New"}, **OWNER)
        assert 1 <= len(syncs) - before <= 3
        before = len(syncs)
        storage.upsert_fact({"id": f"new{number}", "content": "Newer"}, None, 1, **OWNER)
        assert 1 <= len(syncs) - before <= 3


def test_a_list_after_a_write_makes_one_fact_anew_and_reads_no_file(storage, monkeypatch):
    fill(storage, 50)
    listed(storage)
    storage.upsert_fact({"id": "new", "content": "New"}, **OWNER)
    made, read = counted(monkeypatch, shown, "fact_of"), counted(monkeypatch, Path, "read_bytes")
    assert len(listed(storage)) == 51
    assert [arguments[0].id for arguments in made] in (["new"], [])  # the write may have asked for it
    assert [path for (path,) in read if path.suffix == ".md"] == []


def test_what_a_look_at_the_files_compares_follows_every_write_and_edit(storage, root):
    fill(storage, 5)
    storage.upsert_fact({"id": "f001", "content": "Changed"}, None, 1, **OWNER)
    storage.delete_fact("f002", **OWNER)
    edit(fact_path(root, "f003"), b"\nFact 3\n", b"\nSeen to\n")
    fact_path(root, "f004").unlink()
    storage.reload(**OWNER)
    assert [fact["id"] for fact in listed(storage)] == ["f000", "f001", "f003"]
    with storage._user("ann").reading("default", force=True) as state:
        assert state.signatures == {held.path: held.signature for held in state.held.values()}
        assert state.signatures.keys() == state.paths.keys()


def test_what_is_listed_is_the_callers_own(storage):
    fill(storage, 2)
    before = listed(storage)
    found = listed(storage)[0]
    found["content"] = "mine"
    found["topics"].append("b")
    found["source"]["type"] = "import"
    found["notes"]["x"].append(1)
    assert listed(storage) == before
    assert storage.get_fact("f000", **OWNER) == before[0]


@pytest.mark.parametrize("change", ["the same store", "another store", "a hand", "reopened"])
def test_a_list_shows_the_present_whoever_changed_it(storage, root, change):
    fill(storage, 3)
    listed(storage)
    path = fact_path(root, "f001")
    if change == "a hand":
        edit(path, b"\nFact 1\n", b"\nSeen to\n")
        edit(path, b"updatedAt: ", b"updatedAt: '2031-01-01T00:00:00Z' #")
        storage.reload(**OWNER)
    elif change == "another store":
        with MarkdownStorage(root) as other:
            other.upsert_fact({"id": "f001", "content": "Seen to"}, None, 1, **OWNER)
    else:
        storage.upsert_fact({"id": "f001", "content": "Seen to"}, None, 1, **OWNER)
    if change == "reopened":
        storage.close()
        storage = MarkdownStorage(root)
    found = {fact["id"]: fact for fact in listed(storage)}
    assert (found["f001"]["content"], found["f001"]["revision"]) == ("Seen to", 2)
    assert found["f001"]["updatedAt"] in path.read_text()
    with MarkdownStorage(root) as fresh:
        assert {fact["id"]: fact for fact in listed(fresh)} == found
    storage.close()


def test_an_edit_by_hand_that_another_process_took_up_keeps_the_time_that_the_file_names(storage, root):
    fill(storage, 1)
    with MarkdownStorage(root) as other:
        assert len(listed(other)) == 1
        edit(fact_path(root, "f000"), b"updatedAt: ", b"updatedAt: '2031-01-01T00:00:00Z' #")
        storage.reload(**OWNER)
        assert listed(other)[0]["updatedAt"] == "2031-01-01T00:00:00Z"


def test_others_may_commit_while_a_long_journal_is_forced_to_disk(storage, root, monkeypatch):
    monkeypatch.setattr("nanomem_plugins.markdown.user._MANY", 8)
    real = Journal.sync_ahead

    def meanwhile(journal):
        ahead = real(journal)
        with MarkdownStorage(root, lock_timeout=0.0) as other:
            other.upsert_fact({"id": "between", "content": "Between"}, **OWNER)
        return ahead

    monkeypatch.setattr(Journal, "sync_ahead", meanwhile)
    for number in range(8):
        storage.upsert_fact({"id": f"f{number}", "content": f"Fact {number}"}, **OWNER)
    assert Journal(root / "users/ann/.nanomem", root / "users/ann").follow() is None
    assert (root / "users/ann/.nanomem/journal").stat().st_size < 100, "settled"
    assert {fact["id"] for fact in listed(storage)} == {"between", *(f"f{number}" for number in range(8))}


def test_a_writer_looks_for_edits_before_it_has_the_lock(storage, root, monkeypatch):
    fill(storage, 3)
    real, free = AgentState.sweep, []

    def sweep(state, *arguments):
        try:
            with Lock(root / "users/ann/.memory.lock", timeout=0.0):
                free.append(True)
        except LockTimeoutError:
            free.append(False)
        return real(state, *arguments)

    with MarkdownStorage(root) as other:
        monkeypatch.setattr(AgentState, "sweep", sweep)
        other.upsert_fact({"id": "f001", "content": "Changed"}, None, 1, **OWNER)
    assert free
    assert all(free)
    assert storage.get(ANN, "f001").text == "Changed"


def test_who_follows_the_commits_of_others_parses_no_document(storage, root, monkeypatch):
    fill(storage, 5)
    listed(storage)
    with MarkdownStorage(root) as other:
        other.upsert_fact({"id": "new", "content": "New", "topics": ["b"], "notes": {"y": 1}}, **OWNER)
        other.upsert_fact({"id": "f001", "content": "Changed"}, None, 1, **OWNER)
        parsed = counted(monkeypatch, state, "parse_document")
        assert listed(storage) == listed(other)
        assert list(storage.scan(ANN)) == list(other.scan(ANN))
        assert parsed == []


def test_a_commit_that_comes_during_a_look_for_edits_is_none_and_no_second_look_is_taken(storage, root, monkeypatch):
    fill(storage, 5)
    listed(storage)
    real, sweeps = AgentState.sweep, []
    with MarkdownStorage(root) as other:
        listed(other)

        def sweep(state, *arguments):
            sweeps.append(state)
            if len(sweeps) == 1:
                other.upsert_fact({"id": "new", "content": "New"}, **OWNER)
                other.delete_fact("f002", **OWNER)
            return real(state, *arguments)

        monkeypatch.setattr(AgentState, "sweep", sweep)
        storage.reload(**OWNER)
        assert [fact["id"] for fact in listed(storage)] == ["f000", "f001", "f003", "f004", "new"]
        assert len(sweeps) == 1
        assert storage.head(ANN) == other.head(ANN) == 3


def test_an_edit_during_a_look_at_a_file_that_is_also_committed_is_seen_by_the_next_one(storage, root, monkeypatch):
    fill(storage, 2)
    listed(storage)
    real = AgentState.sweep
    with MarkdownStorage(root) as other:

        def sweep(state, *arguments):
            monkeypatch.setattr(AgentState, "sweep", real)
            other.upsert_fact({"id": "f001", "content": "Changed"}, None, 1, **OWNER)
            edit(fact_path(root, "f001"), b"\nChanged\n", b"\nSeen to\n")
            return real(state, *arguments)

        monkeypatch.setattr(AgentState, "sweep", sweep)
        storage.reload(**OWNER)
    storage.reload(**OWNER)
    assert [fact["content"] for fact in listed(storage)] == ["Fact 0", "Seen to"]
    chain = storage.get(ANN, "f001").chain
    assert sorted(one.text for one in storage.scan(ANN) if one.chain == chain) == ["Changed", "Fact 1", "Seen to"]


def test_a_write_of_one_fact_looks_at_no_other_file(storage, root, monkeypatch):
    fill(storage, 5)
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    listings = counted(monkeypatch, state, "find_files")
    storage.upsert_fact({"id": "f001", "content": "Changed"}, None, 1, **OWNER)
    storage.delete_fact("f002", None, 1, **OWNER)
    assert listings == []
    edit(fact_path(root, "f003"), b"\nFact 3\n", b"\nSeen to\n")
    with pytest.raises(ConflictError):
        storage.upsert_fact({"id": "f003", "content": "Mine"}, None, 1, **OWNER)
    assert storage.get(ANN, "f003").text == "Seen to"


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_list_looks_for_no_garbage_and_leaves_the_collector_as_it_was(storage, is_enabled):
    fill(storage, 1000)
    listed(storage)
    looks = []
    try:
        (gc.enable if is_enabled else gc.disable)()
        gc.callbacks.append(lambda phase, info: looks.append(phase))
        with storage._user("ann").reading("default") as state:
            gc.collect()
            looks.clear()
            facts = shown.read_facts(state, shown.shown_facts(state))
        assert len(looks) <= 2 * 2, "while the ids are sorted, and when the collector goes on"
        assert gc.isenabled() == is_enabled
    finally:
        gc.callbacks.pop()
        gc.enable()
    assert len(facts) == 1000


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not tell what a descriptor is of")
def test_settling_forces_each_changed_file_and_each_folder_to_disk_once(storage, root, monkeypatch):
    fill(storage, 40)
    storage.compact()
    forced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (forced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    for number in range(60):
        fact = storage.get_fact(f"f{number % 30:03}", **OWNER)
        storage.upsert_fact({**fact, "content": f"Value {number}"}, None, fact["revision"], **OWNER)
    journal = str(root / "users/ann/.nanomem/journal")
    assert [path for path in forced if not os.path.isdir(path)] == [journal] * 60, "beside it only folders that are new"
    forced.clear()
    storage.compact()
    user = root / "users/ann"
    files = [path for path in forced if os.path.isfile(path) and path != journal]
    documents = [path for path in files if path.endswith(".md")]
    assert len(documents) == len(set(documents)) == 30 + 60, "the facts, and the values before"
    assert {*files} - {*documents} == {str(user / "memory.json"), str(user / "agents/__default__/.nanomem/state.json")}
    folders = [path for path in forced if os.path.isdir(path) and path != str(user / ".nanomem")]
    above = {folder for path in files for folder in Path(path).parents if user in (folder, *folder.parents)}
    assert {*folders} == {str(folder) for folder in above}
    assert len(folders) == len(set(folders))
