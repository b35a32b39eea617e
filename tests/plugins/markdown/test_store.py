"""Commits as DeerMem sees them, what they cost, who waits for whom, and what stays when things go wrong."""

import gc
import json
import multiprocessing
import os
import threading
import time
import weakref
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.errors import CorruptionError, LockTimeoutError, NotFoundError, ReadOnlyError
from nanomem_core.fileio.locks import Lock
from nanomem_core.memory import Memory
from nanomem_core.records import Scope
from nanomem_core.testing import DiskRecorder
from nanomem_core.testing.samples import NOON, assert_columns_agree, bytes_below
from nanomem_core.vault import Vault

from .material import ANN, deermem_fact, edit, fact, fact_path, opened, texts, write_fact, write_manifest

BOB = Scope("bob", "helper")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "memory"


@pytest.fixture
def storage(root):
    with opened(root) as storage:
        yield storage


def manifest(root, user="ann"):
    return json.loads((root / "users" / user / "memory.json").read_text("utf-8"))


@contextmanager
def counted(monkeypatch, *names):
    """Counts the calls of functions of `os`."""
    counts = dict.fromkeys(names, 0)

    def count(name, real):
        def counting(*args, **kwargs):
            counts[name] += 1
            return real(*args, **kwargs)

        return counting

    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(os, name, count(name, getattr(os, name)))
        yield counts


# The manifest.


def test_the_manifest_has_five_keys_and_counts_the_commits_of_all_agents(storage, root):
    storage.commit(ANN, [Put(fact("a"))])
    storage.commit(Scope("ann", "research"), [Put(fact("a")), Put(fact("b"))])
    found = manifest(root)
    assert list(found) == ["version", "revision", "lastUpdated", "user", "history"]
    assert (found["version"], found["revision"], found["lastUpdated"][-1]) == ("2.0", 2, "Z")
    assert (storage.head(ANN), storage.head(Scope("ann", "research"))) == (1, 1)


def test_summaries_of_others_stay_as_they_are(storage, root):
    sections = {
        "user": {"workContext": {"summary": "本", "updatedAt": "x"}, "cognitiveStyle": {"summary": "y", "more": 1}}
    }
    write_manifest(root, revision=7, **sections)
    storage.commit(ANN, [Put(fact("a"))])
    assert manifest(root)["user"] == sections["user"]
    assert manifest(root)["revision"] == 8
    assert "本" in (root / "users/ann/memory.json").read_text("utf-8")


def test_a_broken_manifest_is_damage_that_refuses_writes_and_hides_no_fact(storage, root):
    write_fact(root, "fact_1")
    path = root / "users/ann/memory.json"
    path.write_text("{broken")
    assert texts(storage) == {"fact_1": "Project uses Python 3.12."}
    with pytest.raises(CorruptionError, match=r"memory\.json"):
        storage.commit(ANN, [Put(fact("a"))])
    assert path.read_text() == "{broken"
    assert [Path(damage.path) for damage in storage.check()] == [path]


# Where the values of a chain lie.


def test_what_no_longer_holds_lies_in_history_and_comes_back_when_the_newer_value_goes(storage, root):
    for number in range(3):
        record = fact(f"v{number}", entity="city", declared=True, valid_from=NOON + number)
        storage.commit(ANN, [Put(record)])
    assert [fact_path(root, f"v{n}").exists() for n in range(3)] == [False, False, True]
    assert [fact_path(root, f"v{n}", place="history").exists() for n in range(3)] == [True, True, False]
    storage.commit(ANN, [Delete("v2")])
    assert [fact_path(root, f"v{n}").exists() for n in range(3)] == [False, True, False]
    storage.commit(ANN, [Put(fact("v9", entity="city", declared=True, valid_from=NOON - 9))])
    assert [fact_path(root, id).exists() for id in ("v1", "v9")] == [True, False], "back-dated"


def test_values_of_a_guessed_chain_and_ended_ones(storage, root):
    storage.commit(ANN, [Put(fact("a", entity="drink")), Put(fact("b", entity="drink", valid_from=NOON + 1))])
    storage.commit(ANN, [Put(fact("c", valid_to=NOON + 9, closed_at=NOON + 9)), Put(fact("d", valid_to=NOON + 9))])
    assert [fact_path(root, id).exists() for id in "abcd"] == [True, True, False, True]


# Cost.


