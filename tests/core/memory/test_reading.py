"""Searching, history, times, changes, and what the chains tell."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanomem_core.errors import InputError, NotFoundError
from nanomem_core.interfaces import Embedder
from nanomem_core.memory import Memory
from nanomem_core.pipeline.search import MODES
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.fakes import DictStorage, FrozenClock, HashEmbedder
from tests.memories import DAY, CountingEmbedder, Shelf, WordTagger, texts

EMPLOYERS = ("Worked for Acme Corp", "Worked for Birch Labs", "Worked for Cedar & Sons")


def add_employers(memory: Memory, order: str = "012", **options: Any) -> list[str]:
    """Three employers, one a day from time 1000 on, written in `order`; the ids by time."""
    ids = {
        number: memory.add(EMPLOYERS[int(number)], entity="employer", timestamp=1000 + int(number) * DAY, **options)
        for number in order
    }
    return [ids[number] for number in sorted(ids)]


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


# Search and chains.


def test_a_declared_chain_is_led_by_its_current_value_though_that_never_names_the_attribute(
    shelf: Shelf, embedder: Embedder
) -> None:
    memory = shelf.open(embedder)
    steps = (
        "My desk is on the third floor of Kestrel House",
        "Moved across to the annexe by the canal",
        "Now parked in the Maple Wharf building",
    )
    for number, text in enumerate(steps):
        memory.add(text, entity="desk_location", timestamp=number)
    memory.add_many([f"Kestrel House desk rule {i}: keep the third floor tidy" for i in range(4)])
    questions = ("where is my desk", "which floor is my desk on", "My desk is on the third floor of Kestrel House")
    for mode in MODES:
        for question in questions:
            hits = [hit for hit in memory.search(question, top_k=8, mode=mode) if hit.entity]
            assert hits[0].text == steps[2], (mode, question)
            assert hits[0].superseded is False
            assert all(hit.superseded for hit in hits[1:])
            assert memory.history(question, entity="desk_location", mode=mode)[-1].id == hits[0].id


def test_an_inferred_chain_keeps_the_order_of_similarity_and_is_labelled(shelf: Shelf, embedder: Embedder) -> None:
    memory = shelf.open(embedder, taggers=[WordTagger({"work": "employer"})])
    old = memory.add("I work at Acme Corp", timestamp=1)
    new = memory.add("Since Monday the Birch people pay me for my work", timestamp=2)
    hits = memory.search("I work at Acme Corp", mode="vector")
    assert [(hit.id, hit.superseded) for hit in hits] == [(old, True), (new, False)]
    assert [hit.cosine for hit in hits] == sorted((hit.cosine for hit in hits), reverse=True)


@settings(max_examples=60)
@given(st.data())
def test_search_and_history_agree_on_every_declared_chain_for_every_wording(data: st.DataObject) -> None:
    records = data.draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from([None, "ann", "bob"]), st.booleans()),
            min_size=1,
            max_size=25,
        )
    )
    tagger = WordTagger({"an entity": "guessed", "of e0": "e0"})
    memory = Memory(DictStorage(), HashEmbedder(8), taggers=[tagger], plugins=PluginManager())
    for number, (entity, time, user, declares) in enumerate(records):
        memory.add(
            f"text {number}" if declares else f"text {number} of {'e0' if entity == 0 else 'an entity'}",
            {"user_id": user} if user else None,
            entity=f"e{entity}" if declares else None,
            timestamp=time,
        )
    question = data.draw(st.sampled_from(["what", "text 1", "the text of e2", "entity", "漢字"]))
    options: dict[str, Any] = {
        "mode": data.draw(st.sampled_from(MODES)),
        "as_of": data.draw(st.sampled_from([None, 0, 2, 5])),
        "filter": data.draw(st.sampled_from([None, {"user_id": "ann"}, {"user_id": {"$ne": "bob"}}])),
    }
    hits = memory.search(question, top_k=data.draw(st.integers(1, 30)), temporal_direction="present", **options)
    first_of: dict[tuple[str, Any], Any] = {}
    for hit in hits:
        if hit.entity is not None:
            first_of.setdefault((hit.entity, hit.metadata.get("user_id")), hit)
    del options["filter"], options["mode"]
    for (name, owner), hit in first_of.items():
        history = memory.history(id=hit.id, as_of=options["as_of"])
        assert [entry.superseded for entry in history] == [True] * (len(history) - 1) + [False]
        assert {(entry.entity, entry.metadata.get("user_id")) for entry in history} == {(name, owner)}
        if any(entry.declared for entry in history):
            assert hit.id == history[-1].id


@pytest.mark.parametrize(
    ("question", "direction", "expected"),
    [
        ("where do I work", "current", 2),
        ("where did I work before", "current", 1),
        ("where did I work previously?", "current", 1),
        ("where did I first work", "current", 0),
        ("what was my original employer", "current", 0),
        ("where did I use to work", "current", 1),
        ("where did I work before", "newest", 2),
        ("where did I work before", "present", 2),
        ("where do I work", "previous", 1),
        ("where do I work", "oldest", 0),
        ("where do I work", "historical", 0),
    ],
)
def test_a_question_about_the_past_is_led_by_the_past_value(
    memory: Memory, question: str, direction: str, expected: int
) -> None:
    ids = add_employers(memory)
    hits = memory.search(question, temporal_direction=direction)
    assert hits[0].id == ids[expected]
    assert len(hits) == 3


def test_two_users_with_the_same_words_have_chains_of_their_own(memory: Memory) -> None:
    for user, values in {"ann": ["Oslo", "Bergen"], "bob": ["Bergen", "Oslo"]}.items():
        for number, value in enumerate(values):
            memory.add(f"Lives in {value}", {"user_id": user}, entity="city", timestamp=number)
    for user, value in {"ann": "Bergen", "bob": "Oslo"}.items():
        own = {"user_id": user}
        hits = memory.search("Lives in Oslo", filter=own, top_k=9)
        assert [hit.superseded for hit in hits] == [False, True]
        assert hits[0].text == f"Lives in {value}"
        assert all(hit.metadata == own for hit in hits)
        assert {entry.metadata["user_id"] for entry in memory.history("Lives in Oslo", filter=own)} == {user}
        assert texts(memory.current(filter=own)) == [f"Lives in {value}"]
    with pytest.raises(InputError, match=r"2 chains have the entity 'city' .*ann, bob"):
        memory.history(entity="city")


def test_two_scopes_share_nothing(memory: Memory) -> None:
    for user in ("ann", "ann2", "an"):
        for agent in ("default", "x"):
            memory.add(f"Lives in {user} {agent}", entity="city", user=user, agent=agent)
    for user in ("ann", "ann2", "an"):
        for agent in ("default", "x"):
            scope: dict[str, str] = {"user": user, "agent": agent}
            expected = [f"Lives in {user} {agent}"]
            assert texts(memory.search("Lives in", top_k=9, **scope)) == expected  # type: ignore[arg-type]
            assert texts(memory.history(entity="city", **scope)) == expected  # type: ignore[arg-type]
            assert texts(memory.current(**scope)) == expected  # type: ignore[arg-type]
            assert texts(memory.changes(0, **scope)) == expected  # type: ignore[arg-type]
            assert memory.entities(**scope)[0]["n_revisions"] == 1  # type: ignore[arg-type]
    assert memory.records() == []
    id = memory.records(user="ann")[0].id
    assert memory.get(id) is None
    assert memory.delete(id) == 0
    assert memory.delete(id, user="ann") == 1


# Search, in general.


def test_search_is_exact(memory: Memory) -> None:
    embedder = HashEmbedder()
    statements = [f"statement {i}" for i in range(700)]
    memory.add_many(statements)
    matrix = embedder.embed_batch(statements)
    for question in ("one", "two", "statement 5"):
        cosines = matrix @ embedder.embed_query(question)
        expected = np.argsort(-cosines, kind="stable")[:25]
        hits = memory.search(question, top_k=25, mode="vector")
        assert texts(hits) == [statements[i] for i in expected]
        # The arena keeps vectors in half precision.
        np.testing.assert_allclose([hit.cosine for hit in hits], cosines[expected], atol=1e-3)


def test_a_filter_is_applied_before_the_cut(memory: Memory) -> None:
    memory.add_many({"text": f"tea {i}", "metadata": {"n": i}} for i in range(300))
    for mode in MODES:
        hits = memory.search("tea 0", top_k=5, mode=mode, filter={"n": {"$gte": 297}})
        assert {hit.metadata["n"] for hit in hits} == {297, 298, 299}
        assert (hits.n_above_floor, hits.truncated) == (3, False)
    assert memory.search("tea", filter={"absent": 1}) == []


def test_a_filter_sees_every_write_since(memory: Memory) -> None:
    id = memory.add("tea", {"kind_of": "green"})
    where = {"kind_of": "green"}
    assert len(memory.search("tea", filter=where)) == 1
    memory.update(id, metadata={"kind_of": "black"})
    assert memory.search("tea", filter=where) == []
    assert len(memory.search("tea", filter={"kind_of": {"$ne": "green"}})) == 1
    memory.add("tea too", where)
    assert texts(memory.search("tea", filter=where)) == ["tea too"]


def test_how_many_are_asked_for_is_how_many_come(memory: Memory) -> None:
    memory.add_many(f"tea {i}" for i in range(80))
    assert [len(memory.search("tea", top_k=k)) for k in (-1, 0, 1, 60, 100)] == [0, 0, 1, 60, 80]
    assert len(memory.search("tea")) == 3
    assert memory.search(" \n") == []
    assert memory.search("tea", top_k=0).summary["truncated"] is False


def test_a_floor_is_a_cosine_in_both_modes_that_have_one(memory: Memory) -> None:
    memory.add_many(f"tea {i}" for i in range(50))
    for mode in ("vector", "hybrid"):
        hits = memory.search("tea 7", top_k=3, min_score=0.3, mode=mode)
        everything = memory.search("tea 7", top_k=50, mode=mode)
        above = sum(hit.cosine >= 0.3 for hit in everything)
        assert 3 < above == hits.n_above_floor
        assert hits.truncated
        assert f"showing 3 of {above} records scoring at or above your min_score of 0.30" in hits.explain()
        assert everything.explain() == ""


def test_every_part_of_a_question_is_answered_in_turn(memory: Memory) -> None:
    memory.add("I drive a red van", entity="car")
    memory.add("I live in Oslo", entity="city")
    memory.add("I live near the sea")
    results = memory.search("where do I live and what do I drive?", top_k=2, mode="text")
    assert {hit.entity for hit in results} == {"car", "city"}
    assert [part["query"] for part in results.sub_queries] == ["where do I live", "what do I drive"]
    assert {hit.sub_query for hit in results} == {"where do I live", "what do I drive"}
    assert (results.n_above_floor, results.n_distinct_found, results.truncated) == (None, 3, True)
    one = memory.search("where do I live? what is blue?", top_k=1, mode="text")
    assert one.unanswered_sub_queries == ["what is blue"]
    assert "1 of 2 parts of the question got no result: 'what is blue'" in one.explain()
    whole = memory.search("where do I live and what do I drive?", decompose=False)
    assert whole.sub_queries == []


def test_the_first_hit_does_not_depend_on_the_order_of_the_parts(memory: Memory) -> None:
    memory.add_many(["I live in Oslo", "I drive a red van"])
    first = memory.search("I live in Oslo; some other question", top_k=1, mode="vector")
    second = memory.search("some other question; I live in Oslo", top_k=1, mode="vector")
    assert texts(first) == texts(second) == ["I live in Oslo"]


def test_an_unknown_mode_or_direction_is_refused(memory: Memory) -> None:
    with pytest.raises(InputError, match="mode: expected one of vector, text, hybrid; found 'fuzzy'"):
        memory.search("x", mode="fuzzy")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="temporal_direction: expected one of current"):
        memory.search("x", temporal_direction="backwards")
    with pytest.raises(InputError, match="kind"):
        memory.search("x", kind="thought")


def test_a_hit_is_json_with_a_fixed_set_of_keys(memory: Memory) -> None:
    memory.add("tea", {"a": [1, {"b": None}]}, entity="drink")
    memory.add("coffee", entity="drink")
    for mode in MODES:
        hits = memory.search("tea", mode=mode, top_k=5)
        assert json.loads(json.dumps(hits)) == hits
        assert json.loads(json.dumps(hits.summary)) == hits.summary
        assert set(hits[0]) == {
            *("id", "doc_id", "text", "kind", "source", "metadata", "entity", "declared", "timestamp", "valid_to"),
            *("recorded_at", "revision", "version", "superseded", "superseded_at", "status"),
            *("score", "cosine", "bm25", "passage"),
        }


def test_kinds_are_searched_apart(memory: Memory) -> None:
    for kind in ("fact", "episode", "message", "summary"):
        memory.add(f"tea as {kind}", kind=kind)
    assert texts(memory.search("tea")) == ["tea as fact"]
    assert texts(memory.search("tea", kind="episode")) == ["tea as episode"]
    assert len(memory.search("tea", kind=None, top_k=9)) == 4


def test_a_question_that_names_an_attribute_lifts_its_chain_in_hybrid_mode(shelf: Shelf) -> None:
    memory = shelf.open(taggers=[WordTagger({"mobile": "phone_number"})])
    own = memory.add("Call 555 0199", entity="phone_number")
    memory.add_many([f"statement {i}" for i in range(60)])
    assert memory.search("what is my mobile")[0].id == own
    assert own not in [hit.id for hit in shelf.open().search("what is my mobile", top_k=5)]


def test_a_question_that_names_an_attribute_nobody_knows_is_answered_by_the_best_hit(shelf: Shelf) -> None:
    memory = shelf.open(taggers=[WordTagger({"boat": "boat", "car": "car"})])
    memory.add("The car is red")
    memory.add_many(f"statement {i}" for i in range(9))
    plain = shelf.open()
    assert texts(memory.search("boat", top_k=9)) == texts(plain.search("boat", top_k=9))
    # Of the attributes that a question may ask about, the first that is known counts.
    question = "is there a boat, or which colour has it, the car"
    assert memory.search(question, decompose=False, mode="hybrid")[0].text == "The car is red"


def test_searching_10000_entities_asks_the_tagger_once_for_each_name(shelf: Shelf) -> None:
    class CountingTagger(WordTagger):
        calls = 0

        def same(self, entity: str, other: str) -> bool:
            self.calls += 1
            return entity == other

    tagger = CountingTagger({"attribute 4321": "attribute_4321"})
    memory = shelf.open(CountingEmbedder(), taggers=[tagger])
    memory.add_many(
        {"text": f"value {version} of {number}", "entity": f"attribute {number}", "timestamp": version}
        for version in (1, 2)
        for number in range(10_000)
    )
    for _ in range(3):
        hits = memory.search("tell me attribute 4321", top_k=5)
        assert hits[0].text == "value 2 of 4321"
    assert tagger.calls == 10_000
    memory.add("value 3 of 4321", entity="attribute 4321", timestamp=3)
    memory.add("another", entity="another")
    assert memory.search("tell me attribute 4321", top_k=5)[0].text == "value 3 of 4321"
    assert tagger.calls == 10_001
    assert texts(memory.history(entity="attribute 17")) == ["value 1 of 17", "value 2 of 17"]
    assert len(memory.current()) == 10_001
    assert tagger.calls == 10_001


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
