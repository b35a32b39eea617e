"""The order of chains, and the standing of values."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.chains import Standing, chain_rows, read_chains, standing, visible
from nanomem_core.records import Record
from tests.rows import columns_of, members_in, record

NOW = 1000.0


def stand(*records: Record, row: int, at: float = NOW, known_at: float | None = None) -> Standing:
    columns = columns_of(*records)
    chains = read_chains(columns, [int(columns.chain[row])], visible(columns, known_at=known_at), members_in(columns))
    return standing(columns, row, chains.get(int(columns.chain[row])), at, columns.ends(known_at))


def test_a_chain_is_ordered_by_time_then_revision_then_writing() -> None:
    columns = columns_of(
        record("d", "x", 5, 3),
        record("a", "x", 1, 9),
        record("c", "x", 5, 2),
        record("e", "x", 5, 3),
        record("b", "x", 2, 1),
        record("other", "y", 3),
        record("outside"),
    )
    chains = chain_rows(columns, visible(columns))
    assert [columns.source.ids(chain.rows) for chain in chains] == [["a", "b", "c", "d", "e"], ["other"]]


def test_chains_are_kept_apart_by_user_and_project() -> None:
    columns = columns_of(
        record("a", "x"),
        record("b", "x", metadata={"user_id": "ann"}),
        record("c", "x", metadata={"user_id": "ann", "project": "p"}),
        record("d", "x", metadata={"project": "ann"}),
        record("e", "x", metadata={"user_id": "ann"}),
    )
    assert [chain.rows.tolist() for chain in chain_rows(columns, visible(columns))] == [[0], [1, 4], [2], [3]]


def test_a_chain_is_declared_by_one_of_its_visible_values() -> None:
    columns = columns_of(record("a", "x", 1, declared=False), record("b", "x", 5), record("c", "y", declared=False))
    assert [chain.declared for chain in chain_rows(columns, visible(columns))] == [True, False]
    assert [chain.declared for chain in chain_rows(columns, visible(columns, as_of=4))] == [False, False]


def test_superseded_at_is_the_start_of_the_immediate_successor() -> None:
    records = [record(str(time), "x", time) for time in (10, 20, 30)]
    assert stand(*records, row=0) == Standing(True, 20, "superseded")
    assert stand(*records, row=1) == Standing(True, 30, "superseded")
    assert stand(*records, row=2) == Standing(False, None, "current")


def test_outside_a_chain_the_standing_is_unknown_until_it_ends() -> None:
    assert stand(record("a"), row=0) == Standing(None, None, "unknown")
    assert stand(record("a", valid_to=NOW), row=0) == Standing(True, NOW, "ended")
    assert stand(record("a", valid_to=NOW + 1), row=0) == Standing(None, None, "unknown")


def test_an_end_counts_if_it_comes_before_the_successor() -> None:
    later = record("b", "x", 50)
    assert stand(record("a", "x", 10, valid_to=40), later, row=0) == Standing(True, 40, "ended")
    assert stand(record("a", "x", 10, valid_to=50), later, row=0) == Standing(True, 50, "superseded")
    assert stand(record("a", "x", 10, valid_to=60), later, row=0) == Standing(True, 50, "superseded")
    assert stand(record("a", "x", 10, valid_to=60), row=0, at=59.9) == Standing(False, None, "current")
    assert stand(record("a", "x", 10, valid_to=60), row=0, at=60) == Standing(True, 60, "ended")


def test_an_end_is_known_from_the_time_it_was_told() -> None:
    ended = record("a", "x", 10, valid_to=40, closed_at=70)
    assert stand(ended, row=0, known_at=69) == Standing(False, None, "current")
    assert stand(ended, row=0, known_at=70) == Standing(True, 40, "ended")


def test_what_is_visible_is_true_and_told_by_the_asked_times() -> None:
    columns = columns_of(
        record("a", at=10, recorded_at=30),
        record("b", at=20, recorded_at=20),
        record("c", at=30, recorded_at=10, kind="episode"),
        record("d", at=0, kind="purged"),
    )
    assert visible(columns).tolist() == [True, True, False, False]
    assert visible(columns, None).tolist() == [True, True, True, False]
    assert visible(columns, None, as_of=20).tolist() == [True, True, False, False]
    assert visible(columns, None, known_at=20).tolist() == [False, True, True, False]
    assert visible(columns, None, as_of=20, known_at=20).tolist() == [False, True, False, False]


def test_reading_no_chain_and_chains_without_rows() -> None:
    columns = columns_of(record("a", "x"))
    assert read_chains(columns, [], visible(columns), members_in(columns)) == {}
    assert read_chains(columns, [-1], visible(columns), members_in(columns)) == {}
    assert read_chains(columns, [0], np.zeros(1, np.bool_), members_in(columns)) == {}
    empty = columns_of()
    assert read_chains(empty, [], visible(empty), members_in(empty)) == {}
    assert chain_rows(empty, visible(empty)) == []


times = st.integers(0, 4).map(float)


@given(
    st.lists(st.tuples(st.sampled_from(["x", "y", None]), times, st.integers(1, 4)), max_size=14),
    st.none() | times,
)
def test_standing_is_that_of_a_plain_sort_of_the_chain(
    rows: list[tuple[str | None, float, int]], as_of: float | None
) -> None:
    records = [record(str(number), *row) for number, row in enumerate(rows)]
    columns = columns_of(*records)
    shown = visible(columns, as_of=as_of)
    chains = {chain.code: chain for chain in chain_rows(columns, shown)}
    for number, one in enumerate(records):
        if not shown[number]:
            continue
        rivals = [
            (r.valid_from, r.revision, n)
            for n, r in enumerate(records)
            if one.entity is not None and r.entity == one.entity and (as_of is None or r.valid_from <= as_of)
        ]
        later = [rival for rival in sorted(rivals) if rival > (one.valid_from, one.revision, number)]
        found = standing(columns, number, chains.get(int(columns.chain[number])), math.inf)
        if one.entity is None:
            assert found == Standing(None, None, "unknown")
        elif later:
            assert found == Standing(True, later[0][0], "superseded")
        else:
            assert found == Standing(False, None, "current")
