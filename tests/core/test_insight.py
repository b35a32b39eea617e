"""Changes, volatility and staleness over columns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nanomem_core.chains import visible
from nanomem_core.insight import find_changes, split_chain, staleness_rows, volatility_rows
from nanomem_core.records import Record
from tests.rows import columns_of, members_in, record


def found(*records: Record, since: float, until: float | None = None) -> list[tuple[float, int, str, int | None]]:
    columns = columns_of(*records)
    every = np.arange(len(columns))
    changes = find_changes(columns, visible(columns), since, until, columns.ends(), every, members_in(columns))
    return [(change.at, change.row, change.change, change.previous) for change in changes]


def test_a_window_is_open_at_its_start_and_closed_at_its_end() -> None:
    records = [record(str(time), at=time) for time in (1, 2, 3)]
    assert found(*records, since=1, until=3) == [(2, 1, "added", None), (3, 2, "added", None)]
    assert found(*records, since=3) == found(*records, since=2, until=2) == []


def test_changes_come_by_time_and_those_of_one_time_in_the_order_of_writing() -> None:
    records = [record("b", at=2), record("a", at=1, valid_to=2), record("c", "x", 2), record("d", "x", 2, 2)]
    assert found(*records, since=0) == [
        (1, 1, "added", None),
        (2, 0, "added", None),
        (2, 1, "ended", None),
        (2, 2, "added", None),
        (2, 3, "changed", 2),
    ]


def test_only_an_end_before_the_successor_is_an_event() -> None:
    records = [
        record("a", "x", 1, valid_to=3),
        record("b", "x", 5, valid_to=9),
        record("c", "x", 7),
        record("d", "x", 11, valid_to=12),
    ]
    assert [change for change in found(*records, since=2) if change[2] == "ended"] == [
        (3, 0, "ended", None),
        (12, 3, "ended", None),
    ]


def test_the_parts_of_a_chain_key() -> None:
    assert split_chain("x") == ("x", None, None)
    assert split_chain("x\x1fann\x1f") == ("x", "ann", None)
    assert split_chain("x\x1f\x1fp") == ("x", None, "p")


def test_volatility_of_values_told_out_of_order() -> None:
    columns = columns_of(record("b", "x", 40), record("a", "x", 10), record("c", "x", 100), record("d", "y", 5))
    (row,) = volatility_rows(columns, visible(columns), 2, 150)
    assert (row["intervals"], row["first_ts"], row["last_ts"], row["age"]) == ([30, 60], 10, 100, 50)
    assert (row["mean_interval"], row["median_interval"]) == (45, 45)
    assert [row["entity"] for row in volatility_rows(columns, visible(columns), 1, 150)] == ["y", "x"]


def test_a_rate_is_shrunk_towards_chains_of_the_same_entity_else_towards_all() -> None:
    columns = columns_of(
        *(record(f"a{at}", "x", at, metadata={"user_id": "ann"}) for at in (0, 10)),
        *(record(f"b{at}", "x", at, metadata={"user_id": "bob"}) for at in (0, 30)),
        *(record(f"c{at}", "y", at) for at in (0, 200)),
        record("d", "z", 0),
    )
    rows = {row["key"]: row for row in staleness_rows(volatility_rows(columns, visible(columns), 1, 230), 1.0, True, 1)}
    assert rows["x\x1fann\x1f"]["rate"] == pytest.approx(2 / (10 + 20))
    assert rows["x\x1fbob\x1f"]["rate"] == pytest.approx(2 / (30 + 20))
    assert rows["y"]["rate"] == pytest.approx(2 / (200 + 200))
    assert rows["z"]["rate"] == pytest.approx(1 / 80)
    assert rows["z"]["p_superseded"] == pytest.approx(1 - math.exp(-230 / 80))
    unshrunk = staleness_rows(volatility_rows(columns, visible(columns), 1, 230), 0.0, True, 1)
    assert {row["key"]: row["rate"] for row in unshrunk}["y"] == pytest.approx(1 / 200)
    assert [row["confidence"] for row in unshrunk] == ["prior"] * 4


def test_a_fact_that_lies_ahead_is_not_stale() -> None:
    columns = columns_of(record("a", "x", 10), record("b", "x", 20))
    (row,) = staleness_rows(volatility_rows(columns, visible(columns), 1, 15), 1.0, True, 1)
    assert (row["age"], row["p_superseded"]) == (-5, 0)
