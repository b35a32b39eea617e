"""Deleting, forgetting, cleaning up, purging."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.errors import EmbedderError, InputError
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.fakes import DictStorage, FrozenClock, HashEmbedder
from nanomem_core.testing.samples import bytes_below
from tests.memories import DAY, EVERY_STORE, CountingEmbedder, Shelf, WordTagger, texts


def everything(memory: Memory) -> dict[str, dict[str, Any]]:
    """All records of the scope by id, as they are stored."""
    return {record.id: record.to_dict() for record in memory.storage.scan(memory.scope)}


def fill(memory: Memory) -> None:
    """Two chains of two users, two sources, and records outside chains."""
    for user in ("ann", "bob"):
        for number, city in enumerate(["Oslo", "Bergen", "Molde"]):
            memory.add(
                f"Lives in {city}", {"user_id": user}, entity="city", timestamp=number * DAY, id=f"{user}-{number}"
            )
    memory.add("A note about Oslo", source="notes.md:1-50", id="note", timestamp=5 * DAY)
    memory.add("Another note", {"filename": "notes.md"}, source="web", id="web", timestamp=6 * DAY)
    memory.add("A talk about Oslo", kind="episode", id="talk", timestamp=7 * DAY)


# Delete.


@pytest.mark.parametrize(
    ("criteria", "gone"),
    [
        ({"id": "note"}, {"note"}),
        ({"id": ["note", "absent", "talk"]}, {"note", "talk"}),
        ({"ids": ["ann-0", "bob-0"]}, {"ann-0", "bob-0"}),
        ({"id": ["ann-0", "ann-1"], "ids": ["ann-1", "bob-0"]}, {"ann-1"}),
        ({"text_exact": "Lives in Oslo"}, {"ann-0", "bob-0"}),
        ({"text_exact": "lives in oslo"}, set()),
        ({"text_contains": "OSLO"}, {"ann-0", "bob-0", "note"}),
        ({"text_contains": "OSLO", "kind": None}, {"ann-0", "bob-0", "note", "talk"}),
        ({"text_contains": "oslo", "where": {"user_id": "ann"}}, {"ann-0"}),
        ({"ids": ["ann-0", "bob-0"], "where": {"user_id": "bob"}}, {"bob-0"}),
        ({"ids": ["ann-0", "note"], "text_contains": "note"}, {"note"}),
        ({"where": {"user_id": {"$exists": False}}}, {"note", "web"}),
        ({"source": "notes.md"}, {"note", "web"}),
        ({"source": "web"}, {"web"}),
        ({"source": "note"}, set()),
        ({}, set()),
        ({"id": ""}, set()),
        ({"id": []}, set()),
        ({"ids": []}, set()),
        ({"text_exact": ""}, set()),
        ({"ids": [], "where": {"user_id": "ann"}}, set()),
    ],
)
def test_delete_removes_what_meets_all_criteria_and_nothing_else(
    shelf: Shelf, criteria: dict[str, Any], gone: set[str]
) -> None:
    memory = shelf.open()
    fill(memory)
    before = everything(memory)
    assert memory.delete(**criteria) == len(gone)
    expected = {id: record for id, record in before.items() if id not in gone}
    assert everything(memory) == everything(shelf.open()) == expected
    assert all(memory.get(id) is None and not memory.exists(id) for id in gone)
    assert gone.isdisjoint(hit.id for hit in memory.search("Lives in Oslo", top_k=20, kind=None))


def test_deleting_the_current_value_promotes_the_one_before(memory: Memory) -> None:
    fill(memory)
    memory.delete("ann-2")
    own = {"user_id": "ann"}
    assert texts(memory.current(filter=own)) == ["Lives in Bergen"]
    assert memory.search("Lives in Molde", filter=own, top_k=1)[0].id == "ann-1"
    assert [entry.superseded for entry in memory.history(entity="city", filter=own)] == [True, False]
    assert texts(memory.current(filter={"user_id": "bob"})) == ["Lives in Molde"]
    memory.delete("ann-0")
    assert [(entry.id, entry.superseded) for entry in memory.history(id="ann-1")] == [("ann-1", False)]


def test_a_deleted_id_can_be_used_again(memory: Memory) -> None:
    memory.add("one", id="a")
    memory.delete("a")
    memory.add("two", id="a")
    assert texts(memory.records()) == texts(memory.search("one")) == ["two"]


def test_deleting_twice_removes_nothing_the_second_time(memory: Memory) -> None:
    fill(memory)
    assert [memory.delete("note"), memory.delete("note")] == [1, 0]
    head = memory.storage.head(memory.scope)
    memory.delete(where={"user_id": "nobody"})
    assert memory.storage.head(memory.scope) == head


# Widening criteria.


def _export_purge(memory: Memory, **criteria: Any) -> Any:
    return memory.export(Path(memory_folder(memory)) / "out.jsonl", purge=True, **criteria)


def memory_folder(memory: Memory) -> str:
    folder = getattr(memory.storage, "_folder", None)
    return str(folder or Path(str(memory.storage.place)).parent)


EMPTY: dict[str, list[Any]] = {
    "where": [{}],
    "filter": [{}],
    "text_contains": ["", "  "],
    "source": ["", " "],
    "vault_or_project": ["", " "],
    "older_than_days": [-1],
    "keep": [0, -1],
    "min_score": [],
}
"""For each criterion of a destructive method: values that would widen it to everything, which must be refused."""

NARROWING = {"id", "ids", "text_exact", "query", "top_k", "kind", "entity", "min_revisions", "keep_current"}
"""Criteria of which no value means "everything"."""

NO_CRITERIA = {"dry_run", "user", "agent", "target", "target_freed_bytes", "self"}

DESTRUCTIVE = ("delete", "forget", "forget_superseded", "prune", "purge", "unmerge")


@pytest.mark.parametrize("name", DESTRUCTIVE)
def test_a_destructive_method_refuses_every_empty_criterion_that_would_widen_it(shelf: Shelf, name: str) -> None:
    memory = shelf.open()
    fill(memory)
    before = everything(memory)
    method: Callable[..., Any] = getattr(memory, name)
    needed: dict[str, dict[str, Any]] = {"forget": {"query": "Lives in Oslo"}, "prune": {"older_than_days": 0}}
    for parameter in inspect.signature(method).parameters:
        assert parameter in EMPTY or parameter in NARROWING or parameter in NO_CRITERIA, f"say what {parameter} does"
        for value in EMPTY.get(parameter, ()):
            with pytest.raises(InputError):
                method(**needed.get(name, {}) | {parameter: value})
    assert everything(memory) == before


def test_every_method_that_can_remove_is_known_as_destructive() -> None:
    removing = {
        name
        for name, method in inspect.getmembers(Memory, inspect.isfunction)
        if not name.startswith("_") and {"purge", "dry_run", "keep"} & set(inspect.signature(method).parameters)
    }
    assert removing <= {*DESTRUCTIVE, "export", "split", "split_by_key", "tag"}
    assert {"delete", "erase", "purge", "unmerge"} <= set(dir(Memory))


def test_moving_out_without_a_filter_is_refused(memory: Memory) -> None:
    fill(memory)
    before = everything(memory)
    empty: list[dict[str, Any]] = [
        {},
        {"where": {}},
        {"source_doc": ""},
        {"where": {}, "source_doc": "web"},
        {"source_doc": "", "before": 9 * DAY},
        {"where": None},
    ]
    for criteria in empty:
        with pytest.raises(InputError, match="purge: give a filter"):
            _export_purge(memory, **criteria)
    with pytest.raises(InputError, match="purge: give a filter"):
        memory.split({}, "x.jsonl", purge=True)
    with pytest.raises(InputError, match="give target_freed_bytes"):
        memory.prune()
    assert everything(memory) == before


# Forget.


def test_forget_removes_the_record_that_fits_best_and_not_the_head_of_its_chain(memory: Memory) -> None:
    fill(memory)
    predicted = memory.forget("Lives in Oslo", filter={"user_id": "ann"}, dry_run=True)
    assert "ann-0" in everything(memory)
    found = memory.forget("Lives in Oslo", filter={"user_id": "ann"})
    assert [hit.id for hit in found] == [hit.id for hit in predicted] == ["ann-0"]
    assert found[0].text == "Lives in Oslo"
    assert set(everything(memory)) >= {"ann-1", "ann-2", "bob-0", "bob-1", "bob-2", "note"}


def test_forget_leaves_what_fits_badly(memory: Memory) -> None:
    fill(memory)
    before = everything(memory)
    assert memory.forget("The price of tea in the capital") == []
    assert memory.forget("") == []
    assert everything(memory) == before


# Retention.


def test_all_but_the_newest_values_of_each_chain_can_be_dropped(memory: Memory) -> None:
    fill(memory)
    predicted = memory.forget_superseded(keep=2, dry_run=True)
    assert predicted == {"groups": 2, "deleted": 2, "kept": 4, "ids": ["ann-0", "bob-0"], "dry_run": True}
    assert memory.forget_superseded(keep=2) == predicted | {"dry_run": False}
    memory.forget_superseded()
    assert set(everything(memory)) == {"ann-2", "bob-2", "note", "web", "talk"}
    assert memory.forget_superseded() == {"groups": 0, "deleted": 0, "kept": 0, "ids": [], "dry_run": False}


def test_newest_is_judged_by_time_whatever_the_order_of_arrival(memory: Memory) -> None:
    for time in (3, 1, 2):
        memory.add(f"value {time}", entity="x", timestamp=time)
    memory.forget_superseded()
    assert texts(memory.records()) == ["value 3"]


def test_dropping_old_values_can_be_limited(memory: Memory, clock: FrozenClock) -> None:
    fill(memory)
    clock.now = 11 * DAY
    assert memory.forget_superseded(filter={"user_id": "ann"}, older_than_days=10.5, dry_run=True)["ids"] == ["ann-0"]
    assert memory.forget_superseded(min_revisions=4)["deleted"] == 0
    assert memory.forget_superseded(entity="town")["deleted"] == 0
    assert memory.forget_superseded(filter={"user_id": "ann"})["ids"] == ["ann-0", "ann-1"]


def test_prune_goes_by_age_and_spares_current_values(memory: Memory, clock: FrozenClock) -> None:
    fill(memory)
    clock.now = 10 * DAY
    predicted = memory.prune(older_than_days=4.5, dry_run=True)
    before = set(everything(memory))
    memory.prune(older_than_days=4.5)
    gone = before - set(everything(memory))
    assert gone == {"ann-0", "ann-1", "bob-0", "bob-1", "note"}
    assert predicted == sum(map(len, ["Lives in Oslo", "Lives in Bergen"])) * 2 + len("A note about Oslo")
    memory.prune(older_than_days=4.5, keep_current=False)
    assert set(everything(memory)) == {"web", "talk"}


def test_prune_takes_the_oldest_until_enough_is_freed(memory: Memory) -> None:
    for number in range(10):
        memory.add("12345", timestamp=10 - number, id=f"r{number}")
    assert memory.prune(target_freed_bytes=12, dry_run=True) == 15
    memory.prune(target_freed_bytes=12)
    assert set(everything(memory)) == {f"r{number}" for number in range(7)}
    memory.prune(target_freed_bytes=10_000)
    assert everything(memory) == {}
    assert memory.prune(target_freed_bytes=10_000) == 0


# Purge and erase.


def test_purge_leaves_no_byte_of_a_fact_and_of_what_was_made_from_it(shelf: Shelf) -> None:
    memory = shelf.open()
    first = memory.add("The locker code is 7431-ZEBRA", entity="locker")
    second = memory.add("The locker code is 8852-ZEBRA", entity="locker")
    episode = memory.add("ZEBRA was told", {"derived_from": [second]}, kind="episode")
    summary = memory.add("A code with ZEBRA", {"derived_from": episode}, kind="summary")
    other = memory.add("The gate is open")
    memory.update(first, "The locker code is 7431-ZEBRA!")
    memory.search("ZEBRA", kind=None)
    assert memory.purge(first) == sorted([first, second, episode, summary])
    assert memory.purge(first) == memory.purge([second, "absent"]) == []
    for opened in (memory, shelf.open()):
        assert [entry.id for entry in opened.records(kind=None)] == [other]
        assert [hit.id for hit in opened.search("ZEBRA", kind=None)] == [other]
        for id in (first, second, episode, summary):
            (entry,) = opened.history(id=id)
            assert (entry.status, entry.text, entry.metadata, entry.entity) == ("purged", "", {}, None)
            assert opened.get(id) is None
            assert not opened.exists(id)
    assert [path for path, content in bytes_below(shelf.folder) if b"ZEBRA" in content] == []
    memory.add("The locker code is 7431-ZEBRA", entity="locker", id=first)
    assert texts(memory.history(id=first)) == ["The locker code is 7431-ZEBRA"]
    assert memory.get(second) is None


def test_purge_takes_the_chain_of_one_user_only(memory: Memory) -> None:
    fill(memory)
    assert memory.purge("ann-1") == ["ann-0", "ann-1", "ann-2"]
    assert len(memory.history(id="bob-1")) == 3
    assert memory.purge("note") == ["note"]


def test_a_purge_marker_is_never_embedded(shelf: Shelf) -> None:
    embedder = CountingEmbedder()
    memory = shelf.open(embedder)
    memory.add("secret", id="a")
    memory.add("open", id="b")
    memory.purge("a")
    assert texts(memory.search("anything")) == ["open"]
    assert "" not in embedder.encoded


def test_erase_leaves_nothing_of_a_scope_and_spares_the_others(shelf: Shelf) -> None:
    memory = shelf.open(taggers=[WordTagger({"work": "employer"})])
    for user in ("ann", "bob"):
        memory.add(f"{user} says I work at ZEBRA{user}", user=user)
    memory.search("ZEBRA", user="ann")
    memory.erase(user="ann")
    memory.erase(user="ann")
    assert memory.records(user="ann") == memory.search("ZEBRA", user="ann") == []
    assert [path for path, content in bytes_below(shelf.folder) if b"ZEBRAann" in content] == []
    assert len(memory.records(user="bob")) == 1
    memory.add("It starts anew", user="ann")
    assert [entry.entity for entry in memory.records(user="ann")] == [None]
    assert texts(memory.search("anew", user="ann")) == ["It starts anew"]


def test_compacting_changes_no_answer(memory: Memory) -> None:
    fill(memory)
    memory.delete("ann-1")
    before = everything(memory)
    found = memory.search("Lives in Oslo", top_k=20)
    memory.compact()
    assert everything(memory) == before
    again = memory.search("Lives in Oslo", top_k=20)
    assert [(hit.id, hit.superseded) for hit in again] == [(hit.id, hit.superseded) for hit in found]


@pytest.mark.parametrize("store", EVERY_STORE, indirect=True)
def test_cleaning_up_embeds_nothing_again_that_stays(shelf: Shelf) -> None:
    embedder = CountingEmbedder()
    memory = shelf.open(embedder)
    ids = memory.add_many(f"fact {number}" for number in range(4))
    memory.search("fact")
    embedder.encoded.clear()
    memory.purge(ids[0])
    memory.delete(ids[1])
    memory.compact()
    memory.erase(user="nobody")
    assert len(memory.search("fact", mode="vector")) == len(shelf.open(embedder).search("fact", mode="vector")) == 2
    assert embedder.encoded == []


def test_a_memory_without_files_beside_it_embeds_nothing_again_either() -> None:
    embedder = CountingEmbedder()
    with Memory(DictStorage(), embedder, taggers=(), plugins=PluginManager()) as memory:
        ids = memory.add_many(f"fact {number}" for number in range(3))
        memory.search("fact")
        embedder.encoded.clear()
        memory.purge(ids[0])
        assert len(memory.search("fact", mode="vector")) == 2
        assert embedder.encoded == []


class UnreachableEmbedder(HashEmbedder):
    """Its server would have to tell the dimension."""

    @property
    def dim(self) -> int:
        raise EmbedderError("no answer")


@pytest.mark.parametrize("store", ["jsonl", "markdown"], indirect=True)
def test_vectors_of_what_is_gone_go_though_the_embedder_can_not_be_asked(shelf: Shelf) -> None:
    shelf.open().add_many(["fact", "secret"])
    shelf.open().search("fact")
    [vectors] = shelf.folder.rglob("vectors-*.bin")
    before = vectors.stat().st_size
    memory = shelf.open(UnreachableEmbedder())
    memory.delete(text_exact="secret")
    memory.compact()
    assert 0 < vectors.stat().st_size < before
    memory.erase()
    assert not vectors.exists()


# Any sequence of operations.


@pytest.mark.parametrize("seed", range(8))
def test_no_unnamed_record_disappears_and_no_survivor_changes(shelf: Shelf, clock: FrozenClock, seed: int) -> None:
    chance = random.Random(seed)
    memory = shelf.open()
    model: dict[str, dict[str, Any]] = {}

    def add() -> None:
        number = chance.randrange(1000)
        entity = chance.choice([None, "city", "job"])
        own = chance.choice([{}, {"user_id": "ann"}, {"user_id": "bob"}])
        id = memory.add(f"text {number}", own, entity=entity, timestamp=chance.randrange(100) * DAY)
        model[id] = everything(memory)[id]

    def expect_gone(ids: set[str]) -> None:
        for id in ids:
            del model[id]

    def delete_by_id() -> None:
        ids = set(chance.sample(sorted(model), min(2, len(model)))) | {"absent"}
        memory.delete(ids=sorted(ids))
        expect_gone(ids - {"absent"})

    def delete_by_filter() -> None:
        user, word = chance.choice(["ann", "bob"]), str(chance.randrange(10))
        memory.delete(where={"user_id": user}, text_contains=word)
        expect_gone(
            {id for id, r in model.items() if r["metadata"].get("user_id") == user and word in r["text"].casefold()}
        )

    def forget_superseded() -> None:
        expect_gone(set(memory.forget_superseded(keep=2, entity="job", dry_run=True)["ids"]))
        memory.forget_superseded(keep=2, entity="job")

    def forget() -> None:
        expect_gone({hit.id for hit in memory.forget(f"text {chance.randrange(1000)}")})

    def update() -> None:
        id = chance.choice(sorted(model))
        memory.update(id, f"text {chance.randrange(1000)}", {"n": chance.randrange(5)})
        stored = everything(memory)[id]
        unchanged = model[id].keys() - {"text", "metadata", "version"}
        assert all(stored[key] == model[id][key] for key in unchanged)
        model[id] = stored

    def retract() -> None:
        id = chance.choice(sorted(model))
        memory.retract(id)
        stored = everything(memory)[id]
        assert {**stored, **{key: model[id][key] for key in ("valid_to", "closed_at", "version")}} == model[id]
        model[id] = stored

    def look() -> None:
        memory.search(f"text {chance.randrange(1000)}", filter={"n": chance.randrange(5)})
        memory.history(entity="city", filter={"user_id": "ann"})
        memory.compact()

    operations = [add, delete_by_id, delete_by_filter, forget_superseded, forget, update, retract, look]
    for _ in range(10):
        add()
    for _ in range(60):
        operation = chance.choice([add, add, *operations])
        if model or operation is add:
            operation()
        assert everything(memory) == model, operation.__name__
    assert everything(shelf.open()) == model


def test_the_check_of_survivors_notices_a_loss(memory: Memory) -> None:
    fill(memory)
    before = everything(memory)
    memory.delete(text_contains="note")
    assert everything(memory) != before
    memory.update("ann-0", metadata={"x": 1})
    assert everything(memory)["ann-0"] != before["ann-0"]
