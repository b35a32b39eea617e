"""What verdicts of a model do to the facts of a memory, over every store."""

from __future__ import annotations

import json

import pytest

from nanomem_core.config.model import ConversationSettings
from nanomem_core.errors import ReplyError
from nanomem_core.pipeline.consolidate import undo_changes
from nanomem_core.pipeline.distil import distil
from nanomem_core.records import Scope
from nanomem_core.system.knowledge import ScopeKnowledge
from nanomem_core.testing import ScriptedGenerator
from nanomem_plugins.lexical.embedder import LexicalEmbedder
from tests.core.pipeline.facts import episode, facts, verdicts
from tests.memories import texts

DANA = (
    "Dana Reyes is head of compliance at Northwind.",
    "Dana Reyes administers Northwind's source-control organisation.",
    "Dana Reyes asked for an audit trail on every release.",
)


@pytest.fixture
def memory(shelf):
    return shelf.open(LexicalEmbedder())


class Teller:
    """Tells a memory of episodes, one a day, as a model with the given answers draws facts from them."""

    def __init__(self, memory, clock, **options):
        self.memory = memory
        self.clock = clock
        self.options = options
        self.scope = Scope()
        self.known = ScopeKnowledge(memory, self.scope, ConversationSettings(related_similarity=0.05))
        self.number = 0

    def tell(self, *answers):
        self.number += 1
        self.clock.advance(86_400)
        told = episode("something", id=f"e{self.number}", at=self.clock.now)
        generator = ScriptedGenerator(answers)
        changes, report = distil(told, self.known, generator, self.clock(), **self.options)
        self.memory.commit(changes)
        assert len(generator.calls) == len(answers)
        json.dumps(report)
        return report

    def undo(self, id):
        self.memory.commit(undo_changes(id, self.memory.storage.scan(self.scope, "fact")))


@pytest.mark.parametrize("verdict", ["supersedes", "contradicts", "duplicate"])
def test_something_more_about_a_person_retires_nothing(memory, clock, verdict):
    teller = Teller(memory, clock)
    teller.tell(facts({"text": DANA[0], "entity": "dana_reyes_job_title"}))
    wrong = verdicts((1, verdict, 1))
    for text, entity in ((DANA[1], "dana_reyes_duty"), (DANA[2], "dana_reyes_request")):
        report = teller.tell("expected", facts({"text": text, "entity": entity}), wrong)
        assert [refused["verdict"] for refused in report["refused"]] == [verdict]
    assert sorted(texts(memory.current())) == sorted(DANA)
    assert [change["change"] for change in memory.changes(since=0)] == ["added"] * 3


def test_a_verdict_in_a_form_that_nobody_asked_for_draws_nothing(memory, clock):
    teller = Teller(memory, clock)
    teller.tell(facts({"text": DANA[0], "entity": "dana_reyes_job_title"}))
    with pytest.raises(ReplyError, match="expected a JSON object with 'verdicts'"):
        teller.tell("expected", facts(DANA[1]), '{"contradicts": [0]}', '{"contradicts": [0]}')
    assert texts(memory.current()) == [DANA[0]]


def test_a_fact_without_an_attribute_is_not_retired_by_a_verdict(memory, clock):
    first = memory.add(DANA[0])
    teller = Teller(memory, clock)
    for text in DANA[1:]:
        teller.tell("expected", facts(text), verdicts((1, "supersedes", 1)))
    assert memory.get(first).superseded is None
    assert memory.get(first).version == 1
    assert sorted(texts(memory.records())) == sorted(DANA)


def test_a_retirement_is_visible_names_its_cause_and_is_undone_by_one_call(memory, clock):
    teller = Teller(memory, clock)
    teller.tell(facts({"text": DANA[0], "entity": "dana_reyes_job_title"}))
    (first,) = memory.records()
    before = clock()
    report = teller.tell(
        "expected", facts({"text": DANA[1], "entity": "dana_reyes_job_title"}), verdicts((1, "supersedes", 1))
    )
    assert memory.get(first.id).superseded is True
    (change,) = memory.changes(since=before)
    assert (change.change, change.previous_id, change.previous_text) == ("changed", first.id, DANA[0])
    assert change.metadata["cause"] == {"verdict": "supersedes", "episode": "e2", "reason": "so it was said"}
    assert report["superseded"] == [{"fact": first.id, "by": change.id}]

    teller.undo(first.id)
    assert memory.get(first.id).status == "current"
    assert memory.get(change.id).text == DANA[1]
    assert memory.get(change.id).superseded is None
    assert len(memory.history(id=first.id)) == 1


def test_chains_form_from_plain_conversation(memory, clock):
    teller = Teller(memory, clock)
    employers = ("Works at Alder Foods", "Works at Birch Labs", "Works at Cedar & Sons")
    teller.tell(facts({"text": employers[0], "entity": "employer"}))
    moment = clock() + 1
    for text in employers[1:]:
        teller.tell("expected", facts({"text": text, "entity": "employer"}), verdicts((1, "supersedes", 1)))
    assert texts(memory.history(entity="employer")) == list(employers)
    assert texts(memory.current()) == [employers[2]]
    assert texts(memory.current(as_of=moment)) == [employers[0]]
    assert [entry.previous_text for entry in memory.changes(since=moment)] == list(employers[:2])


def test_a_value_that_comes_back_is_current_again(memory, clock):
    teller = Teller(memory, clock)
    for number, city in enumerate(("Lives in Oslo", "Lives in Bergen", "Lives in Oslo")):
        judged = ("expected", facts({"text": city, "entity": "city"}), verdicts((1, "supersedes", 1)))
        teller.tell(*(judged if number else judged[1:2]))
    assert texts(memory.history(entity="city")) == ["Lives in Oslo", "Lives in Bergen", "Lives in Oslo"]
    assert texts(memory.current()) == ["Lives in Oslo"]


def test_the_same_fact_told_again_is_one_fact_with_more_sources(memory, clock):
    teller = Teller(memory, clock)
    teller.tell(facts("Likes tea"))
    for _ in range(3):
        teller.tell("expected", facts("likes tea!"))
    (record,) = memory.records()
    assert record.metadata["derived_from"] == ["e1", "e2", "e3", "e4"]


def test_a_contradiction_keeps_both_facts_and_is_undone_by_one_call(memory, clock):
    teller = Teller(memory, clock)
    teller.tell(facts({"text": "Born in Oslo", "entity": "birthplace"}))
    teller.tell("expected", facts({"text": "Born in Bergen", "entity": "birthplace"}), verdicts((1, "contradicts", 1)))
    oslo, bergen = memory.records()
    assert oslo.status == "current"
    assert bergen.superseded is None
    assert (oslo.metadata["contradicts"], bergen.metadata["contradicts"]) == ([bergen.id], [oslo.id])
    teller.undo(bergen.id)
    assert not any("contradicts" in record.metadata for record in memory.records())


def test_purging_an_episode_purges_what_was_drawn_from_it(memory, clock):
    teller = Teller(memory, clock)
    teller.tell(facts({"text": "Works at Alder Foods", "entity": "employer"}))
    (record,) = memory.records()
    memory.add("A talk", id="e1", kind="episode")
    assert record.id in memory.purge("e1")
    assert memory.records() == []
