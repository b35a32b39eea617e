"""Many processes, long runs, and a memory over the store."""

import os
import threading
from functools import partial

import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.errors import InputError, LockTimeoutError
from nanomem_core.memory import Memory
from nanomem_core.records import Record
from nanomem_core.testing import HashEmbedder
from nanomem_core.testing.processes import in_processes
from nanomem_core.testing.samples import full_run
from nanomem_plugins.jsonl.facade import EpisodeStorage, SemanticStorage
from nanomem_plugins.jsonl.storage import JsonlStorage

from .material import ANA, EPISODE, FACT, as_nemori, below, fact, lines, texts

SAVES = 200 if full_run() else 60


def save_many(root, worker):
    with JsonlStorage(root) as storage:
        for number in range(SAVES):
            storage.commit(ANA, [fact(f"{worker}-{number}", "x" * 2000)])
    with JsonlStorage(root, read_only=True) as storage:
        return sum(id.startswith(f"{worker}-") for id in (record.id for record in storage.scan(ANA)))


def test_what_four_processes_save_is_seen_by_each_at_once(tmp_path):
    with JsonlStorage(tmp_path) as watcher:
        watcher.commit(ANA, [fact("first", "x")])
        assert in_processes(save_many, [(tmp_path, worker) for worker in range(4)]) == [SAVES] * 4
        assert (len(texts(watcher)), watcher.head(ANA)) == (4 * SAVES + 1,) * 2


def add_facts(root, worker):
    with Memory(storage=JsonlStorage(root), embedder=HashEmbedder()) as memory:
        for number in range(25):
            memory.add(f"worker {worker} fact {number} – ünïcode 漢字", user="ana")


def search_always(root, worker):
    with Memory(storage=JsonlStorage(root), embedder=HashEmbedder()) as memory:
        while not (root / "done").exists():
            memory.search("fact", user="ana")


def compact_always(root, worker):
    with JsonlStorage(root) as storage:
        while not (root / "done").exists():
            storage.compact()


def work(root, worker, function):
    try:
        function(root, worker)
    finally:
        if function is add_facts:
            (root / f"ended {worker}").write_bytes(b"")
        if sum(name.startswith("ended") for name in os.listdir(root)) == 8:
            (root / "done").write_bytes(b"")


def test_eight_writers_a_reader_and_a_compactor_lose_nothing(tmp_path):
    calls = [(tmp_path, worker, add_facts) for worker in range(8)]
    in_processes(work, [*calls, (tmp_path, 8, search_always), (tmp_path, 9, compact_always)])
    found = lines(tmp_path / "semantic/ana_semantic.jsonl")
    assert len(found) == len({item["memory_id"] for item in found}) == 200
    assert len({item["content"] for item in found}) == 200
    with JsonlStorage(tmp_path) as storage:
        assert (len(texts(storage)), storage.head(ANA), storage.check()) == (200, 200, [])


def test_thousands_of_saves_are_all_there(tmp_path):
    count = 10_000 if full_run() else 1000
    with JsonlStorage(tmp_path) as storage:
        for number in range(count):
            assert storage.commit(ANA, [fact(str(number), "x" * 500, entity="city")]).records[0].revision == number + 1
    with JsonlStorage(tmp_path) as storage:
        assert [record.id for record in storage.scan(ANA)] == list(map(str, range(count)))


def test_a_save_reads_and_writes_only_its_own_line(tmp_path, monkeypatch):
    real, written = os.pwrite, []
    with JsonlStorage(tmp_path) as storage:
        storage.commit(ANA, [fact(str(number), "x" * 500) for number in range(500)])
        path = str(tmp_path / "semantic/ana_semantic.jsonl")
        opened = []
        real_open = os.open
        monkeypatch.setattr("os.open", lambda p, *a, **k: opened.append(os.fspath(p)) or real_open(p, *a, **k))
        monkeypatch.setattr("os.pwrite", lambda d, data, o: written.append(len(data)) or real(d, data, o))
        for number in range(500, 520):
            storage.commit(ANA, [fact(str(number), "x" * 500)])
        monkeypatch.undo()
    assert sum(written) < 20 * 3000
    assert opened.count(path) <= 21
    assert not any(".tmp-" in name for name in opened)


def test_a_writer_that_gets_no_lock_writes_nothing(tmp_path):
    with JsonlStorage(tmp_path) as first, JsonlStorage(tmp_path, lock_timeout=0.05) as second:
        first.commit(ANA, [fact("a", "x")])
        entered, leave = threading.Event(), threading.Event()

        def hold():
            with first.transaction(ANA):
                entered.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        entered.wait()
        try:
            with pytest.raises(LockTimeoutError):
                second.commit(ANA, [fact("b", "x")])
            assert texts(second) == ["x"], "a reader waits for no lock"
        finally:
            leave.set()
            thread.join()
        assert second.commit(ANA, [fact("b", "y")]).head == 2


def test_a_file_that_stat_is_silent_about_is_read_again_in_time(tmp_path):
    with JsonlStorage(tmp_path) as storage, JsonlStorage(tmp_path, cache_ttl=0.0) as patient:
        storage.commit(ANA, [fact("a", "tea")])
        assert texts(patient) == ["tea"]
        path = tmp_path / "semantic/ana_semantic.jsonl"
        info = path.stat()
        path.write_bytes(path.read_bytes().replace(b"tea", b"mud"))
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
        assert texts(storage) == ["tea"], "stat shows nothing"
        assert texts(patient) == ["mud"]
    with pytest.raises(InputError, match="cache_ttl"):
        JsonlStorage(tmp_path, cache_ttl=-1.0)


