"""Entries, result lists, labels."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from nanomem_core.chains import Standing
from nanomem_core.results import Entry, SearchResults, make_entry, staleness_label
from tests.memories import DAY
from tests.rows import record

ENTRY = make_entry(record("a", "x", 5, metadata={"n": 1}), Standing(True, 9, "superseded"), score=0.5)


def test_an_entry_is_a_mapping_and_its_keys_are_attributes() -> None:
    assert ENTRY.id == ENTRY["doc_id"] == "a"
    assert (ENTRY.timestamp, ENTRY.superseded, ENTRY.superseded_at, ENTRY.score) == (5, True, 9, 0.5)
    assert json.loads(json.dumps(ENTRY)) == ENTRY
    assert list(ENTRY)[-1] == "score"
    with pytest.raises(AttributeError, match="no field 'txt'; there are id, doc_id, text"):
        _ = ENTRY.txt


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_entries_and_results_can_be_copied_and_pickled(duplicate: Any) -> None:
    results = SearchResults([ENTRY], {"query": "q", "floor": 0.5, "n_above_floor": 4, "truncated": True})
    found = duplicate(results)
    assert (type(found), type(found[0])) == (SearchResults, Entry)
    assert found == results == [ENTRY]
    assert (found.summary, found.explain()) == (results.summary, results.explain())
    assert duplicate(ENTRY).text == ENTRY.text


def test_results_are_a_list_that_knows_what_was_cut() -> None:
    results = SearchResults([ENTRY], {"floor": 0.5, "n_above_floor": 21, "truncated": True})
    assert isinstance(results, list)
    assert (len(results), results.returned, results.n_above_floor, results.floor) == (1, 1, 21, 0.5)
    assert results.explain() == (
        "This answer is incomplete: showing 1 of 21 records scoring at or above your min_score of 0.50. "
        "A larger top_k shows more."
    )


def test_explain_is_silent_where_nothing_informative_was_cut() -> None:
    assert SearchResults().explain() == ""
    assert SearchResults([ENTRY], {"floor": 0.0, "n_above_floor": 101, "truncated": True}).explain() == ""
    assert SearchResults([ENTRY], {"floor": 0.5, "n_above_floor": 1, "truncated": False}).explain() == ""


def test_explain_names_four_parts_without_an_answer_at_most() -> None:
    parts = [{"query": f"part {i}", "answered": i == 0} for i in range(7)]
    results = SearchResults([ENTRY], {"sub_queries": parts, "truncated": True, "n_above_floor": None})
    assert results.unanswered_sub_queries == [f"part {i}" for i in range(1, 7)]
    assert results.explain() == (
        "This answer is incomplete: 6 of 7 parts of the question got no result: "
        "'part 1'; 'part 2'; 'part 3'; 'part 4' and 2 more. A larger top_k shows more."
    )


@pytest.mark.parametrize(
    ("days", "age"),
    [
        (-1, "at a later date"),
        (0, "today"),
        (0.99, "today"),
        (1, "1 day ago"),
        (44.9, "44 days ago"),
        (45, "1 month ago"),
        (122, "4 months ago"),
        (729, "24 months ago"),
        (730, "2.0 years ago"),
        (3653, "10.0 years ago"),
    ],
)
def test_a_label_tells_how_long_ago_a_value_was_replaced(days: float, age: str) -> None:
    now = 2000 * DAY
    hit = make_entry(record("a"), Standing(True, now - days * DAY, "superseded"))
    assert staleness_label(hit, now) == f"SUPERSEDED {age}: this held when it was written and does not hold now"
    ended = make_entry(record("a"), Standing(True, now - days * DAY, "ended"))
    assert staleness_label(ended, now).startswith(f"ENDED {age}: ")


def test_only_what_was_replaced_has_a_label() -> None:
    for standing in (Standing(False, None, "current"), Standing(None, None, "unknown")):
        assert staleness_label(make_entry(record("a"), standing), 0) == ""
    assert staleness_label({}, 0) == ""
    assert staleness_label({"superseded": True}, 0).startswith("SUPERSEDED: this held")


def test_an_entry_can_be_changed_without_changing_its_record() -> None:
    kept = record("a", metadata={"tags": ["x"], "n": 1})
    entry = make_entry(kept, Standing(None, None, "unknown"))
    entry["metadata"]["tags"].append("y")
    entry["metadata"]["n"] = 2
    assert kept.metadata == {"tags": ["x"], "n": 1}
