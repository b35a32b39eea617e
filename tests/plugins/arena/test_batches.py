"""Commits of many records: whatever is done for all of them together comes to what each alone would come to."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.changes import Delete, Put
from nanomem_core.columns import FIELDS
from nanomem_core.errors import ConflictError, CorruptionError, EmbedderMismatchError, InputError
from nanomem_core.interfaces import VectorSpace
from nanomem_core.records import Record
from nanomem_plugins.arena import documents
from nanomem_plugins.arena.format import compact_json
from nanomem_plugins.arena.storage import ArenaStorage

from .material import ANN, BOB, SPACE, fact, fill, seen, vectors

MANY = 40


def many(start=0, count=MANY):
    return [
        Put(
            Record(
                f"id{number}",
                f"text {number} ünd\0mehr",
                kind="message" if number % 9 == 0 else "fact",
                entity=f"thing_{number % 7}" if number % 3 else None,
                declared=number % 3 == 1,
                valid_from=float(number),
                valid_to=number + 0.5 if number % 10 == 4 else None,
                closed_at=number + 9.0 if number % 20 == 4 else None,
                recorded_at=float(number),
                source="a\0b" if number % 11 == 0 else "test",
                metadata={"n": number, "user_id": "u"} if number % 2 else {},
            ),
            vectors=None if number % 13 == 0 else vectors(number, 1 + (number % 5 == 0)),
        )
        for number in range(start, start + count)
    ]


def endless():
    return [replace(put, record=replace(put.record, valid_to=None, closed_at=None)) for put in many()]


def plain(start=0, count=MANY):
    return [fact(f"id{number}", f"text {number}", number + 1) for number in range(start, start + count)]


def opened(path):
    store = ArenaStorage(path, durability="os")
    store.adopt(SPACE)
    return store


def everything(store):
    columns = store.columns(ANN)
    shown = {name: getattr(columns, name).tolist() for name in FIELDS if name != "chain"}
    chains = [None if code < 0 else columns.chains[code] for code in columns.chain.tolist()]
    state = seen(store)[ANN]
    return shown, chains, state[1:]


@pytest.mark.parametrize("made", [many, endless, plain])
def test_many_records_in_one_commit_come_to_the_same_as_one_by_one(tmp_path, made):
    with opened(tmp_path / "together") as together, opened(tmp_path / "each") as each:
        other = opened(tmp_path / "together")
        other.columns(ANN)
        together.commit(ANN, made())
        for change in made():
            each.commit(ANN, [change])
        expected = everything(each)
        assert everything(together) == expected
        assert everything(other) == expected
        other.close()
        with opened(tmp_path / "together") as again:
            assert everything(again) == expected


def test_a_batch_finds_what_is_indexed_what_is_new_and_what_is_gone(tmp_path):
    path = tmp_path / "memory.dat"
    with opened(path) as store:
        for start in range(0, 600, 200):
            store.commit(ANN, plain(start, 200))
        store.commit(BOB, plain(1000, 20))
    with opened(path) as store:
        assert store.stats()["indexed_rows"] >= 400
        store.commit(ANN, [Delete("id5"), *plain(600, 1)])
        for taken in ("id0", "id333", "id599", "id600"):
            batch = plain(700)
            batch[17] = Put(Record(taken, "another"), expect=0)
            with pytest.raises(ConflictError, match=f"'{taken}' already exists"):
                store.commit(ANN, batch)
        # A deleted id, and one of another scope, are as good as new.
        batch = [Put(Record(id, "new"), expect=0) for id in ("id5", *(f"id{1000 + n}" for n in range(20)))]
        assert [record.version for record in store.commit(ANN, batch).records] == [1] * 21
        updated = store.commit(ANN, plain(590, 30))
        assert [record.version for record in updated.records] == [2] * 11 + [1] * 19
        assert store.get(BOB, "id1000").text == "text 1000"
        state = seen(store)
    path.with_name("memory.dat.index").unlink()
    with opened(path) as store:
        assert seen(store) == state


def test_ids_whose_hashes_are_equal_stay_apart(tmp_path, monkeypatch):
    def few(scope, ids):
        return [len(id) for id in ids]

    monkeypatch.setattr(documents, "id_hashes", few)
    monkeypatch.setattr("nanomem_plugins.arena.storage.id_hashes", few)
    path = tmp_path / "memory.dat"
    with opened(path) as store:
        store.commit(ANN, plain())
        store.commit(ANN, [fact("id3", "another text"), Delete("id12"), *plain(100, 300)])
        state = seen(store)
        assert len(state[ANN][1]) == MANY - 1 + 300
        assert store.get(ANN, "id3").text == "another text"
        assert store.get(ANN, "id12") is None
    with opened(path) as store:
        assert store.stats()["indexed_rows"] > 300
        assert seen(store) == state


@pytest.mark.filterwarnings("ignore:.*damaged:RuntimeWarning")
def test_a_damaged_record_of_a_large_batch_hides_no_other(tmp_path):
    path = tmp_path / "memory.dat"
    with opened(path) as store:
        store.commit(ANN, plain())
        state = seen(store)[ANN]
    data = path.read_bytes()
    for wanted in (b"text 17", b"id31\0"):
        place = data.index(wanted) + len(wanted) - 1
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        id = "id17" if wanted == b"text 17" else "id31"
        with opened(path) as store:
            assert seen(store)[ANN][1] == {key: record for key, record in state[1].items() if key != id}
            with pytest.raises(CorruptionError):
                store.commit(ANN, [Put(Record(f"id{n}", "x"), expect=0) for n in range(int(id[2:]), 90)])


@pytest.mark.parametrize("bad", [None, 5, "", "a\0b", "\ud800", "x" * 2000])
def test_an_id_that_is_none_is_refused_whatever_is_beside_it(tmp_path, bad):
    with opened(tmp_path / "memory.dat") as store:
        for changes in ([Put(Record(bad, "text"))], [*plain(), Put(Record(bad, "text"))], [*plain(), Delete(bad)]):
            with pytest.raises(InputError, match=r"^id: "):
                store.commit(ANN, changes)
        assert store.head(ANN) == 0


def test_vectors_of_an_embedder_that_was_replaced_meanwhile_are_refused(tmp_path):
    path = tmp_path / "memory.dat"
    mine = fill(path)
    other = VectorSpace("test-2", SPACE.dim)
    with ArenaStorage(path) as theirs:
        theirs.reembed(other, lambda records: [vectors(7) for _ in records])
    mine.adopt(SPACE)  # nothing has told it yet
    with pytest.raises(EmbedderMismatchError, match="test-2"):
        mine.commit(ANN, [fact("late", "from the old embedder")])
    assert mine.get(ANN, "late") is None
    with pytest.raises(EmbedderMismatchError):
        mine.adopt(SPACE)
    mine.adopt(other)
    mine.commit(ANN, [fact("new", "from the new one")])
    mine.close()


def test_a_handle_at_work_cuts_what_a_killed_writer_left_behind_its_own_commit(tmp_path):
    path = tmp_path / "memory.dat"
    store = fill(path)
    store.commit(ANN, [fact("before", "text")])
    shutil.copy(path, tmp_path / "copy")
    with ArenaStorage(tmp_path / "copy") as copy:
        # A whole block without its header: what a writer leaves that is killed between its two writes.
        end = copy._arena._table.end
        copy.commit(ANN, [fact("killed", "half of a commit")])
        left = (tmp_path / "copy").read_bytes()[end + 96 : end + 300]
    with path.open("r+b") as stream:
        stream.seek(end + 96)
        stream.write(left)
    with pytest.warns(RuntimeWarning, match="torn tail"):
        store.commit(ANN, [fact("after", "text")])
    assert left[40:] not in path.read_bytes()
    assert {record.id for record in store.scan(ANN)} >= {"before", "after"}
    store.close()
    with ArenaStorage(path) as again:
        assert again.check() == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_json_is_written_as_the_standard_library_writes_it(value):
    assert compact_json(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_what_json_cannot_hold_is_refused():
    cycle = {}
    cycle["self"] = cycle
    for value in (float("nan"), {"x": float("inf")}, {"x": object()}, {(1, 2): 3}, cycle, np.float32(1)):
        with pytest.raises(InputError, match="metadata: expected what JSON can hold"):
            compact_json(value)
