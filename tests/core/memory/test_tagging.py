"""Entities that taggers give: to new statements, and to stored ones once more."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from nanomem_core.changes import Change, Put
from nanomem_core.errors import ClosedError, GeneratorError, UnreachableError, VetoError
from nanomem_core.hookspecs import Plugin, hookimpl
from nanomem_core.memory import Memory
from nanomem_core.records import Scope
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.fakes import Call, FrozenClock, ScriptedGenerator
from nanomem_plugins.llm.tagger import LlmTagger
from tests.memories import CountingEmbedder, Shelf, WordTagger


def by_first_word(call: Call) -> str:
    """What a model says that takes the first word of each statement for its attribute."""
    content = call.messages[-1]["content"]
    known = {name: int(number) for number, name in re.findall(r"^(\d+)\. (\w+): ", content, re.MULTILINE)}
    statements = content.partition("<statements>\n")[2]
    items = []
    for number, word in re.findall(r"^(\d+)\. (\w+)", statements, re.MULTILINE):
        name = word.lower()
        new = None if name in known else name
        items.append({"statement": int(number), "known": known.get(name), "new": new, "confidence": 1})
    return json.dumps({"answers": items})


def shown_known(call: Call) -> list[str]:
    return re.findall(r"^\d+\. (\w+: .*)$", call.messages[-1]["content"].partition("</known>")[0], re.MULTILINE)


@pytest.fixture
def model() -> ScriptedGenerator:
    return ScriptedGenerator(by_first_word)


@pytest.fixture
def asking(shelf: Shelf, model: ScriptedGenerator) -> Memory:
    return shelf.open(taggers=[LlmTagger(), WordTagger({"boat": "boat"})], generator=model)


def entities(memory: Memory, **options: str) -> list[str | None]:
    return [entry.entity for entry in memory.records(**options)]


class TestNewStatements:
    def test_a_model_sees_the_user_s_entities_with_their_newest_statements(
        self, asking: Memory, model: ScriptedGenerator, clock: FrozenClock
    ) -> None:
        asking.add("Alder Foods", entity="employer", timestamp="2020-01-01")
        asking.add("Birch Labs", entity="employer", timestamp="2024-01-01")
        asking.add("Oslo", entity="city", timestamp="2022-01-01")
        asking.add("Paul's", entity="gym", metadata={"user_id": "paul"})
        asking.add("Elsewhere", entity="boat", user="somebody else")
        asking.add("Employer is Cedar now.")
        assert shown_known(model.calls[0]) == ["employer: Birch Labs", "city: Oslo"]
        assert entities(asking)[-1] == "employer"
        assert asking.records()[-1].declared is False

    def test_statements_that_come_together_are_asked_about_in_one_call_for_each_user(
        self, asking: Memory, model: ScriptedGenerator
    ) -> None:
        mine, others = {"text": "Gym is Iron."}, {"text": "Car is red.", "metadata": {"user_id": "ann"}}
        asking.add_many([mine, others, {"text": "Gym is Oak."}, {"text": "Read it", "source": "notes.md"}])
        assert entities(asking) == ["gym", "car", "gym", None]
        assert len(model.calls) == 2

    def test_a_model_that_fails_keeps_no_statement_from_being_stored(self, shelf: Shelf) -> None:
        model = ScriptedGenerator(lambda call: UnreachableError("no route"))
        memory = shelf.open(taggers=[LlmTagger(), WordTagger({"boat": "boat"})], generator=model)
        memory.add("My boat is blue.")
        memory.add("Gym is Iron.")
        assert entities(memory) == ["boat", None]

    def test_a_tagger_that_asks_without_a_model_gives_way_to_the_next(self, shelf: Shelf) -> None:
        memory = shelf.open(taggers=[LlmTagger(), WordTagger({"boat": "boat"})])
        memory.add("My boat is blue.")
        assert entities(memory) == ["boat"]

    def test_a_model_is_not_made_for_taggers_that_ask_none(self, shelf: Shelf) -> None:
        memory = shelf.open(taggers=[WordTagger({"boat": "boat"})], generator={"use": "there is none"})
        memory.add("My boat is blue.")
        assert entities(memory) == ["boat"]

    def test_a_refused_item_costs_no_call(self, asking: Memory, model: ScriptedGenerator) -> None:
        with pytest.raises(ValueError, match="timestamp"):
            asking.add_many(["Gym is Iron.", {"text": "x", "timestamp": "never"}])
        assert model.calls == []
        assert entities(asking) == []


GUESSES = {"boat": "vessel", "Gym": "sport"}


@pytest.fixture
def guessed(shelf: Shelf, clock: FrozenClock, model: ScriptedGenerator) -> Memory:
    """A memory of seven facts, some of them tagged by words."""
    memory = shelf.open(CountingEmbedder(), taggers=[WordTagger(GUESSES)], generator=model)
    for text, options in (
        ("Gym is Iron.", {}),
        ("Gym is Oak.", {"entity": "Studio"}),
        ("Car is red.", {}),
        ("My boat is blue.", {}),
        ("Gym, says the file.", {"source": "notes.md"}),
        ("Gym of Ann.", {"metadata": {"user_id": "ann", "project": "p"}}),
        ("Gym is Elm.", {}),
    ):
        clock.advance(60)
        memory.add(text, id=text, **options)  # type: ignore[arg-type]
    assert entities(memory) == ["sport", "studio", None, "vessel", None, "sport", "sport"]
    return memory


class TestStoredStatements:
    def test_a_dry_run_shows_before_and_after_and_changes_nothing(self, guessed: Memory) -> None:
        before = guessed.records()
        plan = guessed.tag(taggers=[LlmTagger()])
        assert [(change.id, change.before, change.after) for change in plan.changes] == [
            ("Gym is Iron.", "sport", "gym"),
            ("Car is red.", None, "car"),
            ("My boat is blue.", "vessel", "my"),
            ("Gym of Ann.", "sport", "gym"),
            ("Gym is Elm.", "sport", "gym"),
        ]
        assert (plan.looked_at, plan.untold) == (5, 0)
        assert guessed.records() == before
        assert json.loads(json.dumps(plan.to_dict()))["looked_at"] == 5

    def test_applied_each_value_takes_its_place_in_the_history(self, guessed: Memory, shelf: Shelf) -> None:
        head = guessed.storage.head(guessed.scope)
        embedded = len(guessed.embedder.encoded)  # type: ignore[attr-defined]
        guessed.tag(taggers=[LlmTagger()], dry_run=False)
        assert guessed.storage.head(guessed.scope) == head + 1
        history = guessed.history(id="Gym is Elm.")
        assert [(value.text, value.entity, value.revision) for value in history] == [
            ("Gym is Iron.", "gym", 1),
            ("Gym is Elm.", "gym", 2),
        ]
        assert history[0].superseded
        assert history[0].metadata["retagged_from"] == "sport"
        assert [value.text for value in guessed.history(id="Gym of Ann.")] == ["Gym of Ann."]
        assert guessed.history(entity="vessel") == []
        again = shelf.open(CountingEmbedder())
        assert all(again.get(entry.id) == entry for entry in guessed.records())
        if guessed.storage.keeps_vectors:
            assert len(guessed.embedder.encoded) == embedded  # type: ignore[attr-defined]

    def test_values_that_come_into_a_chain_get_its_next_numbers(self, guessed: Memory) -> None:
        guessed.tag(taggers=[WordTagger({"Gym is": "studio"})], dry_run=False)
        history = guessed.history(entity="studio")
        assert [(value.text, value.revision) for value in history] == [
            ("Gym is Iron.", 2),
            ("Gym is Oak.", 1),
            ("Gym is Elm.", 3),
        ]

    def test_what_was_declared_and_what_is_no_statement_of_the_user_s_is_never_touched(self, guessed: Memory) -> None:
        untouched = [guessed.get("Gym is Oak."), guessed.get("Gym, says the file.")]
        plan = guessed.tag(taggers=[WordTagger({"": "everything"})], dry_run=False)
        assert len(plan.changes) == 5
        assert [guessed.get("Gym is Oak."), guessed.get("Gym, says the file.")] == untouched

    def test_the_model_knows_only_entities_that_are_not_asked_about(
        self, guessed: Memory, model: ScriptedGenerator
    ) -> None:
        guessed.tag(taggers=[LlmTagger()])
        assert shown_known(model.calls[0]) == ["studio: Gym is Oak."]
        guessed.tag(taggers=[LlmTagger()], filter={"id": "Car is red."})
        assert shown_known(model.calls[-1]) == ["sport: Gym is Elm.", "vessel: My boat is blue.", "studio: Gym is Oak."]

    def test_what_no_tagger_is_sure_of_keeps_what_it_has(self, guessed: Memory) -> None:
        plan = guessed.tag(taggers=[WordTagger({"red": "colour"})], dry_run=False)
        assert (len(plan.changes), plan.looked_at, plan.untold) == (1, 5, 4)
        assert {entry.id: entry.entity for entry in guessed.records()} == {
            "Gym is Iron.": "sport",
            "Gym is Oak.": "studio",
            "Car is red.": "colour",
            "My boat is blue.": "vessel",
            "Gym, says the file.": None,
            "Gym of Ann.": "sport",
            "Gym is Elm.": "sport",
        }

    def test_a_second_time_nothing_changes_and_nothing_is_written(
        self, guessed: Memory, model: ScriptedGenerator
    ) -> None:
        tagger = LlmTagger()
        plan = guessed.tag(taggers=[tagger])
        calls = len(model.calls)
        assert guessed.tag(taggers=[tagger], dry_run=False) == plan
        assert len(model.calls) == calls, "what the dry run asked is asked again"
        head = guessed.storage.head(guessed.scope)
        again = guessed.tag(taggers=[tagger], dry_run=False)
        assert again.changes == ()
        assert guessed.storage.head(guessed.scope) == head

    def test_the_memory_s_own_taggers_are_asked_by_default(self, guessed: Memory) -> None:
        assert guessed.tag().changes == ()
        assert guessed.tag(entity="sport").looked_at == 3

    def test_a_model_that_fails_is_an_error_and_changes_nothing(self, guessed: Memory) -> None:
        before = guessed.records()
        failing = ScriptedGenerator(lambda call: UnreachableError("no route"))
        with pytest.raises(UnreachableError):
            guessed.tag(taggers=[LlmTagger(), WordTagger({"": "x"})], generator=failing, dry_run=False)
        assert guessed.records() == before

    def test_without_a_model_a_tagger_that_asks_one_is_an_error(self, shelf: Shelf) -> None:
        memory = shelf.open(taggers=[LlmTagger()])
        memory.add("Gym is Iron.")
        with pytest.raises(GeneratorError, match="Configure `generator`"):
            memory.tag()

    def test_taggers_are_built_by_name_and_closed_afterwards(self, shelf: Shelf) -> None:
        closed: list[str] = []

        class Closing(WordTagger):
            name = "closing"

            def __init__(self) -> None:
                super().__init__({"Gym": "gym"})

            def close(self) -> None:
                closed.append(self.name)

        class House(Plugin):
            @hookimpl
            def nanomem_register_tagger(self) -> Sequence[type[Closing]]:
                return [Closing]

        plugins = PluginManager()
        plugins.register(House())
        memory = shelf.open(plugins=plugins)
        memory.add("Gym is Iron.")
        mine = Closing()
        assert len(memory.tag(taggers=[mine]).changes) == 1
        assert closed == []
        assert len(memory.tag(taggers=["closing"]).changes) == 1
        assert closed == ["closing"]

    def test_other_users_and_agents_are_left_alone(self, guessed: Memory) -> None:
        guessed.add("Gym is Ash.", user="bo")
        assert guessed.tag(taggers=[LlmTagger()], user="bo", dry_run=False).looked_at == 1
        assert entities(guessed, user="bo") == ["gym"]
        assert "gym" not in entities(guessed)


class TestApplying:
    def test_a_record_that_was_written_since_stays_as_it_is(self, guessed: Memory) -> None:
        plan = guessed.tag(taggers=[LlmTagger()])
        guessed.update("Gym is Iron.", "Gym is Iron Temple.")
        guessed.update("Car is red.", entity="vehicle")
        guessed.delete("My boat is blue.")
        assert guessed.apply_tags(plan) == 2
        assert {entry.id: entry.entity for entry in guessed.records()} == {
            "Gym is Iron.": "sport",
            "Gym is Oak.": "studio",
            "Car is red.": "vehicle",
            "Gym, says the file.": None,
            "Gym of Ann.": "gym",
            "Gym is Elm.": "gym",
        }
        assert guessed.apply_tags(plan) == 0

    def test_a_write_in_between_is_no_conflict(
        self, guessed: Memory, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = guessed.tag(taggers=[LlmTagger()])
        other = shelf.open(CountingEmbedder())
        commit, writes = guessed._commit, iter(["Something else.", "And more."])

        def interrupted(scope: Scope, changes: Sequence[Change], *args: object, **options: object) -> None:
            text = next(writes, None)
            if text is not None:
                other.add(text)
            commit(scope, changes, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(guessed, "_commit", interrupted)
        assert guessed.apply_tags(plan) == 5

    def test_a_veto_changes_nothing(self, shelf: Shelf) -> None:
        class Keep(Plugin):
            @hookimpl
            def nanomem_before_commit(self, scope: Scope, changes: Sequence[Change]) -> None:
                if any(isinstance(change, Put) and change.record.version for change in changes):
                    raise VetoError("no rewriting")

        plugins = PluginManager()
        plugins.register(Keep())
        memory = shelf.open(plugins=plugins)
        memory.add("Gym is Iron.")
        with pytest.raises(VetoError):
            memory.tag(taggers=[WordTagger({"Gym": "gym"})], dry_run=False)
        assert entities(memory) == [None]

    def test_a_closed_memory_applies_nothing(self, guessed: Memory) -> None:
        plan = guessed.tag(taggers=[LlmTagger()])
        guessed.close()
        with pytest.raises(ClosedError):
            guessed.apply_tags(plan)
        with pytest.raises(ClosedError):
            guessed.tag()
