"""Adding, correcting, ending."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nanomem_core.errors import ConflictError, EmbedderError, InputError, TimeError
from nanomem_core.interfaces import Embedder
from nanomem_core.memory import Memory
from nanomem_core.testing.fakes import FrozenClock, HashEmbedder
from tests.memories import DAY, CountingEmbedder, Shelf, WordTagger, texts


def test_what_was_added_is_found_at_once_and_after_opening_again(shelf: Shelf, embedder: Embedder) -> None:
    memory = shelf.open(embedder)
    id = memory.add("The staging database listens on port 5433", {"team": "ops"}, source="cli")
    for opened in (memory, shelf.open(embedder)):
        hit = opened.search("The staging database listens on port 5433")[0]
        assert (hit.id, hit.doc_id, hit.source, hit.metadata) == (id, id, "cli", {"team": "ops"})
        assert opened.get(id) == {key: hit[key] for key in opened.get(id) or {}}


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_text_stores_nothing_and_has_no_id(memory: Memory, text: str) -> None:
    assert memory.add(text) == ""
    assert memory.add_many([text, "x", text]) == ["", memory.records()[0].id, ""]
    assert texts(memory.records()) == ["x"]


def test_a_text_is_stripped_and_a_broken_emoji_mended(memory: Memory) -> None:
    id = memory.add("  half an emoji \ud83e, and a whole one \ud83e\uded6 \n")
    found = memory.get(id)
    assert found is not None
    assert found.text == "half an emoji \ufffd, and a whole one \U0001fad6"
    assert memory.search("half \ud83e an emoji")


def test_equal_texts_are_records_of_their_own(memory: Memory) -> None:
    first, second = memory.add("Tea"), memory.add("Tea")
    assert first != second
    memory.delete(first)
    assert [entry.id for entry in memory.records()] == [second]


def test_an_id_that_is_taken_is_refused_and_changes_nothing(memory: Memory) -> None:
    memory.add("first", id="a")
    with pytest.raises(ConflictError, match="already exists") as caught:
        memory.add_many(["new", {"text": "second", "id": "a"}])
    assert caught.value.id == "a"
    assert texts(memory.records()) == ["first"]


def test_the_callers_metadata_stays_as_it_was(memory: Memory) -> None:
    given: dict[str, Any] = {"entity": "city", "tags": {"b", "a"}, "pair": (1, 2), "odd": math.inf}
    before = dict(given)
    id = memory.add("Bergen", given)
    assert given == before
    found = memory.get(id)
    assert found is not None
    assert found.metadata == {"tags": ["a", "b"], "pair": [1, 2], "odd": "inf"}
    assert (found.entity, found.declared) == ("city", True)


@pytest.mark.parametrize("key", ["id", "text", "source", "score", "valid_from", "superseded"])
def test_a_metadata_key_that_would_hide_a_field_is_refused(memory: Memory, key: str) -> None:
    with pytest.raises(InputError, match=f"'{key}' is reserved"):
        memory.add("x", {key: 1})
    id = memory.add("x")
    with pytest.raises(InputError, match=f"'{key}' is reserved"):
        memory.update(id, metadata={key: 1})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"text": 5}, InputError),
        ({"timestamp": math.nan}, TimeError),
        ({"timestamp": 1_773_140_400_000}, TimeError),
        ({"timestamp": "soon"}, TimeError),
        ({"timestamp": 100, "valid_to": 99}, InputError),
        ({"revision": 0}, InputError),
        ({"revision": 2**31}, InputError),
        ({"revision": "2"}, InputError),
        ({"entity": "…"}, InputError),
        ({"entity": "x" * 200}, InputError),
        ({"id": ""}, InputError),
        ({"id": "a\0b"}, InputError),
        ({"kind": "purged"}, InputError),
        ({"kind": "thought"}, InputError),
        ({"metadata": {"user_id": "a\x1fb"}}, InputError),
        ({"metadata": [1]}, InputError),
    ],
)
def test_a_malformed_argument_is_refused_before_anything_is_stored(
    memory: Memory, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        memory.add(**{"text": "x"} | arguments)
    with pytest.raises(error):
        memory.add_many(["good", {"text": "x"} | arguments])
    assert memory.records(kind=None) == []


@pytest.mark.parametrize("item", [5, None, {}, {"txt": "x"}, {"text": "x", "time": 5}])
def test_an_item_of_add_many_that_has_another_form_is_named(memory: Memory, item: Any) -> None:
    with pytest.raises(InputError, match="item 1: "):
        memory.add_many(["good", item])
    assert memory.records() == []


def test_add_many_is_one_commit_and_tells_its_progress(memory: Memory) -> None:
    told: list[tuple[int, int]] = []
    ids = memory.add_many((f"text {i}" for i in range(300)), progress=lambda done, total: told.append((done, total)))
    assert [entry.id for entry in memory.records()] == ids
    assert memory.storage.head(memory.scope) == 1
    if memory.storage.keeps_vectors:
        assert told == [(256, 300), (300, 300)]


def test_vectors_of_the_caller_are_used_and_checked(shelf: Shelf) -> None:
    embedder = CountingEmbedder()
    memory = shelf.open(embedder)
    if not memory.storage.keeps_vectors:
        pytest.skip("the store keeps no vectors")
    memory.add_many([{"text": "anything", "vectors": 7 * embedder.embed("the sea")}])
    assert embedder.encoded == ["the sea"]
    assert memory.search("the sea", mode="vector")[0].cosine == pytest.approx(1, abs=1e-3)
    for bad in (np.zeros(16), np.ones(17), [math.nan] * 16):
        with pytest.raises(InputError, match="item 0: vectors"):
            memory.add_many([{"text": "y", "vectors": bad}])
    assert len(memory.records()) == 1


def test_an_embedder_that_breaks_its_contract_stops_the_write(shelf: Shelf) -> None:
    class Broken(HashEmbedder):
        def encode(self, texts: Any) -> Any:
            return np.full((len(texts), 16), math.nan)

    memory = shelf.open(Broken())
    if not memory.storage.keeps_vectors:
        pytest.skip("texts are embedded when they are searched")
    with pytest.raises(EmbedderError, match="finite"):
        memory.add("x")
    assert memory.records() == []


def test_a_token_of_200000_characters_is_one_value_and_is_found(shelf: Shelf, embedder: Embedder) -> None:
    memory = shelf.open(embedder)
    token = "x" * 200_000
    first = memory.add("short", entity="blob", timestamp=1)
    id = memory.add(f"the end of {token} is near", entity="blob", timestamp=2)
    memory.add_many([f"other {i}" for i in range(5)])
    hits = memory.search("short", entity="blob", mode="vector")
    assert [hit.id for hit in hits] == [id, first]
    assert len(hits[0].passage) < 40_000
    assert hits[0].text == f"the end of {token} is near"
    assert [entry.revision for entry in memory.history(entity="blob")] == [1, 2]
    assert [entry.id for entry in memory.search("short", mode="text", entity="blob")] == [id, first]


def test_a_long_text_is_found_by_any_of_its_passages(shelf: Shelf) -> None:
    from nanomem_core.pipeline.chunking import passages

    memory = shelf.open()
    text = " ".join(f"w{i}" for i in range(1800))
    id = memory.add(text)
    memory.add_many([f"other {i}" for i in range(20)])
    for passage in passages(text):
        hit = memory.search(passage, top_k=1, mode="vector", decompose=False)[0]
        assert (hit.id, hit.passage) == (id, passage)
        assert hit.cosine == pytest.approx(1, abs=1e-3)


# Entities.


def test_names_of_one_attribute_in_different_spellings_are_one_chain(memory: Memory) -> None:
    for number, name in enumerate(["Home Address", "home-address", "ＨＯＭＥ　address", "home_address"]):
        memory.add(f"street {number}", entity=name)
    assert [entry["n_revisions"] for entry in memory.entities()] == [4]
    memory.add("東京", entity="住所")
    memory.add("大阪", {"entity": "住所"})
    assert texts(memory.history(entity="住所")) == ["東京", "大阪"]


def test_revisions_count_arrivals_unless_the_caller_numbers_them(memory: Memory) -> None:
    for text, revision in (("a", None), ("b", 7), ("c", None)):
        memory.add(text, entity="x", revision=revision)
    assert [entry.revision for entry in memory.history(entity="x")] == [1, 7, 8]


def test_a_tagger_is_asked_only_for_statements_that_declare_nothing(shelf: Shelf) -> None:
    memory = shelf.open(taggers=[WordTagger({"work": "Employer", "live": "city"})])
    memory.add("I work at Acme")
    memory.add("I work at Birch", entity="job")
    memory.add("People work here", source="notes.md")
    memory.add("I work by number", revision=3)
    memory.add("We work", kind="episode")
    assert [(e.entity, e.declared) for e in memory.records(kind=None)] == [
        ("employer", False),
        ("job", True),
        (None, False),
        (None, False),
        (None, False),
    ]


def test_a_text_that_refers_back_gets_the_entity_of_its_own_user(shelf: Shelf) -> None:
    memory = shelf.open(taggers=[WordTagger({"work": "employer", "live": "city"})])
    memory.add("I work at Acme", {"user_id": "ann"})
    memory.add("I live in Bergen", {"user_id": "bob"})
    memory.add("It is nice", {"user_id": "ann"})
    memory.add_many([{"text": "I live in Oslo", "metadata": {"user_id": "ann"}}, "It is new"], user="other")
    assert [entry.entity for entry in memory.records()] == ["employer", "city", "employer"]
    assert [entry.entity for entry in memory.records(user="other")] == ["city", None]


def test_one_declared_value_makes_its_chain_declared(shelf: Shelf) -> None:
    memory = shelf.open(taggers=[WordTagger({"work": "employer"})])
    memory.add("I work at Acme")
    assert [item["declared"] for item in memory.entities()] == [False]
    memory.add("Birch now", entity="employer")
    memory.add("I work at Cedar")
    assert [item["declared"] for item in shelf.open().entities()] == [True]


# Updates.


def test_an_update_keeps_time_place_and_id(memory: Memory, clock: FrozenClock) -> None:
    first = memory.add("Acme Crop", {"a": 1}, entity="employer", timestamp=100, valid_to=900)
    memory.add("Birch", entity="employer", timestamp=200)
    clock.advance(DAY)
    assert memory.update(first, "Acme Corp", {"b": 2}, source="cli")
    found = memory.get(first)
    assert found is not None
    assert found.metadata == {"a": 1, "b": 2}
    expected = {"text": "Acme Corp", "source": "cli", "timestamp": 100, "valid_to": 900, "revision": 1, "version": 2}
    assert expected.items() <= found.items()
    assert texts(memory.history(entity="employer")) == ["Acme Corp", "Birch"]
    assert memory.search("Corp", mode="text")
    assert memory.search("Crop", mode="text") == []


def test_an_update_embeds_again_only_if_the_text_changed(shelf: Shelf) -> None:
    embedder = CountingEmbedder()
    memory = shelf.open(embedder)
    id = memory.add("one", entity="x")
    memory.search("anything")
    embedder.encoded.clear()
    memory.update(id, metadata={"a": 1})
    memory.retract(id)
    memory.restore(id)
    assert memory.search("one", mode="vector", filter={"a": 1})[0].cosine == pytest.approx(1, abs=1e-3)
    assert embedder.encoded == []
    memory.update(id, "two")
    assert memory.search("two", mode="vector")[0].cosine == pytest.approx(1, abs=1e-3)
    assert embedder.encoded == ["two"]


def test_an_update_of_nothing_is_no_update(memory: Memory) -> None:
    assert not memory.update("absent", "x")
    assert not memory.update("absent", "x", expect=3)
    assert not memory.restore("absent")
    assert memory.retract("absent") is None
    id = memory.add("x")
    with pytest.raises(InputError, match="use delete"):
        memory.update(id, " ")


def test_an_update_on_an_old_version_is_refused(memory: Memory) -> None:
    id = memory.add("one")
    assert memory.update(id, "two", expect=1)
    with pytest.raises(ConflictError) as caught:
        memory.update(id, "three", expect=1)
    assert (caught.value.id, caught.value.expected, caught.value.found) == (id, 1, 2)
    assert texts(memory.records()) == ["two"]


def test_an_update_can_move_a_record_to_another_chain(memory: Memory) -> None:
    memory.add("Oslo", entity="city")
    moved = memory.add("Bergen", entity="town")
    memory.update(moved, metadata={"entity": "City", "x": 1}, entity=None)
    found = memory.get(moved)
    assert found is not None
    assert (found.entity, found.revision, found.metadata) == ("city", 2, {"x": 1})
    memory.add("Molde", {"user_id": "ann"}, entity="city")
    memory.update(moved, metadata={"user_id": "ann", "entity": "ignored"}, entity="city")
    assert memory.history(id=moved)[1].metadata == {"x": 1, "user_id": "ann"}
    assert [(entry.text, entry.revision) for entry in memory.history(id=moved)] == [("Molde", 1), ("Bergen", 2)]


def test_an_update_that_names_a_guessed_entity_declares_it(shelf: Shelf) -> None:
    memory = shelf.open(taggers=[WordTagger({"work": "employer"})])
    id = memory.add("I work at Acme")
    memory.update(id, entity="employer")
    found = memory.get(id)
    assert found is not None
    assert (found.declared, found.revision) == (True, 1)


# Retract and restore.


def test_a_retracted_fact_ended_without_a_successor(memory: Memory, clock: FrozenClock) -> None:
    id = memory.add("Rents a garage", entity="garage", timestamp=clock.now - 9 * DAY)
    assert memory.retract(entity="garage", at=clock.now - DAY, reason="sold the car") == id
    found = memory.get(id)
    assert found is not None
    assert (found.superseded, found.superseded_at, found.status) == (True, clock.now - DAY, "ended")
    assert found.metadata == {"retracted_because": "sold the car"}
    assert memory.current(entity="garage") == []
    assert texts(memory.current(entity="garage", as_of=clock.now - 2 * DAY)) == ["Rents a garage"]
    assert texts(memory.history(entity="garage")) == ["Rents a garage"]
    assert memory.retract(entity="garage") is None
    assert memory.staleness_label(found).startswith("ENDED 1 day ago")


def test_what_was_retracted_can_be_restored_with_one_call(memory: Memory) -> None:
    id = memory.add("Rents a garage", {"a": 1}, entity="garage")
    before = memory.get(id)
    memory.retract(id, reason="by mistake")
    assert memory.restore(id)
    assert memory.get(id) == {**(before or {}), "version": 3}


def test_a_fact_outside_any_chain_can_be_retracted(memory: Memory, clock: FrozenClock) -> None:
    id = memory.add("The lift is broken", timestamp=clock.now - DAY)
    memory.retract(id)
    found = memory.get(id)
    assert found is not None
    assert (found.superseded, found.status) == (True, "ended")


def test_an_end_is_not_known_before_it_was_told(memory: Memory, clock: FrozenClock) -> None:
    start = clock.now
    memory.add("Rents a garage", entity="garage", timestamp=start - 9 * DAY)
    clock.advance(10 * DAY)
    memory.retract(entity="garage", at=start - DAY)
    assert texts(memory.current(entity="garage", known_at=start + DAY)) == ["Rents a garage"]
    assert memory.current(entity="garage", known_at=clock.now) == []
    assert memory.history(entity="garage", known_at=start)[0].status == "current"


def test_a_planned_end_comes_when_it_comes(memory: Memory, clock: FrozenClock) -> None:
    id = memory.add("Works from home", entity="office", valid_to=clock.now + DAY)
    assert [entry.status for entry in memory.current()] == ["current"]
    clock.advance(DAY)
    assert memory.current() == []
    assert [entry.status for entry in memory.history(id=id)] == ["ended"]


def test_retract_needs_to_know_which_fact(memory: Memory, clock: FrozenClock) -> None:
    memory.add("Oslo", {"user_id": "ann"}, entity="city")
    memory.add("Bergen", {"user_id": "bob"}, entity="city")
    for arguments in ({}, {"id": "x", "entity": "city"}):
        with pytest.raises(InputError, match="either id or entity"):
            memory.retract(**arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 chains have the entity 'city'"):
        memory.retract(entity="city")
    with pytest.raises(InputError, match="became true at"):
        memory.retract(entity="city", filter={"user_id": "bob"}, at=clock.now - DAY)
    memory.retract(entity="city", filter={"user_id": "bob"})
    assert texts(memory.current()) == ["Oslo"]
