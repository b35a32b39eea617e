"""Several handles, threads and processes; the disk's answers."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading

import numpy as np
import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.errors import ClosedError, InputError, LockTimeoutError, NotFoundError, ReadOnlyError, StorageError
from nanomem_core.records import Record
from nanomem_plugins.arena.format import HEAD
from nanomem_plugins.arena.storage import ArenaStorage

from .material import ANN, BOB, SPACE, fact, fill, seen


def put(id):
    return Put(Record(id, f"text of {id}"))


def test_commits_that_wait_together_share_an_fsync(tmp_path, monkeypatch):
    waiting = 6
    entered, go_on = threading.Event(), threading.Event()
    synced = []
    real = os.fdatasync

    def slow(descriptor):
        synced.append(descriptor)
        if len(synced) == 1:
            entered.set()
            assert go_on.wait(30)
        real(descriptor)

    with ArenaStorage(tmp_path / "memory.dat") as store:
        store.commit(ANN, [put("first")])
        monkeypatch.setattr("os.fdatasync", slow)
        leader = threading.Thread(target=lambda: store.commit(ANN, [put("leader")]))
        leader.start()
        assert entered.wait(30)
        # The leader waits for the disk without the lock, so the others can write; none of them is done yet.
        followers = [threading.Thread(target=lambda n=n: store.commit(ANN, [put(f"f{n}")])) for n in range(waiting)]
        for thread in followers:
            thread.start()
        while store.head(ANN) < 2 + waiting:
            threading.Event().wait(0.001)
        assert all(thread.is_alive() for thread in followers)
        go_on.set()
        for thread in [leader, *followers]:
            thread.join()
        assert len(synced) == 2
        assert store.head(ANN) == 2 + waiting


def test_claims_of_a_writer_without_fsync_are_not_believed(tmp_path, monkeypatch):
    path = tmp_path / "memory.dat"
    synced = []
    real = os.fdatasync
    monkeypatch.setattr("os.fdatasync", lambda descriptor: (synced.append(descriptor), real(descriptor)))
    with ArenaStorage(path) as careful, ArenaStorage(path, durability="os") as careless:
        careful.commit(ANN, [put("a")])
        wait = careful._arena.sync

        def overtaken(written):
            # The careless writer comes between the release of the lock and the fsync.
            careless.commit(BOB, [put("b")])
            assert careful.head(BOB) == 1
            wait(written)

        monkeypatch.setattr(careful._arena, "sync", overtaken)
        before = len(synced)
        careful.commit(ANN, [put("c")])
        assert len(synced) == before + 1


def test_durability_os_never_waits_for_the_disk(tmp_path, monkeypatch):
    with ArenaStorage(tmp_path / "memory.dat", durability="os") as store:
        store.commit(ANN, [put("first")])
        monkeypatch.setattr("os.fdatasync", lambda descriptor: pytest.fail("fsync was called"))
        store.commit(ANN, [put("a")])
        assert store.get(ANN, "a") is not None


def test_after_a_failed_fsync_the_handle_refuses_to_write(tmp_path, monkeypatch):
    path = tmp_path / "memory.dat"

    def broken(descriptor):
        raise OSError(errno.EIO, "the disk is gone")

    with ArenaStorage(path) as store:
        store.commit(ANN, [put("a")])
        with monkeypatch.context() as patch:
            patch.setattr("os.fdatasync", broken)
            with pytest.raises(StorageError, match="did not confirm"):
                store.commit(ANN, [put("b")])
        with pytest.raises(StorageError, match="reopen"):
            store.commit(ANN, [put("c")])
        assert store.get(ANN, "a") is not None
    with ArenaStorage(path) as store:
        store.commit(ANN, [put("c")])
        assert store.check() == []


@pytest.mark.parametrize("written", [0, 1, 200])
def test_a_full_disk_leaves_the_store_as_it_was_and_working(tmp_path, monkeypatch, written):
    path = tmp_path / "memory.dat"
    real = os.pwrite

    def full(descriptor, data, offset):
        if len(data) > written and written not in left:
            left.append(written)
            return real(descriptor, data[:written], offset)
        raise OSError(errno.ENOSPC, "no space")

    with fill(path) as store:
        before, data = seen(store), path.read_bytes().rstrip(b"\0")
        left = []
        with monkeypatch.context() as patch:
            patch.setattr("os.pwrite", full)
            with pytest.raises(StorageError, match="Nothing was changed"):
                store.commit(ANN, [fact("x", "too much")])
        assert path.read_bytes().rstrip(b"\0") == data
        assert seen(store) == before
        store.commit(ANN, [fact("x", "fits now")])
        assert store.check() == []


def test_most_commits_leave_the_size_of_the_file_as_it_is(tmp_path):
    path = tmp_path / "memory.dat"
    with ArenaStorage(path) as store, ArenaStorage(path) as reader:
        sizes = []
        for number in range(60):
            store.commit(ANN, [put(f"a{number}")])
            assert reader.head(ANN) == number + 1
            sizes.append(path.stat().st_size)
        assert len(set(sizes)) <= 3
        assert store.stats()["torn_tail_bytes"] == 0
        assert store.check() == []
        expected = seen(store)
    size = path.stat().st_size
    assert sizes[-1] - 16384 < size < sizes[-1]
    with ArenaStorage(path) as store:
        assert seen(store) == expected
        assert store.check() == []


def test_a_disk_too_full_for_room_takes_a_commit_that_fits(tmp_path, monkeypatch):
    path = tmp_path / "memory.dat"
    real = os.pwrite

    def full(descriptor, data, offset):
        if not any(data):
            raise OSError(errno.ENOSPC, "no space")
        return real(descriptor, data, offset)

    with ArenaStorage(path) as store:
        monkeypatch.setattr("os.pwrite", full)
        for number in range(3):
            store.commit(ANN, [put(f"a{number}")])
        monkeypatch.undo()
        store.commit(ANN, [put("a3")])
        assert store.check() == []
    with ArenaStorage(path) as store:
        assert [record.id for record in store.scan(ANN)] == ["a0", "a1", "a2", "a3"]


def test_a_writer_that_dies_before_the_header_leaves_a_whole_commit_or_none(tmp_path, monkeypatch):
    path = tmp_path / "memory.dat"
    real = os.pwrite

    class Killed(BaseException):
        pass

    def dying(descriptor, data, offset):
        if bytes(data[:4]) == HEAD:
            raise Killed
        return real(descriptor, data, offset)

    with fill(path) as live:
        heads = live.head(ANN)
        dead = ArenaStorage(path)
        dead.commit(ANN, [put("before")])
        with monkeypatch.context() as patch:
            patch.setattr("os.pwrite", dying)
            with pytest.raises(Killed):
                dead.commit(ANN, [put("unheard of")])
        # The footer is there, so nothing of the commit is missing; nobody was told that it is stored, so it may be.
        live.commit(ANN, [put("after")])
        assert live.head(ANN) == heads + 3
        assert live.get(ANN, "unheard of") == put("unheard of").record.numbered(1, 1)
        with ArenaStorage(path) as other:
            assert seen(other) == seen(live)
            assert [damage.lost for damage in other.check()] == [False]
        dead.close()


def test_a_writer_that_waits_too_long_says_so(tmp_path):
    path = tmp_path / "memory.dat"
    with ArenaStorage(path) as store, ArenaStorage(path, lock_timeout=0.05) as other:
        with store.transaction(ANN), pytest.raises(LockTimeoutError, match=r"memory\.dat\.lock.*lock_timeout"):
            other.commit(ANN, [put("a")])
        other.commit(ANN, [put("a")])


def test_a_transaction_that_fails_writes_nothing_and_frees_the_lock(tmp_path):
    with ArenaStorage(tmp_path / "memory.dat", lock_timeout=0.05) as store:
        with pytest.raises(KeyError), store.transaction(ANN):
            raise KeyError
        store.commit(ANN, [put("a")])
        assert store.head(ANN) == 1


def test_a_read_only_store_leaves_no_trace(tmp_path):
    path = tmp_path / "memory.dat"
    with pytest.raises(NotFoundError, match=r"memory\.dat"):
        ArenaStorage(path, read_only=True)
    with fill(path) as store:
        expected = seen(store)
    (tmp_path / "memory.dat.lock").unlink()
    data = path.read_bytes()
    with ArenaStorage(path, read_only=True) as store:
        assert seen(store) == expected
        store.adopt(SPACE)
        for write in (
            lambda: store.commit(ANN, [Delete("a")]),
            lambda: store.erase(ANN),
            store.compact,
            store.repair,
            lambda: store.reembed(SPACE, lambda records: []),
        ):
            with pytest.raises(ReadOnlyError):
                write()
    assert os.listdir(tmp_path) == ["memory.dat"]
    assert path.read_bytes() == data


def test_reading_a_missing_file_creates_nothing(tmp_path):
    with ArenaStorage(tmp_path / "deep" / "memory.dat") as store:
        assert store.scopes() == []
        assert store.head(ANN) == 0
        assert store.get(ANN, "a") is None
        assert list(store.scan(ANN)) == []
        assert len(store.columns(ANN)) == 0
        assert store.space is None
        assert store.check() == []
        assert store.stats()["records"] == 0
        store.erase(ANN)
        assert store.compact() == 0
        assert store.repair() == []
        assert os.listdir(tmp_path) == []
        store.commit(ANN, [put("a")])
    for name in os.listdir(tmp_path / "deep"):
        assert (tmp_path / "deep" / name).stat().st_mode & 0o777 == 0o600


def test_an_empty_file_is_an_empty_store(tmp_path):
    path = tmp_path / "memory.dat"
    path.touch()
    with ArenaStorage(path) as store:
        assert store.scopes() == []
        store.commit(ANN, [put("a")])
        assert store.get(ANN, "a") is not None


def test_a_link_to_the_file_stays_one(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.dat"
    link.symlink_to(tmp_path / "real" / "memory.dat")
    with ArenaStorage(link) as store, ArenaStorage(tmp_path / "real" / "memory.dat") as other:
        store.commit(ANN, [put("a"), put("b")])
        store.commit(ANN, [Delete("a")])
        store.compact()
        assert link.is_symlink()
        assert other.get(ANN, "b") is not None


def test_a_closed_store_refuses_everything(tmp_path):
    store = fill(tmp_path / "memory.dat")
    columns = store.columns(ANN)
    store.close()
    store.close()
    for call in (
        store.scopes,
        lambda: store.head(ANN),
        lambda: store.get(ANN, "a"),
        lambda: list(store.scan(ANN)),
        lambda: store.commit(ANN, [put("x")]),
        store.compact,
        lambda: store.erase(ANN),
        store.stats,
        lambda: columns.source.records(np.array([0])),
    ):
        with pytest.raises(ClosedError):
            call()


def test_options_that_are_not_known_are_refused(tmp_path):
    with pytest.raises(InputError, match="vector_dtype: expected float16 or float32; found 'int8'"):
        ArenaStorage(tmp_path / "x", vector_dtype="int8")
    with pytest.raises(InputError, match="durability"):
        ArenaStorage(tmp_path / "x", durability="maybe")


def test_float32_vectors_are_kept_to_the_bit(tmp_path):
    path = tmp_path / "memory.dat"
    given = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    given /= np.linalg.norm(given, axis=1, keepdims=True)
    with ArenaStorage(path, vector_dtype="float32") as store:
        store.adopt(SPACE)
        store.commit(ANN, [Put(Record("a", "text"), vectors=given)])
    with ArenaStorage(path) as store:
        assert store.stats()["vector_dtype"] == "float32"
        assert np.array_equal(store.columns(ANN).source.vectors(np.array([0]))[0], given)


def test_a_record_with_a_nul_wherever_there_may_be_one_comes_back(tmp_path):
    path = tmp_path / "memory.dat"
    record = Record("a", "te\0xt\0", source="\0so\0urce", entity="city", metadata={"user_id": "u", "\0": "\0"})
    with ArenaStorage(path) as store:
        store.commit(ANN, [Put(record), Put(Record("b", ""))])
    with ArenaStorage(path) as store:
        assert list(store.scan(ANN)) == [record.numbered(1, 1), Record("b", "").numbered(1, 1)]
        assert list(store.columns(ANN).chains) == [record.chain]


def test_a_commit_reads_nothing_of_what_it_wrote(tmp_path, monkeypatch):
    with fill(tmp_path / "memory.dat") as store:
        read = []
        real = os.pread
        monkeypatch.setattr("os.pread", lambda fd, length, at: (read.append((at, length)), real(fd, length, at))[1])
        end = os.stat(store.path).st_size
        store.commit(ANN, [fact("new", "text"), fact("b", "changed"), Delete("c")])
        assert [(at, length) for at, length in read if at >= end] == []
        monkeypatch.undo()
        expected = seen(store)
    with ArenaStorage(tmp_path / "memory.dat") as store:
        assert seen(store) == expected


def test_a_file_that_was_deleted_is_an_empty_store(tmp_path):
    path = tmp_path / "memory.dat"
    with fill(path) as store:
        path.unlink()
        assert store.scopes() == []
        store.commit(BOB, [put("a")])
        assert store.scopes() == [BOB]


def test_a_file_overwritten_in_place_is_noticed(tmp_path):
    path, other = tmp_path / "memory.dat", tmp_path / "other.dat"
    with fill(other) as bigger:
        bigger.commit(ANN, [fact("more", "text")])
        expected = seen(bigger)
    with fill(path) as store:
        store.scopes()
        path.write_bytes(other.read_bytes())
        assert seen(store) == expected


def test_columns_follow_while_a_second_scope_begins(tmp_path):
    with ArenaStorage(tmp_path / "memory.dat") as store:
        store.commit(ANN, [put("a"), put("b")])
        assert len(store.columns(ANN)) == 2
        store.commit(BOB, [put("x")])
        for number in range(100):
            store.commit(ANN, [put(f"a{number}"), Delete("b")])
            store.commit(BOB, [put(f"b{number}")])
        columns = store.columns(ANN)
        rows = np.flatnonzero(columns.live)
        assert columns.source.ids(rows) == ["a", *(f"a{number}" for number in range(100))]
        assert [columns.source.row(id) for id in ("a", "b", "a99")] == [0, None, len(columns) - 1]
        assert len(store.columns(BOB)) == 101


def _compact_for_ever(path, stop):
    with ArenaStorage(path, durability="os") as store:
        while not stop.is_set():
            store.commit(ANN, [Put(Record("changing", f"text {store.head(ANN)}")), put("gone")])
            store.commit(ANN, [Delete("gone")])
            store.compact()


def test_readers_go_on_while_another_process_compacts(tmp_path):
    path = tmp_path / "memory.dat"
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with fill(path, durability="os") as store:
        child = context.Process(target=_compact_for_ever, args=(path, stop))
        child.start()
        try:
            heads = []
            generations = set()
            while len(generations) < 20:
                assert child.is_alive()
                heads.append(store.head(ANN))
                generations.add(os.stat(path).st_ino)
                ids = [record.id for record in store.scan(ANN)]
                assert ids[:4] == ["a", "b", "c", "d"]
                columns = store.columns(ANN)
                rows = np.flatnonzero(columns.live)
                assert len(columns.source.records(rows)) == len(rows)
                assert len(columns.source.vectors(rows)[0]) == 6
                store.commit(BOB, [put(f"r{len(heads)}")])
        finally:
            stop.set()
            child.join()
        assert child.exitcode == 0
        assert heads == sorted(heads)
        assert {record.id for record in store.scan(BOB)} == {"a", *(f"r{n + 1}" for n in range(len(heads)))}
        assert store.check() == []
