"""The meaning of filters."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.errors import FilterError, TimeError
from nanomem_core.filters import ABSENT, MISSING, parse_filter, record_value
from nanomem_core.records import Record
from nanomem_core.tokens import Tokenizer
from nanomem_core.view import View
from tests.rows import columns_of, record

STORED = record(
    "r1",
    "city",
    100.0,
    source="cli",
    metadata={"n": 5, "f": 5.0, "s": "5", "t": True, "null": None, "tags": ["work", 7], "d": {"a": 1}, "e": []},
)


@pytest.mark.parametrize(
    "spec",
    [
        {"n": 5},
        {"n": "5"},
        {"n": 5.0},
        {"f": 5},
        {"f": "5"},
        {"s": 5},
        {"t": True},
        {"t": "True"},
        {"null": None},
        {"tags": "work"},
        {"tags": "7"},
        {"tags": ["home", "work"]},
        {"n": [4, 5]},
        {"n": (5,)},
        {"n": {5, 6}},
        {"n": {"$eq": 5}},
        {"n": {"$ne": 6}},
        {"absent": {"$ne": 6}},
        {"absent": {"$nin": [6]}},
        {"absent": {"$exists": False}},
        {"null": {"$exists": True}},
        {"n": {"$in": ["5"]}},
        {"n": {"$gt": 4, "$lte": 5}},
        {"n": {"$gte": 5, "$lt": 5.1}},
        {"s": {"$gt": "4"}},
        {"tags": {"$gte": 7}},
        {"timestamp": 100},
        {"valid_from": {"$lt": 101}},
        {"valid_from": {"$lt": "1970-01-01T00:01:41Z", "$gte": date(1970, 1, 1)}},
        {"timestamp": {"$lte": datetime(1970, 1, 1, 0, 1, 40, tzinfo=UTC)}},
        {"recorded_at": {"$gt": "1970-01-01"}},
        {"entity": "city"},
        {"id": "r1", "kind": "fact", "source": "cli", "revision": 1, "version": 1},
        {"$or": [{"n": 1}, {"s": "5"}]},
        {"$and": [{"n": 5}, {"$not": {"s": "6"}}]},
        {"$not": {"absent": 1}},
    ],
)
def test_a_filter_that_matches(spec: dict[str, Any]) -> None:
    assert _both(spec, STORED)


@pytest.mark.parametrize(
    "spec",
    [
        {"n": 6},
        {"n": True},
        {"t": 1},
        {"absent": None},
        {"null": "None"},
        {"s": None},
        {"tags": "wor"},
        {"e": []},
        {"e": "x"},
        {"n": []},
        {"n": {"$in": []}},
        {"n": {"$nin": [5]}},
        {"absent": {"$exists": True}},
        {"absent": {"$gt": 0}},
        {"s": {"$gt": 4}},
        {"n": {"$gt": "4"}},
        {"t": {"$gte": 0}},
        {"null": {"$gte": 0}},
        {"valid_to": {"$exists": True}},
        {"valid_to": {"$lt": "2026-01-01"}},
        {"n": 5, "s": "6"},
        {"$or": [{"n": 1}, {"s": "6"}]},
        {"$not": {"n": 5}},
    ],
)
def test_a_filter_that_does_not_match(spec: dict[str, Any]) -> None:
    assert not _both(spec, STORED)


def _both(spec: dict[str, Any], stored: Record) -> bool:
    """What `matches` says, after making sure that the mask says the same."""
    parsed = parse_filter(spec)
    assert parsed is not None
    verdict = parsed.matches(stored)
    columns = columns_of(record("before"), stored)
    assert bool(View(lambda: 1, Tokenizer("none"), None, lambda id: None).filter_mask(columns, parsed)[1]) is verdict
    return verdict


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([], "expected a mapping such as .*found list"),
        ({1: 2}, "keys are texts; found 1"),
        ({"$nor": []}, "unknown operator '\\$nor'"),
        ({"a": {"$gtt": 1}}, "a: unknown operator '\\$gtt'; known are \\$eq"),
        ({"a": {"b": 1}}, "unknown operator 'b'"),
        ({"a": {}}, "a: expected a value or an operator"),
        ({"a": {"$in": "xy"}}, "\\$in takes a list; found 'xy'"),
        ({"a": {"$gt": None}}, "\\$gt takes a number or a text; found None"),
        ({"a": {"$gt": True}}, "\\$gt takes a number or a text"),
        ({"a": {"$exists": 1}}, "\\$exists takes True or False; found 1"),
        ({"$or": []}, "\\$or takes a list of at least one filter"),
        ({"$and": {"a": 1}}, "\\$and takes a list"),
        ({"$or": [{}]}, "\\$or: expected a filter with at least one key"),
        ({"$not": {}}, "\\$not: expected a filter with at least one key"),
        ({"$not": [{"a": 1}]}, "\\$not: expected a mapping"),
    ],
)
def test_a_malformed_filter_is_refused_by_name(spec: Any, message: str) -> None:
    with pytest.raises(FilterError, match=f"^where: .*{message}" if isinstance(spec, dict) else message):
        parse_filter(spec, "where")


def test_a_time_field_is_compared_with_times_only() -> None:
    with pytest.raises(TimeError, match=r"^where: timestamp: \$gt: expected a number of unix seconds.*found 'soon'"):
        parse_filter({"timestamp": {"$gt": "soon"}}, "where")


def test_no_filter_is_none() -> None:
    assert parse_filter(None) is None
    assert parse_filter({}) is None


def test_the_value_of_a_key_is_a_field_or_metadata() -> None:
    assert record_value(STORED, "source") == "cli"
    assert record_value(STORED, "tags") == ["work", 7]
    assert record_value(STORED, "absent") is MISSING
    assert record_value(record("x"), "entity") is MISSING
    assert ABSENT < 0


KEYS = ("a", "b", "source", "entity", "timestamp")
values = st.sampled_from([None, True, False, 0, 1, 2.5, -1, "0", "1", "x", "", "True"])
stored_values = values | st.lists(values, max_size=3) | st.just({"x": 1})
conditions = (
    values
    | st.lists(values, max_size=3)
    | st.dictionaries(st.sampled_from(["$eq", "$ne"]), values | st.lists(values, max_size=2), min_size=1)
    | st.dictionaries(st.sampled_from(["$in", "$nin"]), st.lists(values, max_size=3), min_size=1)
    | st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), st.sampled_from([0, 1.5, "0", "2"]), min_size=1)
    | st.booleans().map(lambda exists: {"$exists": exists})
)
plain = st.dictionaries(st.sampled_from(KEYS), conditions, min_size=1, max_size=3)
filters = st.recursive(
    plain,
    lambda inner: st.lists(inner, min_size=1, max_size=3).flatmap(
        lambda parts: st.sampled_from([{"$and": parts}, {"$or": parts}, {"$not": parts[0]}])
    ),
    max_leaves=4,
)
rows = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(["a", "b"]), stored_values, max_size=2),
        st.sampled_from(["cli", "x", "1"]),
        st.sampled_from([None, "x", "true"]),
        st.sampled_from([0.0, 1.0, 2.5]),
    ),
    max_size=8,
)


@given(rows, st.lists(filters, min_size=1, max_size=3))
def test_the_mask_over_rows_says_what_matches_says_of_each_record(
    rows: list[tuple[dict[str, Any], str, str | None, float]], specs: list[dict[str, Any]]
) -> None:
    records = [
        record(str(number), entity, at, source=source, metadata=metadata)
        for number, (metadata, source, entity, at) in enumerate(rows)
    ]
    view, columns = View(lambda: 1, Tokenizer("none"), None, lambda id: None), columns_of(*records)
    for spec in specs:
        parsed = parse_filter(spec)
        assert parsed is not None
        mask = view.filter_mask(columns, parsed)
        assert mask.dtype == np.bool_
        assert mask.tolist() == [parsed.matches(one) for one in records]
