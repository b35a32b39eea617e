"""Searching."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanomem_core.errors import InputError
from nanomem_core.interfaces import Embedder
from nanomem_core.memory import Memory
from nanomem_core.pipeline.search import MODES
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.fakes import DictStorage, HashEmbedder
from tests.memories import DAY, CountingEmbedder, Shelf, WordTagger, add_employers, texts

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


def test_where_nothing_is_found_it_is_told_what_was_not_searched(memory: Memory) -> None:
    assert memory.search("tea").other_kinds == {}
    for text in ("tea in the hut", "coffee in the hut"):
        memory.add(text, kind="episode", source="conversation")
    memory.add("tea, again", kind="message", source="conversation", timestamp=DAY)
    found = memory.search("tea")
    assert found.other_kinds == {"message": 1, "episode": 2}
    assert "1 of the kind 'message', 2 of the kind 'episode'" in found.explain()
    assert memory.search("Where is tea? And what is coffee?").explain() == found.explain()
    # What is left out for another reason than its kind is no news.
    assert memory.search("tea", as_of=DAY - 1).other_kinds == {}
    assert memory.search("tea", filter={"source": "cli"}).other_kinds == {}
    assert memory.search(" ").other_kinds == memory.search("tea", 0).other_kinds == {}
    assert memory.search("zebra", kind=None, mode="text").other_kinds == {}
    memory.add("I like tea", timestamp=0)
    assert memory.search("tea").other_kinds == {}
    assert memory.search("zebra", mode="text").other_kinds == {"message": 1, "episode": 2}
    assert memory.search("zebra", kind="episode", mode="text").other_kinds == {"message": 1, "fact": 1}


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