@pytest.mark.parametrize("size", [1, 400])
def test_a_commit_writes_what_it_changes_whatever_the_size(storage, root, monkeypatch, size):
    storage.commit(ANN, [Put(fact(f"f{number}")) for number in range(size)])
    storage.commit(ANN, [Put(fact("f0", "again"))])
    with (
        counted(monkeypatch, "scandir") as counts,
        DiskRecorder(root) as disk,
        opened(root, check="second") as other,
    ):
        other.commit(ANN, [Put(fact("f0", "warm"))])
        listed, done = counts["scandir"], len(disk.operations)
        other.commit(ANN, [Put(fact("f0", "changed"))])
        operations = disk.operations[done:]
        assert counts["scandir"] == listed
    written = {op.path for op in operations if op.kind == "rename"}
    synced = sum(op.kind in ("sync", "syncdir") for op in operations)
    assert {path for path in written if path.endswith(".md")} == {fact_path(root, "f0").relative_to(root).as_posix()}
    assert synced <= 3


def test_creating_many_facts_takes_at_most_three_fsyncs_each(root, monkeypatch):
    with opened(root, check="second") as storage:
        storage.commit(ANN, [Put(fact("first"))])
        with counted(monkeypatch, "fsync") as counts:
            for number in range(300):
                storage.commit(ANN, [Put(fact(f"f{number}"))])
        assert counts["fsync"] <= 3 * 300


def test_facts_that_did_not_change_are_not_opened_again(root, monkeypatch):
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact(f"f{number}")) for number in range(50)])
        edit(fact_path(root, "f7"), b"text of f7\n", b"text of f7, edited\n")
    time.sleep(0.1)  # files that were written a moment ago are read again
    with opened(root) as storage:
        storage.get(ANN, "f1")
    opens = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: opens.append(path) or real(path))
    with opened(root) as storage:
        assert len(texts(storage)) == 51
        edit(fact_path(root, "f9"), b"text of f9\n", b"text of f9, edited\n")
        opens.clear()
        assert len(texts(storage)) == 52
    documents = {path.stem for path in opens if path.suffix == ".md"}
    assert documents & {f"f{number}" for number in range(50)} == {"f9"}


def test_the_commit_of_another_process_costs_what_it_changed(root, monkeypatch):
    with opened(root, check="second") as first, opened(root, check="second") as second:
        first.commit(ANN, [Put(fact(f"f{number}")) for number in range(50)])
        table = second.columns(ANN).source
        first.commit(ANN, [Put(fact("f3", "changed"))])
        with counted(monkeypatch, "scandir") as counts:
            assert second.get(ANN, "f3").text == "changed"
            assert second.columns(ANN).source is table
        assert counts["scandir"] == 0
        assert_columns_agree(second, ANN)


def test_10_000_users_that_are_touched_leave_locks_and_records_of_few_in_memory(storage, root, monkeypatch):
    locks = []
    real = Lock.__init__

    def counting(lock, *arguments):
        real(lock, *arguments)
        locks.append(weakref.ref(lock))

    monkeypatch.setattr(Lock, "__init__", counting)
    for number in range(10_000):
        scope = Scope(f"user{number}")
        if number < 100:
            storage.commit(scope, [Put(fact("a"))])
        storage.columns(scope)
    gc.collect()
    assert len(locks) == 10_000
    assert sum(lock() is not None for lock in locks) <= 64
    assert len(storage._users) <= 64
    assert len(storage._tables) <= 64
    assert storage.get(Scope("user0"), "a").text == "text of a"
    assert len(storage.scopes()) == 100
    assert len(list((root / "users").iterdir())) == 100, "who was only asked for has no folder"


# Readers and writers.


def test_readers_do_not_wait_for_the_lock(storage, root):
    storage.commit(ANN, [Put(fact("a"))])
    with Lock(root / "users/ann/.memory.lock"):
        assert texts(storage) == {"a": "text of a"}
        with opened(root) as other:
            assert texts(other) == {"a": "text of a"}
            assert other.head(ANN) == 1


def test_a_lock_that_is_kept_is_an_error_to_try_again_after(root):
    with opened(root, lock_timeout=0.05) as storage:
        storage.commit(ANN, [Put(fact("a"))])
        with Lock(root / "users/ann/.memory.lock"):
            with pytest.raises(LockTimeoutError, match="nothing was written"):
                storage.commit(ANN, [Put(fact("b"))])
            assert texts(storage) == {"a": "text of a"}
        storage.commit(ANN, [Put(fact("b"))])


def test_a_user_whose_lock_is_kept_holds_up_nobody_else(root):
    with opened(root, lock_timeout=0.0) as storage:
        storage.commit(ANN, [Put(fact("a"))])
        with Lock(root / "users/ann/.memory.lock"):
            storage.commit(BOB, [Put(fact("b"))])
            with pytest.raises(LockTimeoutError):
                storage.commit(ANN, [Put(fact("b"))])
        assert texts(storage, BOB) == {"b": "text of b"}


