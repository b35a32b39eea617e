"""The index only makes opening fast: whatever happens to it, the answers are those of the vault."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.columns import FIELDS
from nanomem_core.records import Record
from nanomem_plugins.arena.storage import ArenaStorage

from .material import ANN, BOB, SPACE, fact, seen


def grow(store, start, count):
    """Commits with new chains, updates and deletions, in two scopes."""
    for number in range(start, start + count):
        scope = BOB if number % 5 == 0 else ANN
        changes = [fact(f"id{number}", f"text {number}", number + 1, entity=f"thing_{number % 40}")]
        if number % 7 == 0 and number > 10:
            changes.append(Delete(f"id{number - 6}"))
        if number % 11 == 0 and number > 10:
            changes.append(fact(f"id{number - 5}", f"new text {number}", number, entity=f"thing_{number % 40}"))
        store.commit(scope, changes)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A vault of 600 commits with its index, and what can be seen of it."""
    path = tmp_path_factory.mktemp("source") / "memory.dat"
    with ArenaStorage(path, durability="os") as store:
        store.adopt(SPACE)
        grow(store, 0, 600)
    path.with_name("memory.dat.index").unlink()
    ArenaStorage(path).close()
    with ArenaStorage(path) as store:
        assert store.stats()["indexed_rows"] > 600
        state = seen(store)
    return path, state


@pytest.fixture
def path(source, tmp_path):
    for name in ("memory.dat", "memory.dat.index"):
        shutil.copy(source[0].with_name(name), tmp_path / name)
    return tmp_path / "memory.dat"


def index_of(path):
    return path.with_name("memory.dat.index")


def test_a_store_without_index_answers_the_same(source, path):
    index_of(path).unlink()
    with ArenaStorage(path, read_only=True) as store:
        assert store.stats()["indexed_rows"] == 0
        assert seen(store) == source[1]
    assert not index_of(path).exists()


def test_columns_are_the_same_with_and_without_index(source, path):
    with ArenaStorage(path) as store, ArenaStorage(path, read_only=True) as other:
        for scope in (ANN, BOB):
            columns = store.columns(scope)
            with_index = {name: getattr(columns, name).tolist() for name in FIELDS}
            index_of(path).rename(path.with_name("away"))
            without = ArenaStorage(path, read_only=True).columns(scope)
            assert {name: getattr(without, name).tolist() for name in FIELDS} == with_index
            assert list(without.chains) == list(columns.chains) == list(other.columns(scope).chains)
            path.with_name("away").rename(index_of(path))


def test_a_deleted_index_is_written_again_on_close(source, path):
    index_of(path).unlink()
    with ArenaStorage(path) as store:
        assert seen(store) == source[1]
    assert index_of(path).stat().st_mode & 0o777 == 0o600
    with ArenaStorage(path) as store:
        assert store.stats()["indexed_rows"] > 500
        assert seen(store) == source[1]


def test_an_index_with_a_flipped_bit_changes_no_answer(source, path):
    data = index_of(path).read_bytes()
    chance = random.Random(7)
    ids = [f"id{number}" for number in range(0, 600, 30)] + ["absent"]
    with ArenaStorage(path, read_only=True) as store:
        expected = [store.get(ANN, id) for id in ids]
    for _ in range(60):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        index_of(path).write_bytes(damaged)
        with ArenaStorage(path, read_only=True) as store:
            assert [store.get(ANN, id) for id in ids] == expected
    for part in range(12):
        damaged = bytearray(data)
        for place in range(part * len(data) // 12, (part + 1) * len(data) // 12, 97):
            damaged[place] ^= 0xFF
        index_of(path).write_bytes(damaged)
        with ArenaStorage(path, read_only=True) as store:
            assert seen(store) == source[1]


@pytest.mark.parametrize("length", [0, 1, 100, 4096, 30000])
def test_an_index_that_was_cut_changes_no_answer(source, path, length):
    index_of(path).write_bytes(index_of(path).read_bytes()[:length])
    with ArenaStorage(path) as store:
        assert seen(store) == source[1]


def test_an_index_that_is_behind_is_completed_from_the_vault(path):
    old = index_of(path).read_bytes()
    with ArenaStorage(path, durability="os") as store:
        grow(store, 600, 300)
        expected = seen(store)
    assert index_of(path).read_bytes() != old
    index_of(path).write_bytes(old)
    with ArenaStorage(path) as store:
        assert 600 < store.stats()["indexed_rows"] < 700
        assert seen(store) == expected
        grow(store, 900, 20)
        expected = seen(store)
    with ArenaStorage(path) as store:
        assert seen(store) == expected


def test_an_index_of_another_vault_is_not_used(path, tmp_path):
    with ArenaStorage(tmp_path / "other.dat", durability="os") as other:
        other.adopt(SPACE)
        grow(other, 0, 700)
        expected = seen(other)
    shutil.copy(index_of(path), tmp_path / "other.dat.index")
    with ArenaStorage(tmp_path / "other.dat", read_only=True) as other:
        assert other.stats()["indexed_rows"] == 0
        assert seen(other) == expected


def test_an_index_from_before_a_compaction_is_not_used(path):
    old = index_of(path).read_bytes()
    with ArenaStorage(path) as store:
        before = {scope: list(store.scan(scope)) for scope in (ANN, BOB)}
        store.compact()
        index_of(path).write_bytes(old)
    with ArenaStorage(path, read_only=True) as store:
        assert store.stats()["indexed_rows"] == 0
        assert {scope: list(store.scan(scope)) for scope in (ANN, BOB)} == before


def test_a_handle_that_writes_much_writes_the_index_meanwhile(tmp_path):
    path = tmp_path / "memory.dat"
    with ArenaStorage(path, durability="os") as store:
        columns = None
        for start in range(0, 1500, 300):
            store.commit(ANN, [Put(Record(f"r{n}", "text", entity="e")) for n in range(start, start + 300)])
            store.commit(ANN, [Put(Record(f"r{start}", "new", entity="e")), Delete(f"r{start + 1}")])
            columns = store.columns(ANN)
            assert columns.live.sum() == 299 * (start // 300 + 1)
        assert store.stats()["indexed_rows"] >= 1200
        assert columns.revision.max() == 1500
        with store.transaction(ANN) as transaction:
            assert transaction.tip("e") == 1500
        assert columns.source.row("r301") is None
        assert columns.source.ids(np.array([columns.source.row("r300")])) == ["r300"]


def test_columns_of_one_scope_are_mapped_from_the_index(tmp_path):
    path = tmp_path / "memory.dat"
    with ArenaStorage(path, durability="os") as store:
        store.commit(ANN, [Put(Record(f"r{n}", "text")) for n in range(300)])
    with ArenaStorage(path) as store:
        columns = store.columns(ANN)
        assert not columns.valid_from.flags.writeable
        assert not columns.valid_from.flags.owndata
        store.commit(ANN, [Delete("r7"), Put(Record("new", "text"))])
        assert store.columns(ANN).live.tolist() == [n != 7 for n in range(301)]
        assert columns.live.all()


def test_reading_a_folder_that_may_not_be_written_works(path, monkeypatch):
    def refuse(*_args, **_options):
        raise PermissionError(13, "no writing here")

    index_of(path).unlink()
    store = ArenaStorage(path)
    for name in ("write", "pwrite", "replace", "unlink"):
        monkeypatch.setattr(f"os.{name}", refuse)
    assert store.get(ANN, "id4") is not None
    store.close()
