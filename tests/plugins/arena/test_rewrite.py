"""Compacting, erasing, and changing the vectors."""

from __future__ import annotations

import base64
import json
import multiprocessing
import os

import numpy as np
import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.errors import CorruptionError, EmbedderError, EmbedderMismatchError, InputError
from nanomem_core.interfaces import VectorSpace
from nanomem_core.records import Record, Scope
from nanomem_plugins.arena import compaction, engine
from nanomem_plugins.arena.format import BLOCK
from nanomem_plugins.arena.storage import ArenaStorage

from .material import ANN, BOB, SPACE, fact, fill, seen, vectors

OTHER = VectorSpace("test-2", 6)


def everything_below(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def encode(records):
    """Vectors that tell the text: its length, and as many of them as it has words."""
    return [
        np.array([[len(record.text), n, 1, 1, 1, 1] for n in range(len(record.text.split()))]) for record in records
    ]


def stored(store, scope, id):
    columns = store.columns(scope)
    matrix, _ = columns.source.vectors(np.array([columns.source.row(id)]))
    return matrix


def test_compaction_keeps_what_is_alive_and_drops_the_rest(tmp_path):
    path = tmp_path / "memory.dat"
    with fill(path) as store:
        before = seen(store)
        old_columns = store.columns(ANN)
        old_rows = np.flatnonzero(old_columns.live)
        size = path.stat().st_size
        regained = store.compact()
        assert regained == size - path.stat().st_size > 0
        assert seen(store) == before
        assert store.stats()["dead_rows"] == 0
        assert store.compact() == 0
        assert store.columns(ANN).source is not old_columns.source
        # A reader that was in the middle of something goes on with the old file.
        assert [record.id for record in old_columns.source.records(old_rows)] == ["a", "c", "b", "d"]
        assert len(old_columns.source.vectors(old_rows)[0]) == 6
        assert b"likes tea" not in everything_below(tmp_path)
        store.commit(ANN, [fact("b", "likes water"), fact("e", "new", entity="city")])
        assert store.get(ANN, "b").version == 3
        assert store.get(ANN, "e").revision == 3
        assert [record.id for record in store.scan(ANN)] == ["a", "b", "c", "d", "e"]
    with ArenaStorage(path) as store:
        assert [record.id for record in store.scan(ANN)] == ["a", "b", "c", "d", "e"]


def test_a_scope_whose_records_are_all_gone_keeps_its_head(tmp_path):
    with fill(tmp_path / "memory.dat") as store:
        store.commit(BOB, [Delete("a")])
        store.compact()
        assert store.head(BOB) == 2
        assert store.scopes() == [ANN]
        store.commit(BOB, [fact("a", "again")])
        assert store.get(BOB, "a").version == 1


def test_what_is_written_after_a_compaction_comes_last(tmp_path):
    with ArenaStorage(tmp_path / "memory.dat") as store:
        for id in "abc":
            store.commit(ANN, [Put(Record(id, "text"))])
        store.commit(ANN, [Put(Record("a", "new")), Delete("b"), Delete("c")])
        store.compact()
        for id in "dbc":
            store.commit(ANN, [Put(Record(id, "text"))])
        store.commit(ANN, [Put(Record("d", "new"))])
        assert [record.id for record in store.scan(ANN)] == ["a", "d", "b", "c"]
        store.compact()
        assert [record.id for record in store.scan(ANN)] == ["a", "d", "b", "c"]


def test_erasing_leaves_no_byte_of_the_scope_in_any_file(tmp_path):
    path = tmp_path / "memory.dat"
    scope = Scope("zebra-user", "zebra-agent")
    with ArenaStorage(path, durability="os") as store:
        store.adopt(SPACE)
        store.commit(ANN, [fact("a", "stays")])
        for number in range(300):
            store.commit(scope, [fact(f"zebra{number}", f"the zebra code {number}", entity=f"zebra_{number}")])
    assert (tmp_path / "memory.dat.index").exists()
    for name in ("memory.dat.reembed", "memory.dat.tmp-1-2", "memory.dat.index.tmp-1-2"):
        (tmp_path / name).write_bytes(b"a zebra was here")
    with ArenaStorage(path) as store:
        assert b"zebra" in everything_below(tmp_path)
        store.erase(scope)
        assert b"zebra" not in everything_below(tmp_path)
        assert store.head(scope) == 0
        assert store.scopes() == [ANN]
        assert store.get(scope, "zebra1") is None
        assert store.get(ANN, "a").text == "stays"
        store.erase(scope)
        store.commit(scope, [fact("x", "new life")])
        assert store.head(scope) == 1


@pytest.mark.filterwarnings("ignore:.*damaged:RuntimeWarning")
def test_erasing_and_compacting_clear_the_quarantine_too(tmp_path):
    path = tmp_path / "memory.dat"
    with ArenaStorage(path) as store:
        for scope in (ANN, BOB):
            store.commit(scope, [Put(Record("z", "zebra of " + scope.user)), Put(Record("y", "yak of " + scope.user))])
    data = path.read_bytes()
    for animal in (b"zebra of ", b"yak of "):
        for user in (b"ann", b"bob"):
            data = data.replace(animal + user, animal.swapcase() + user)
    path.write_bytes(data)
    quarantine = tmp_path / "memory.dat.quarantine"

    def kept():
        lines = quarantine.read_bytes().splitlines() if quarantine.exists() else []
        return b" ".join(base64.b64decode(json.loads(line)["base64"]) for line in lines)

    with ArenaStorage(path) as store:
        assert len([damage for damage in store.repair() if damage.lost]) == 4
        assert kept().count(b"ZEBRA") == kept().count(b"YAK") == 2
        store.erase(BOB)
        assert kept().count(b"ZEBRA") == kept().count(b"YAK") == 1
        store.commit(ANN, [Put(Record("z", "again"))])
        store.commit(ANN, [Delete("z")])
        store.compact()
        assert kept().count(b"ZEBRA") == 0
        assert kept().count(b"YAK") == 1
        store.erase(ANN)
        assert not quarantine.exists()


def test_another_space_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "memory.dat"
    with fill(path) as store:
        data = path.read_bytes()
        with pytest.raises(EmbedderMismatchError, match=r"'test-1' \(4 dimensions\).*'test-2' \(6 dimensions\)"):
            store.adopt(OTHER)
        with pytest.raises(InputError, match="vectors of 'x'"):
            store.commit(ANN, [Put(Record("x", "text"), vectors=vectors(1, 1, 6))])
        assert path.read_bytes() == data


def test_vectors_before_their_space_are_refused(tmp_path):
    with ArenaStorage(tmp_path / "memory.dat") as store:
        with pytest.raises(InputError, match="adopt"):
            store.commit(ANN, [fact("a", "text")])
        assert store.head(ANN) == 0
        assert not (tmp_path / "memory.dat").exists()


def test_reembedding_replaces_every_vector(tmp_path):
    path = tmp_path / "memory.dat"
    told = []
    with fill(path) as store:
        before = {scope: list(store.scan(scope)) for scope in (ANN, BOB)}
        heads = [store.head(scope) for scope in (ANN, BOB)]
        assert store.reembed(OTHER, encode, lambda done, total: told.append((done, total))) == 5
        assert told[-1] == (5, 5)
        assert store.space == OTHER
        assert {scope: list(store.scan(scope)) for scope in (ANN, BOB)} == before
        assert [store.head(scope) for scope in (ANN, BOB)] == heads
        assert stored(store, ANN, "b").shape == (3, 6)
        assert store.check() == []
        assert store.reembed(OTHER, encode) == 0
    assert sorted(os.listdir(tmp_path)) == ["memory.dat", "memory.dat.lock"]
    with ArenaStorage(path) as store:
        assert store.space == OTHER
        with pytest.raises(EmbedderMismatchError):
            store.adopt(SPACE)


def many(path):
    with ArenaStorage(path, durability="os") as store:
        store.adopt(SPACE)
        store.commit(ANN, [fact(f"r{n}", f"text {n}", n + 1) for n in range(200)])


def test_an_interrupted_reembedding_is_taken_up_again(tmp_path):
    path = tmp_path / "memory.dat"
    many(path)
    calls = []

    def failing(records):
        if len(calls) == 2:
            raise ConnectionError("the model is gone")
        calls.append([record.id for record in records])
        return encode(records)

    with ArenaStorage(path) as store:
        with pytest.raises(ConnectionError):
            store.reembed(OTHER, failing)
        assert store.space == SPACE
        assert stored(store, ANN, "r0").shape == (1, 4)
        store.commit(ANN, [Delete("r0"), fact("r1", "other words now"), fact("new", "one more")])
    with ArenaStorage(path) as store:
        resumed = []

        def counting(records):
            resumed.extend(record.id for record in records)
            return encode(records)

        assert store.reembed(OTHER, counting) == len(resumed) == 200 - 128 + 2
        assert {"r1", "new"} <= set(resumed)
        assert not set(resumed) & ({id for ids in calls for id in ids} - {"r1"})
        assert store.get(ANN, "r0") is None
        assert stored(store, ANN, "r1").shape == (3, 6)
        assert stored(store, ANN, "new").shape == (2, 6)
        assert len(list(store.scan(ANN))) == 200


def _reembed_and_die(path):
    calls = []

    def dying(records):
        calls.append(records)
        if len(calls) == 3:
            os._exit(9)
        return encode(records)

    ArenaStorage(path).reembed(OTHER, dying)


def test_a_killed_reembedding_is_taken_up_again(tmp_path):
    path = tmp_path / "memory.dat"
    many(path)
    child = multiprocessing.get_context("spawn").Process(target=_reembed_and_die, args=(path,))
    child.start()
    child.join()
    assert child.exitcode == 9
    with ArenaStorage(path) as store:
        assert store.space == SPACE
        assert store.reembed(OTHER, encode) == 200 - 128
        assert store.space == OTHER
        assert store.check() == []


def test_what_others_write_during_a_reembedding_is_embedded_too(tmp_path):
    path = tmp_path / "memory.dat"
    many(path)
    with ArenaStorage(path) as store, ArenaStorage(path) as other:
        calls = []

        def encoding(records):
            if not calls:
                other.commit(ANN, [fact("late", "came late"), Delete("r5"), fact("r6", "changed")])
            if len(calls) == 1:
                other.compact()
            calls.append(len(records))
            return encode(records)

        store.reembed(OTHER, encoding)
        assert store.get(ANN, "r5") is None
        assert stored(store, ANN, "late").shape == (2, 6)
        assert stored(store, ANN, "r6").shape == (1, 6)
        assert other.space == OTHER
        assert len(list(other.scan(ANN))) == 200


def test_what_is_left_of_another_reembedding_is_discarded(tmp_path):
    path = tmp_path / "memory.dat"
    many(path)
    third = VectorSpace("test-3", 6)

    def failing(records):
        if records[0].id != "r0":
            raise ConnectionError
        return encode(records)

    with ArenaStorage(path) as store:
        with pytest.raises(ConnectionError):
            store.reembed(third, failing)
        assert (tmp_path / "memory.dat.reembed").exists()
        assert store.reembed(OTHER, encode) == 200
        assert store.space == OTHER


def test_a_wrong_matrix_from_the_embedder_changes_nothing(tmp_path):
    with fill(tmp_path / "memory.dat") as store:
        before = seen(store)
        with pytest.raises(EmbedderError, match="shape"):
            store.reembed(OTHER, lambda records: [np.ones((1, 5))] * len(records))
        with pytest.raises(EmbedderError, match="one a record"):
            store.reembed(OTHER, lambda records: [])
        assert seen(store) == before


@pytest.mark.filterwarnings("ignore:.*damaged:RuntimeWarning")
def test_reembedding_with_the_same_embedder_restores_damaged_vectors(tmp_path):
    path = tmp_path / "memory.dat"

    def four(records):
        return [rows[:, :4] for rows in encode(records)]

    with fill(path) as store:
        row = store._arena.read(lambda table: table.take("vectors_offset", np.array([0])), None)
        kept = stored(store, ANN, "b")
    with open(path, "r+b") as stream:
        stream.seek(int(row[0]))
        stream.write(b"\xff\xff")
    with ArenaStorage(path) as store:
        (damage,) = store.repair()
        assert damage.id == "a"
        assert store.reembed(SPACE, four) == 1
        assert len(stored(store, ANN, "a")) == 3
        assert np.array_equal(stored(store, ANN, "b"), kept)
        assert store.check() == []


def beside(monkeypatch, act, after="copy"):
    """Let `act` happen once in every compaction, after one of its steps that need no lock."""
    real = getattr(compaction._Copying, after)

    def copying(self, *arguments):
        real(self, *arguments)
        act()

    monkeypatch.setattr(compaction._Copying, after, copying)


@pytest.mark.parametrize("step", ["copy", "prepare_index"])
def test_what_others_write_during_a_compaction_is_kept(tmp_path, monkeypatch, step):
    path = tmp_path / "memory.dat"
    third = Scope("carl")
    with fill(path) as store, ArenaStorage(path) as other, fill(tmp_path / "twin.dat") as twin:

        def write(target):
            target.commit(ANN, [fact("late", "came late", entity="city"), Delete("c"), fact("b", "likes water")])
            target.commit(third, [fact("x", "a new scope"), Put(Record("m", "hi", kind="message"))])
            target.commit(third, [Delete("m")])

        beside(monkeypatch, lambda: write(other), step)
        assert store.compact() >= 0
        write(twin)
        assert seen(store) == seen(other) == seen(twin)
        assert b"likes tea" not in path.read_bytes()
        assert store.check() == []
        assert store.stats()["dead_rows"] == other.stats()["dead_rows"] > 0
        # Numbers of blocks are never used twice, so these births are new ones.
        for target in (other, twin):
            target.commit(ANN, [fact(f"more{n}", f"text {n}") for n in range(3)])
            target.commit(third, [fact("y", "more"), Delete("x")])
        assert seen(store) == seen(other) == seen(twin)
        monkeypatch.undo()
        assert store.compact() > 0
        assert store.stats()["dead_rows"] == 0
        assert seen(store) == seen(other) == seen(twin)
    with ArenaStorage(path) as store, ArenaStorage(tmp_path / "twin.dat") as twin:
        assert seen(store) == seen(twin)


def test_a_space_that_is_adopted_during_a_compaction_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "memory.dat"
    with ArenaStorage(path) as store, ArenaStorage(path) as other:
        store.commit(ANN, [Put(Record("a", "text")), Put(Record("b", "text"))])
        store.commit(ANN, [Delete("a")])

        def write():
            other.adopt(SPACE)
            other.commit(ANN, [fact("v", "with a vector")])

        beside(monkeypatch, write)
        assert store.compact() >= 0
        assert store.space == SPACE
        assert stored(store, ANN, "v").shape == (1, 4)


@pytest.mark.parametrize("times", [1, 99])
def test_erasing_does_not_wait_for_a_compaction_and_wins(tmp_path, monkeypatch, times):
    path = tmp_path / "memory.dat"
    with fill(path) as store, ArenaStorage(path) as other:
        done = []

        def erase():
            if len(done) < times:
                done.append(True)
                other.erase(BOB)
                assert b"works at night" not in everything_below(tmp_path)
                other.commit(BOB, [fact("a", "works at night", entity="shift"), fact("b", "sleeps")])
                other.commit(BOB, [Delete("b")])

        beside(monkeypatch, erase)
        assert store.compact() >= 0
        # One that is overtaken each time does its work under the lock in the end.
        assert len(done) == min(times, 3)
        assert b"sleeps" not in everything_below(tmp_path)
        assert store.stats()["dead_rows"] == 0
        assert store.head(BOB) == 2
        assert [path.name for path in tmp_path.iterdir() if ".tmp-" in path.name] == []


def test_a_scope_erased_before_its_first_commit_stops_a_compaction_all_the_same(tmp_path, monkeypatch):
    with fill(tmp_path / "memory.dat") as store, ArenaStorage(tmp_path / "memory.dat") as other:
        calls = []
        beside(monkeypatch, lambda: (calls.append(True), other.erase(Scope("nobody")) if len(calls) == 1 else None))
        before = seen(store)
        assert store.compact() > 0
        assert len(calls) == 2
        assert seen(store) == before


@pytest.mark.filterwarnings("ignore:.*damaged:RuntimeWarning")
def test_damage_that_comes_up_during_a_compaction_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "memory.dat"
    with fill(path) as store, ArenaStorage(path) as other:

        def damage():
            other.commit(ANN, [fact("z", "zebra " * 20)])
            data = path.read_bytes()
            with path.open("r+b") as stream:
                stream.seek(data.index(b"zebra"))
                stream.write(b"Z")

        beside(monkeypatch, damage)
        with pytest.raises(CorruptionError, match="the text of a record is damaged"):
            store.compact()
        assert store.get(ANN, "a").text == "lives in Rome"
        assert store.get(ANN, "b").version == 2
        assert sorted(os.listdir(tmp_path)) == ["memory.dat", "memory.dat.compact.lock", "memory.dat.lock"]


def test_after_a_compaction_nobody_reads_the_whole_file(tmp_path):
    path = tmp_path / "memory.dat"
    many(path)
    with ArenaStorage(path) as store, ArenaStorage(path) as other:
        store.commit(ANN, [fact(f"s{n}", f"more {n}", n + 1) for n in range(200)])
        store.commit(ANN, [Delete("r0")])
        expected = seen(other)
        store.compact()
        assert other.stats()["indexed_rows"] == other.stats()["records"] == 399
        assert seen(other) == seen(store) == expected


def test_records_written_one_by_one_are_joined_although_nothing_is_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "_MANY_BLOCKS", 20)
    with ArenaStorage(tmp_path / "memory.dat", durability="os") as store:
        for number in range(18):
            store.commit(ANN, [Put(Record(f"r{number}", "short"))])
        assert store.compact() == 0
        for number in range(18, 40):
            store.commit(ANN, [Put(Record(f"r{number}", "short"))])
        before = list(store.scan(ANN))
        assert store.compact() > 20 * 2 * BLOCK
        assert list(store.scan(ANN)) == before
        assert store.compact() == 0
        for number in range(40):
            store.commit(ANN, [Put(Record(f"long{number}", "long " * 400))])
        assert store.compact() == 0


def test_big_rewrites_are_written_in_several_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("nanomem_plugins.arena.rewrite._BLOCK_ROWS", 7)
    with fill(tmp_path / "memory.dat") as store:
        store.commit(ANN, [fact(f"r{n}", f"text {n}", n + 1, entity="n") for n in range(50)])
        before = seen(store)
        store.compact()
        assert seen(store) == before


def test_the_suffixes_are_those_in_the_documentation(tmp_path):
    arena = engine.Arena(str(tmp_path / "x"), vector_dtype="float16", durability="os")
    assert [os.path.basename(p) for p in (arena.index_path, arena.reembed_path, arena.quarantine_path)] == [
        "x.index",
        "x.reembed",
        "x.quarantine",
    ]