def test_a_change_by_another_process_is_seen_though_times_and_sizes_stay_the_same(root, monkeypatch):
    paths = [fact_path(root, "a"), root / "users/ann/memory.json"]
    user = {"user_id": "ann", "agent_name": "default"}
    now = 1_900_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    with opened(root, check="second") as one, opened(root, check="second") as two:
        one.upsert_fact({"id": "a", "content": "x", "topics": ["old"]}, **user)
        assert two.load(**user)["facts"][0]["topics"] == ["old"]
        before = [path.stat() for path in paths]
        now += 1
        one.upsert_fact({"id": "a", "content": "x", "topics": ["new"]}, None, 1, **user)
        for path, info in zip(paths, before, strict=True):
            os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
        after = [path.stat() for path in paths]
        assert [(i.st_size, i.st_mtime_ns) for i in before] == [(i.st_size, i.st_mtime_ns) for i in after]
        assert two.load(**user)["facts"][0]["topics"] == ["new"]
        assert two.load(**user) == one.load(**user)


def test_a_reader_sees_change_sets_whole_while_they_are_written(storage, root):
    stop, torn = threading.Event(), []

    def read():
        with opened(root) as reader:
            while not stop.is_set():
                found = set(texts(reader).values())
                if len(found) > 1:
                    torn.append(found)

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(40):
        storage.commit(ANN, [Put(fact(id, f"commit {number}")) for id in ("a", "b")])
    stop.set()
    thread.join()
    assert torn == []


def test_files_that_vanish_during_a_listing_are_no_damage(storage, root):
    storage.commit(ANN, [Put(fact(f"f{number}")) for number in range(60)])
    problems = []

    def read():
        with opened(root) as reader:
            while len(texts(reader)) > 1:
                problems.extend(reader.quarantined())

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(59):
        storage.commit(ANN, [Delete(f"f{number}")])
    thread.join()
    assert problems == []


def _create_40(root, worker):
    with opened(root, check="second") as storage:
        for number in range(40):
            storage.commit(Scope("ann", "a" if worker % 2 else "b"), [Put(fact(f"w{worker}-{number}"))])


def test_8_processes_lose_nothing_and_nobody_fails(storage, root):
    storage.commit(BOB, [Put(fact("bob"))])
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_create_40, args=(root, worker)) for worker in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    for agent in ("a", "b"):
        assert len(texts(storage, Scope("ann", agent))) == storage.head(Scope("ann", agent)) == 160
    assert manifest(root)["revision"] == 320
    assert texts(storage, BOB) == {"bob": "text of bob"}


def test_a_store_opened_for_reading_leaves_no_trace(root):
    with pytest.raises(NotFoundError):
        opened(root, read_only=True)
    write_fact(root, "fact_1")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    with opened(root, read_only=True) as storage:
        assert texts(storage) == {"fact_1": "Project uses Python 3.12."}
        assert storage.stats()["records"] == 1
        assert storage.check() == []
        for write in (partial(storage.commit, ANN, [Put(fact("a"))]), partial(storage.erase, ANN), storage.compact):
            with pytest.raises(ReadOnlyError):
                write()
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


# Damage.


def test_a_journal_that_can_not_be_read_is_set_aside_and_the_files_go_on(root):
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact("a"))])
    path = root / "users/ann/.nanomem/journal"
    path.write_bytes(b"\xff" * 200)
    with opened(root) as storage:
        with pytest.raises(CorruptionError):
            storage.get(ANN, "a")
        assert [damage.path for damage in storage.check()] == [str(path)]
        assert len(storage.repair()) == 1
        assert texts(storage) == {"a": "text of a"}
        assert storage.commit(ANN, [Put(fact("b"))]).head == 2
    assert path.with_name("journal.quarantine").read_bytes() == b"\xff" * 200


def test_a_cache_of_anything_else_is_ignored(root):
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact("a"))])
    [cache] = (root / ".derived").glob("facts-*.json")
    good = cache.read_bytes()
    for data in (b"", b"{}", b"00000000\n{}", good[:-5], good.replace(b"text of a", b"text of b"), bytes(len(good))):
        cache.write_bytes(data)
        with opened(root) as storage:
            assert texts(storage) == {"a": "text of a"}


# Erasing.


def test_what_was_purged_is_in_no_file(root):
    with Memory(opened(root), user="ann") as memory:
        id = memory.add("The locker code is 7431-ZEBRA", entity="locker")
        memory.add("The locker code is 8852-ZEBRA", entity="locker")
        memory.add("Episode about 7431-ZEBRA", kind="episode", metadata={"derived_from": [id]})
        memory.search("ZEBRA")
        memory.purge(id)
        for mode in ("text", "vector", "hybrid"):
            assert not any("ZEBRA" in hit.text for hit in memory.search("ZEBRA", mode=mode, kind=None))
        assert [path for path, content in bytes_below(root) if b"ZEBRA" in content] == []
    with Memory(opened(root), user="ann") as memory:
        memory.compact()
        assert [entry["text"] for entry in memory.history(id=id)] in ([], [""], [None], ["", ""])
    assert [path for path, content in bytes_below(root) if b"ZEBRA" in content] == []