def test_an_id_that_changes_its_kind_keeps_its_place(tmp_path):
    with JsonlStorage(tmp_path) as storage, JsonlStorage(tmp_path) as other:
        storage.commit(ANA, [fact("a", "1"), fact("b", "2")])
        assert len(texts(other)) == 2
        storage.commit(ANA, [Put(Record("a", "told", "episode"))])
        for handle in (storage, other):
            assert [(r.id, r.kind, r.version) for r in handle.scan(ANA)] == [("a", "episode", 2), ("b", "fact", 1)]
    assert [item["memory_id"] for item in as_nemori(tmp_path / "semantic/ana_semantic.jsonl", "fact")] == ["b"]


# A memory over the store.


def open_memory(root):
    return Memory(storage=JsonlStorage(root), embedder=HashEmbedder())


def test_a_memory_over_the_store_knows_what_changed(tmp_path):
    with open_memory(tmp_path) as memory:
        old = memory.add("Works at Alder Foods", entity="employer", timestamp="2025-01-10T10:00:00Z")
        memory.add("Works at Birch Labs", entity="employer", timestamp="2026-02-01T10:00:00Z")
        memory.add("Likes tea", timestamp="2025-05-01")
    with open_memory(tmp_path) as memory:
        assert [fact.text for fact in memory.history("employer")] == ["Works at Alder Foods", "Works at Birch Labs"]
        assert memory.search("works at", top_k=3)[0].text == "Works at Birch Labs"
        then = [hit.text for hit in memory.search("works at", as_of="2025-06-01")]
        assert "Works at Alder Foods" in then
        assert "Works at Birch Labs" not in then
        (change,) = memory.changes(since="2026-01-01")
        assert "Birch" in str(change)
        assert old


def test_after_a_purge_no_file_has_a_trace(tmp_path):
    with open_memory(tmp_path) as memory:
        first = memory.add("The locker code is 7431-ZEBRA", entity="code")
        memory.add("The locker code is 8852-ZEBRA", entity="code")
        memory.add("Likes tea")
        assert memory.search("ZEBRA")
        memory.purge(first if isinstance(first, str) else first.id)
        assert not [hit for hit in memory.search("ZEBRA") if "ZEBRA" in hit.text]
        assert [path for path, data in below(tmp_path).items() if b"ZEBRA" in data] == []
        assert any(b"Likes tea" in data for data in below(tmp_path).values())


# Nemori's calls.


def test_the_calls_of_nemori_find_what_they_saved(tmp_path):
    with JsonlStorage(tmp_path) as storage:
        episodes, facts = EpisodeStorage(storage), SemanticStorage(storage)
        assert episodes.save(EPISODE) == "e-1"
        assert facts.save(FACT) == "f-1"
        made = facts.save({"user_id": "ana", "content": "Ana sings"})
        assert episodes.load("e-1") == EPISODE
        assert facts.load("f-1") == FACT
        assert (facts.load("e-1"), episodes.exists("f-1"), facts.exists(made)) == (None, False, True)
        assert [item["memory_id"] for item in facts.list_user_items("ana")] == [made, "f-1"]
        assert facts.save(FACT | {"content": "Ana is vegan"}) == "f-1"
        again = facts.load("f-1", "ana")
        assert (again["content"], again["revision_count"]) == ("Ana is vegan", 2)
        assert facts.find_similar_statement("ana", "ANA SINGS")["memory_id"] == made
        assert facts.find_similar_statement("ana", "Ana") is None
        assert (facts.delete("f-1"), facts.delete("f-1"), facts.exists("f-1")) == (True, False, False)


def test_stats_have_the_shape_of_nemori(tmp_path):
    with JsonlStorage(tmp_path) as storage:
        episodes, facts = EpisodeStorage(storage), SemanticStorage(storage)
        assert episodes.get_user_stats("ana") == {
            "episode_count": 0,
            "total_messages": 0,
            "avg_messages_per_episode": 0,
            "date_range": None,
        }
        episodes.save(EPISODE)
        facts.save(FACT)
        storage.derived().mkdir(parents=True)
        (storage.derived() / "vectors-0123456789abcdef.bin").write_bytes(b"of all texts")
        assert episodes.get_user_stats("ana")["date_range"]["earliest"] == "2024-05-02T10:00:00"
        assert facts.get_user_stats("ana")["semantic_memory_count"] == 1
        assert facts.delete_user_data("ana")
        assert not facts.delete_user_data("ana")
        assert episodes.exists("e-1")
    assert FACT["content"].encode() not in b"".join(below(tmp_path).values())
    assert list(tmp_path.rglob("vectors-*")) == []


@pytest.mark.parametrize(
    "item", [{}, {"user_id": "ana"}, {"user_id": "ana", "content": 5}, 7, {"user_id": 1, "content": "x"}]
)
def test_what_is_no_item_is_refused(tmp_path, item):
    with JsonlStorage(tmp_path) as storage, pytest.raises((InputError, TypeError)):
        SemanticStorage(storage).save(item)
    assert below(tmp_path) == {}


def kill_target(root):
    storage = JsonlStorage(root)
    storage.commit(ANA, [fact("a", "x")])
    storage.commit(ANA, [Delete("a")])
    os._exit(3)


def test_a_process_that_ends_at_once_has_lost_nothing(tmp_path):
    with pytest.raises(AssertionError, match="exit code 3"):
        in_processes(partial(kill_target), [(tmp_path,)])
    with JsonlStorage(tmp_path) as storage:
        assert (storage.head(ANA), texts(storage)) == (2, [])
