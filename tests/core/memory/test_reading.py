"""Standing, times, history, changes, and what the chains tell."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from nanomem_core.errors import InputError, NotFoundError
from nanomem_core.memory import Memory
from nanomem_core.pipeline.search import MODES
from nanomem_core.testing.fakes import FrozenClock
from tests.memories import DAY, EMPLOYERS, CountingEmbedder, Shelf, add_employers, texts

# Standing.


@pytest.mark.parametrize("order", ["012", "210", "102", "201", "120", "021"])
def test_the_time_decides_what_is_current_whatever_the_order_of_arrival(shelf: Shelf, order: str) -> None:
    ids = add_employers(shelf.open(), order)
    for memory in (shelf.open(), shelf.open()):
        history = memory.history(entity="employer")
        assert [entry.id for entry in history] == ids
        assert [entry.superseded for entry in history] == [True, True, False]
        assert [entry.superseded_at for entry in history] == [1000 + DAY, 1000 + 2 * DAY, None]
        hits = {hit.id: hit.superseded for hit in memory.search("Worked for Acme Corp")}
        assert hits == dict(zip(ids, [True, True, False], strict=True))
        assert [entry.id for entry in memory.current()] == ids[2:]
        assert [memory.get(id) for id in ids] == history


def test_a_back_dated_record_is_not_current(memory: Memory) -> None:
    ids = add_employers(memory)
    old = memory.add("Worked for a bakery", entity="employer", timestamp=10)
    assert texts(memory.current()) == [EMPLOYERS[2]]
    found = memory.get(old)
    assert found is not None
    assert (found.superseded, found.superseded_at, found.revision) == (True, 1000, 4)
    assert [entry.id for entry in memory.history("Worked for a bakery")] == [old, *ids]


def test_of_equal_times_the_later_arrival_is_current(memory: Memory) -> None:
    for text in ("one", "two", "three"):
        memory.add(text, entity="x", timestamp=500)
    history = memory.history(entity="x")
    assert texts(history) == ["one", "two", "three"]
    assert [(entry.superseded, entry.superseded_at) for entry in history] == [(True, 500), (True, 500), (False, None)]
    assert texts(memory.search("one", top_k=1)) == ["three"]


def test_a_value_that_comes_back_is_current_again_under_an_id_of_its_own(memory: Memory) -> None:
    ids = [memory.add(text, entity="x", timestamp=t) for t, text in enumerate(["A", "B", "A"], 1)]
    assert len(set(ids)) == 3
    assert [(entry.id, entry.superseded) for entry in memory.history("A")] == [
        (ids[0], True),
        (ids[1], True),
        (ids[2], False),
    ]
    assert memory.search("B", top_k=1)[0].id == ids[2]
    memory.delete(ids[2])
    assert texts(memory.current()) == ["B"]


def test_outside_a_chain_nothing_is_known(memory: Memory) -> None:
    id = memory.add("The sea is deep", timestamp=5)
    for entry in (memory.get(id), memory.search("sea")[0], *memory.history("sea"), *memory.records()):
        assert entry is not None
        assert (entry.superseded, entry.superseded_at, entry.status) == (None, None, "unknown")
        assert memory.staleness_label(entry) == ""


def test_a_fact_that_never_changed_is_current_after_ten_years_and_carries_no_warning(
    memory: Memory, clock: FrozenClock
) -> None:
    memory.add("Blood type B", entity="blood_type", timestamp=clock.now - 3653 * DAY)
    history = memory.history(entity="blood_type")
    assert [entry.superseded for entry in history] == [False]
    assert memory.staleness_label(history[0]) == ""


# As of, known at.


def test_as_of_answers_with_the_labels_of_that_time(memory: Memory) -> None:
    ids = add_employers(memory, "201")
    then = 1000 + 1.5 * DAY
    hits = memory.search("Worked for Cedar & Sons", as_of=then)
    assert {hit.id: (hit.superseded, hit.superseded_at) for hit in hits} == {
        ids[0]: (True, 1000 + DAY),
        ids[1]: (False, None),
    }
    assert hits[0].id == ids[1]
    assert [e.superseded for e in memory.history("Worked for Acme Corp", as_of=then)] == [True, False]
    assert [e.id for e in memory.current(as_of=then)] == [ids[1]]


def test_as_of_takes_in_the_moment_itself_and_nothing_after_it(memory: Memory) -> None:
    ids = add_employers(memory)
    assert [e.id for e in memory.history(id=ids[0], as_of=1000 + DAY)] == ids[:2]
    assert [e.id for e in memory.history(id=ids[0], as_of=1000 + DAY - 0.001)] == ids[:1]
    assert memory.search("Acme", as_of=999.999) == []
    assert memory.history(id=ids[1], as_of=1000) == []


def test_searching_as_of_a_time_is_searching_a_memory_that_holds_no_more(shelf: Shelf) -> None:
    memory, smaller = shelf.open(), shelf.another().open()
    for number in range(60):
        arguments: dict[str, Any] = {
            "entity": f"e{number % 9}" if number % 3 else None,
            "timestamp": number,
            "id": f"r{number:02}",
        }
        memory.add(f"record {number} of many", **arguments)
        if number <= 30:
            smaller.add(f"record {number} of many", **arguments)
    for mode in MODES:
        for question in ("record 7 of many", "record 40", "many", "what was record 12 before?"):
            found = memory.search(question, top_k=20, as_of=30, mode=mode)
            expected = smaller.search(question, top_k=20, as_of=30, mode=mode)
            assert [(e.id, e.superseded, e.superseded_at) for e in found] == [
                (e.id, e.superseded, e.superseded_at) for e in expected
            ]
            assert found.summary == expected.summary


def test_known_at_asks_what_the_memory_had_been_told(memory: Memory, clock: FrozenClock) -> None:
    start = clock.now
    memory.add("Oslo", entity="city", timestamp=1)
    clock.advance(DAY)
    memory.add("Bergen", entity="city", timestamp=2)
    assert texts(memory.current(known_at=start)) == ["Oslo"]
    assert texts(memory.history(entity="city", known_at=start)) == ["Oslo"]
    assert texts(memory.current(known_at=start, as_of=2)) == ["Oslo"]
    assert texts(memory.current(known_at=clock.now, as_of=1.5)) == ["Oslo"]
    assert texts(memory.search("Bergen", known_at=start)) == ["Oslo"]
    assert memory.records(known_at=start - 1) == []


# History.


def test_history_has_one_entry_for_a_fact_that_never_changed(memory: Memory) -> None:
    id = memory.add("Plays the cello", entity="instrument")
    for entries in (memory.history("cello"), memory.history(id=id), memory.history(entity="Instrument")):
        assert [(entry.id, entry.superseded) for entry in entries] == [(id, False)]


def test_history_keeps_the_newest_when_it_is_cut(memory: Memory) -> None:
    ids = add_employers(memory)
    for length, expected in {None: ids, 0: [], 1: ids[2:], 2: ids[1:], 3: ids, 4: ids, 100: ids, -1: []}.items():
        assert [entry.id for entry in memory.history(id=ids[0], max_len=length)] == expected


def test_a_floor_decides_whether_a_fact_is_found_and_drops_none_of_its_values(memory: Memory) -> None:
    add_employers(memory)
    assert len(memory.history(EMPLOYERS[0], min_score=0.9, mode="vector")) == 3
    assert memory.history("something else", min_score=0.9, mode="vector") == []


def test_history_must_be_told_which_fact(memory: Memory) -> None:
    id = memory.add("x", entity="e")
    unclear: list[dict[str, Any]] = [{}, {"query": " "}, {"query": "x", "id": id}, {"id": id, "entity": "e"}]
    for arguments in unclear:
        with pytest.raises(InputError, match="give one of query, id and entity"):
            memory.history(**arguments)
    with pytest.raises(NotFoundError) as caught:
        memory.history(id="absent")
    assert caught.value.id == "absent"
    assert memory.history(entity="absent") == []
    assert texts(memory.history("x", entity="e")) == ["x"]


# Changes.


def test_changes_are_half_open_and_the_oldest_first(memory: Memory) -> None:
    ids = add_employers(memory, "201")
    times = [1000, 1000 + DAY, 1000 + 2 * DAY]
    assert [entry.id for entry in memory.changes(times[0], times[2])] == ids[1:]
    assert [entry.id for entry in memory.changes(times[0] - 1, times[1])] == ids[:2]
    assert [entry.id for entry in memory.changes(times[1], times[1])] == []
    assert [entry.id for entry in memory.changes(0, limit=2)] == ids[:2]
    assert memory.changes(0, limit=0) == []
    with pytest.raises(InputError, match="until"):
        memory.changes(5, 4)


def test_a_change_names_what_it_replaced_though_that_lies_before_the_window(memory: Memory) -> None:
    ids = add_employers(memory, "210")
    note = memory.add("A note", timestamp=1000 + DAY)
    found = [(e.id, e.change, e.at, e.previous_id, e.previous_text) for e in memory.changes(1000)]
    assert found == [
        (ids[1], "changed", 1000 + DAY, ids[0], EMPLOYERS[0]),
        (note, "added", 1000 + DAY, None, None),
        (ids[2], "changed", 1000 + 2 * DAY, ids[1], EMPLOYERS[1]),
    ]


def test_an_end_is_a_change_unless_a_successor_came_first(memory: Memory) -> None:
    first = memory.add("Garage in the yard", entity="garage", timestamp=100)
    second = memory.add("Garage in the street", entity="garage", timestamp=200)
    memory.retract(first, at=300)
    memory.retract(second, at=400)
    assert [(entry.id, entry.change, entry.at) for entry in memory.changes(150)] == [
        (second, "changed", 200),
        (second, "ended", 400),
    ]
    assert [entry.status for entry in memory.history(id=first)] == ["superseded", "ended"]


def test_changes_need_no_embedder(shelf: Shelf) -> None:
    embedder = CountingEmbedder()
    memory = shelf.open(embedder)
    add_employers(memory)
    embedder.encoded.clear()
    reader = shelf.open(embedder)
    reader.changes(0)
    reader.current()
    reader.records()
    reader.volatility()
    reader.history(entity="employer")
    reader.search("Acme", mode="text")
    assert (embedder.encoded, embedder.questions) == ([], [])


# Volatility and staleness.


def test_volatility_counts_the_changes_of_each_chain(memory: Memory, clock: FrozenClock) -> None:
    for day in (300, 155, 10):
        memory.add(f"employer {day}", {"user_id": "ann"}, entity="employer", timestamp=clock.now - day * DAY)
    for day in (900, 500):
        memory.add(f"phone {day}", entity="phone", timestamp=clock.now - day * DAY)
    memory.add("once", entity="once", timestamp=clock.now - 999 * DAY)
    memory.add("outside a chain", timestamp=1)
    phone, employer = memory.volatility()
    assert (phone["entity"], phone["user_id"], phone["n_revisions"]) == ("phone", None, 2)
    assert employer == {
        "key": "employer\x1fann\x1f",
        "user_id": "ann",
        "project": None,
        "entity": "employer",
        "declared": True,
        "n_revisions": 3,
        "first_ts": clock.now - 300 * DAY,
        "last_ts": clock.now - 10 * DAY,
        "age": 10 * DAY,
        "intervals": [145 * DAY, 145 * DAY],
        "mean_interval": 145 * DAY,
        "median_interval": 145 * DAY,
    }
    assert [row["entity"] for row in memory.volatility(1)] == ["once", "phone", "employer"]
    once = memory.volatility(1, entity="once")[0]
    assert (once["intervals"], once["mean_interval"], once["median_interval"]) == ([], None, None)
    assert memory.volatility(now=clock.now + DAY, entity="employer")[0]["age"] == 11 * DAY
    assert memory.volatility(as_of=clock.now - 100 * DAY, entity="employer")[0]["n_revisions"] == 2


def test_volatility_is_the_same_after_opening_again(shelf: Shelf) -> None:
    memory = shelf.open()
    for number in range(60):
        memory.add(f"v{number}", entity=f"e{number % 2}", timestamp=number**2)
    assert shelf.open().volatility() == memory.volatility()


def test_staleness_gives_a_probability_only_on_the_assumption_it_needs(memory: Memory, clock: FrozenClock) -> None:
    for day in (40, 30, 20, 10):
        memory.add(f"phone {day}", entity="phone", timestamp=clock.now - day * DAY)
    for day in (400, 300):
        memory.add(f"job {day}", entity="job", timestamp=clock.now - day * DAY)
    phone, job = sorted(memory.staleness(), key=lambda row: row["entity"], reverse=True)
    assert (phone["p_superseded"], job["p_superseded"]) == (None, None)
    # Its own three intervals of 10 days and one of the same entity's mean.
    assert phone["rate"] == pytest.approx(1 / (10 * DAY))
    assert (phone["confidence"], job["confidence"]) == ("weak", "prior")
    assumed = {row["entity"]: row for row in memory.staleness(assume_memoryless=True)}
    assert assumed["phone"]["p_superseded"] == pytest.approx(1 - np.exp(-1))
    assert assumed["job"]["p_superseded"] == pytest.approx(1 - np.exp(-3))
    assert [row["entity"] for row in memory.staleness()] == ["job", "phone"]
    with pytest.raises(InputError, match="shrink"):
        memory.staleness(shrink=-1)


def test_staleness_of_values_of_one_time_has_no_rate(memory: Memory) -> None:
    memory.add_many({"text": f"x{i}", "entity": "x", "timestamp": 5} for i in range(2))
    assert memory.staleness()[0]["rate"] is None


# Listing.


def test_records_come_in_pages(memory: Memory) -> None:
    memory.add_many(f"r{i}" for i in range(10))
    assert texts(memory.records(limit=3)) == ["r0", "r1", "r2"]
    assert texts(memory.records(limit=3, offset=8)) == ["r8", "r9"]
    assert texts(memory.records(offset=9)) == ["r9"]
    assert memory.records(limit=-1) == []
    assert texts(memory.records(offset=-5, limit=1)) == ["r0"]


def test_current_leaves_out_chains_whose_newest_value_fails_the_filter(memory: Memory) -> None:
    memory.add("Oslo", {"sure": True}, entity="city", timestamp=1)
    memory.add("Bergen", {"sure": False}, entity="city", timestamp=2)
    assert memory.current(filter={"sure": True}) == []
    assert texts(memory.current(filter={"sure": False})) == ["Bergen"]


def test_entities_lists_every_chain_with_its_newest_value(memory: Memory) -> None:
    add_employers(memory, "120")
    memory.add("Oslo", {"user_id": "ann", "project": "p"}, entity="city", timestamp=7)
    assert memory.entities() == [
        {
            "entity": "city",
            "user_id": "ann",
            "project": "p",
            "declared": True,
            "n_revisions": 1,
            "last_ts": 7,
            "text": "Oslo",
        },
        {
            "entity": "employer",
            "user_id": None,
            "project": None,
            "declared": True,
            "n_revisions": 3,
            "last_ts": 1000 + 2 * DAY,
            "text": EMPLOYERS[2],
        },
    ]


def test_inspect_and_stats_count_what_is_there(memory: Memory) -> None:
    add_employers(memory)
    memory.add("a talk", {"topic": "tea"}, source="chat", kind="episode")
    memory.delete(text_exact=EMPLOYERS[0])
    assert memory.inspect() == {
        "total_documents": 3,
        "kinds": {"fact": 2, "episode": 1},
        "sources": {"user_input": 2, "chat": 1},
        "metadata_summary": {"topic": {"tea": 1}},
    }
    facts = {"total_documents": 2, "chains": 1, "embedder": "hash-16", "embed_dim": 16, "mode": "hybrid"}
    assert facts.items() <= memory.stats().items()
    assert json.dumps(memory.stats())