def test_erasing_an_agent_leaves_what_is_not_a_record_of_it(storage, root):
    agent = root / "users/ann/agents/__default__"
    storage.commit(ANN, [Put(fact("a", "zebra")), Put(fact("e", "zebra", kind="episode"))])
    (agent / "config.yaml").write_text("mine")
    storage.commit(Scope("ann", "other"), [Put(fact("a"))])
    storage.erase(ANN)
    assert (agent / "config.yaml").read_text() == "mine"
    assert texts(storage, Scope("ann", "other")) == {"a": "text of a"}
    assert storage.head(ANN) == 0
    assert [path for path, content in bytes_below(root) if b"zebra" in content] == []


def test_columns_follow_no_commit_of_before_an_erasure_that_had_the_same_number(root):
    with opened(root) as first, opened(root) as second:
        for name in ("before", "after"):
            for number in range(2):
                first.commit(ANN, [Put(fact(f"{name} {number}"))])
                assert_columns_agree(first, ANN)
                assert_columns_agree(second, ANN)
            first.erase(ANN)


# A whole memory.


def fill(memory):
    memory.add("Works at Alder", entity="employer", timestamp="2026-01-01", metadata={"category": "identity"})
    memory.add("Works at Birch", entity="employer", timestamp="2026-03-01", metadata={"confidence": 0.9, "tags": ["x"]})
    memory.add("I love green tea", source="notes.md:1-5")
    memory.add("We met at the café\r\nand talked", kind="episode", metadata={"deep": {"a": [1, None]}})
    memory.add("hello", kind="message")
    memory.retract(memory.add("Lives in Rome", entity="city"))


def test_history_past_and_search_work_as_on_any_store(root):
    with Memory(opened(root), user="ann") as memory:
        fill(memory)
        assert [entry["text"] for entry in memory.history("employer")] == ["Works at Alder", "Works at Birch"]
        assert memory.search("employer", as_of="2026-02-01")[0].text == "Works at Alder"
        assert memory.search("Where do I work?", entity="employer")[0].text == "Works at Birch"
        for mode in ("text", "vector", "hybrid"):
            assert memory.search("green tea", mode=mode)[0].text == "I love green tea"
        assert memory.changes(since="2026-02-01")
        assert memory.volatility()


def everything(storage, scope):
    return [record.to_dict() | {"metadata": json.dumps(dict(record.metadata))} for record in storage.scan(scope)]


def test_a_vault_moves_to_markdown_and_back_without_loss(root, tmp_path):
    with Vault(tmp_path / "memory.dat") as vault:
        fill(vault)
        vault.export(tmp_path / "one.jsonl")
        expected = everything(vault.storage, vault.scope)
    with Memory(opened(root)) as memory:
        memory.import_(tmp_path / "one.jsonl")
        assert everything(memory.storage, memory.scope) == expected
    with Memory(opened(root)) as memory:
        memory.export(tmp_path / "two.jsonl")
    with Vault(tmp_path / "again.dat") as vault:
        vault.import_(tmp_path / "two.jsonl")
        assert everything(vault.storage, vault.scope) == expected


def test_a_folder_of_deermem_moves_to_a_vault_and_back_without_loss(root, tmp_path):
    data = deermem_fact("fact_1", expected_valid_days="30", extra="{a: [1, 2]}").replace(b"thread_123", b"manual")
    write_fact(root, "fact_1", data)
    write_fact(root, "fact_2", title="Project uses Python 3.12.")
    with Memory(opened(root), user="ann") as memory:
        memory.export(tmp_path / "one.jsonl")
        expected = everything(memory.storage, ANN)
    with Vault(tmp_path / "memory.dat", user="ann") as vault:
        vault.import_(tmp_path / "one.jsonl")
        vault.export(tmp_path / "two.jsonl")
    with Memory(opened(tmp_path / "other"), user="ann") as memory:
        memory.import_(tmp_path / "two.jsonl")
        assert everything(memory.storage, ANN) == expected
    first, second = (fact_path(folder, "fact_1").read_text() for folder in (root, tmp_path / "other"))
    kept = [line for line in first.splitlines() if line.strip()]
    assert [line for line in kept if line.strip() not in map(str.strip, second.splitlines())] in (
        [],
        ["extra: {a: [1, 2]}"],
    )
