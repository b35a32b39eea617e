import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.changes import Commit
from nanomem_core.columns import FIELDS, Columns, MemoryColumns, RowArrays, kind_code, row_values
from nanomem_core.errors import InputError
from nanomem_core.records import KINDS, Record, Scope

ANN = Scope("ann")


def held(*records, head=1):
    """Columns over a dictionary of records, and that dictionary."""
    stored = {record.id: record for record in records}
    return MemoryColumns(ANN, head, records, stored.get), stored


def record(id, version=1, **fields):
    return Record(id, f"text of {id}", version=version, **fields)


def columns_of(*records):
    return held(*records)[0].columns()


def test_every_array_has_its_type_and_one_value_a_row():
    columns = columns_of(record("a"), record("b"))
    assert isinstance(columns, Columns)
    assert len(columns) == 2
    for name, dtype in FIELDS.items():
        array = getattr(columns, name)
        assert (array.dtype, array.shape) == (np.dtype(dtype), (2,))


def test_empty_columns_have_every_array():
    columns = columns_of()
    assert len(columns) == 0
    assert columns.where().shape == (0,)


def test_missing_ends_are_infinite():
    columns = columns_of(
        record("open"),
        record("ended", valid_to=5.0, recorded_at=3.0),
        record("closed later", valid_to=5.0, recorded_at=3.0, closed_at=9.0),
        record("no end", recorded_at=3.0, closed_at=9.0),
    )
    assert columns.valid_to.tolist() == [math.inf, 5.0, 5.0, math.inf]
    assert columns.closed_at.tolist() == [math.inf, 3.0, 9.0, math.inf]


def test_an_end_counts_from_when_the_memory_was_told():
    columns = columns_of(record("a", valid_to=5.0, closed_at=9.0))
    assert columns.ends().tolist() == [5.0]
    assert columns.ends(known_at=9.0).tolist() == [5.0]
    assert columns.ends(known_at=8.9).tolist() == [math.inf]


def test_where_selects_kinds_and_what_was_known():
    columns = columns_of(*(record(kind, kind=kind, recorded_at=float(i)) for i, kind in enumerate(KINDS)))
    for kind in KINDS:
        assert columns.source.ids(np.flatnonzero(columns.where(kind))) == [kind]
    assert columns.source.ids(np.flatnonzero(columns.where(None))) == [kind for kind in KINDS if kind != "purged"]
    assert columns.source.ids(np.flatnonzero(columns.where(None, known_at=1.0))) == list(KINDS[:2])
    assert not columns.where("fact", known_at=1.0).any()


def test_an_unknown_kind_is_an_error():
    with pytest.raises(InputError, match=r"kind: expected one of message, .*; found 'note'"):
        kind_code("note")


def test_chains_are_numbered_once_for_each_key():
    columns = columns_of(record("a", entity="city"), record("b"), record("c", entity="job"), record("d", entity="city"))
    assert columns.chain.tolist() == [0, -1, 1, 0]
    assert list(columns.chains) == ["city", "job"]


def test_a_commit_appends_rows_and_kills_the_old_ones():
    memory, stored = held(record("a", entity="city"), record("b"))
    before = memory.columns()
    new = (record("a", 2, entity="job"), record("c"))
    stored.update({r.id: r for r in new})
    del stored["b"]
    assert memory.apply(Commit(ANN, 2, new, ("b",)))
    after = memory.columns()
    assert (before.head, after.head) == (1, 2)
    assert before.live.tolist() == [True, True]
    assert after.live.tolist() == [False, False, True, True]
    assert after.source.ids(np.arange(4)) == ["a", "b", "a", "c"]
    assert [after.source.row(id) for id in "abc"] == [2, None, 3]
    assert after.source.records(np.array([3, 2])) == [new[1], new[0]]


def test_a_commit_that_does_not_follow_changes_nothing():
    memory, _ = held(record("a"))
    assert not memory.apply(Commit(ANN, 1, (record("b"),), ("a",)))
    assert memory.columns().live.tolist() == [True]


def test_commits_that_come_before_their_turn_wait_for_it():
    memory, _ = held(record("a"))
    later = [record(id) for id in "cde"]
    for head, one in zip((4, 3), reversed(later[:2]), strict=True):
        assert memory.apply(Commit(ANN, head, (one,)))
    assert (memory.head, len(memory.columns())) == (1, 1)
    assert memory.apply(Commit(ANN, 2, (record("b"),), ("a",)))
    columns = memory.columns()
    assert (columns.head, columns.source.ids(np.arange(4)), columns.live.tolist()) == (
        4,
        ["a", "b", "c", "d"],
        [False, True, True, True],
    )


def test_where_a_commit_never_comes_the_others_are_not_gathered_for_ever():
    memory, _ = held(record("a"))
    assert not all(memory.apply(Commit(ANN, head, (record(str(head)),))) for head in range(3, 1000))


def test_a_row_of_an_older_version_gives_no_record_of_a_newer_one():
    memory, stored = held(record("a"), record("b"))
    stored["a"] = record("a", 2)
    assert memory.records(np.arange(2)) == [stored["b"]]
    del stored["b"]
    assert memory.records(np.arange(2)) == []


def test_columns_that_are_kept_stay_as_they_are():
    memory, _ = held(*(record(f"r{i}") for i in range(64)))
    first = memory.columns()
    copies = {name: getattr(first, name).copy() for name in FIELDS}
    for head in range(2, 40):
        assert memory.apply(Commit(ANN, head, tuple(record(f"r{i}", head, entity="e") for i in range(head))))
    for name, copy in copies.items():
        assert (getattr(first, name) == copy).all()
    assert len(memory.columns()) == 64 + sum(range(2, 40))


def test_arrays_that_can_not_be_written_are_copied_before_a_row_dies():
    values = row_values([record("a"), record("b")], [-1, -1])
    for array in values.values():
        array.flags.writeable = False
    rows = RowArrays(dict(values))
    rows.kill(0)
    assert rows.append(row_values([record("c")], [-1])) == 2
    assert rows.columns(ANN, 1, [], held()[0]).live.tolist() == [False, True, True]
    assert values["live"].tolist() == [True, True]


steps = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "city", "job"])),
            max_size=3,
            unique_by=lambda x: x[0],
        ),
        st.sets(st.sampled_from("abcd"), max_size=2),
    ),
    max_size=15,
)


@given(steps)
def test_updated_columns_say_the_same_as_new_ones(steps):
    memory, stored = held(head=0)
    for head, (puts, deletes) in enumerate(steps, start=1):
        gone = tuple(sorted(deletes & stored.keys() - {id for id, _ in puts}))
        new = tuple(
            record(id, stored[id].version + 1 if id in stored else 1, entity=entity, valid_from=float(head))
            for id, entity in puts
        )
        for id in gone:
            del stored[id]
        stored.update({r.id: r for r in new})
        assert memory.apply(Commit(ANN, head, new, gone))

    def seen(columns):
        rows = np.flatnonzero(columns.live)
        return {
            id: (
                columns.kind[row],
                columns.chain[row] >= 0 and columns.chains[columns.chain[row]],
                columns.valid_from[row],
            )
            for id, row in zip(columns.source.ids(rows), rows, strict=True)
        }

    assert seen(memory.columns()) == seen(MemoryColumns(ANN, 1, stored.values(), stored.get).columns())
    assert {r.id: r for r in memory.records(np.flatnonzero(memory.columns().live))} == stored
