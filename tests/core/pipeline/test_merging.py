"""New messages go on with a stored episode only where both limits and the model allow it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nanomem_core.changes import Put
from nanomem_core.errors import GeneratorError
from nanomem_core.pipeline.episodes import Episode, Narrative, make_episode
from nanomem_core.pipeline.merging import Merge, choose_merge, gap, merge_changes, move_sources, sources_of
from nanomem_core.pipeline.messages import Message
from nanomem_core.records import Record, Scope
from nanomem_core.testing import DictStorage, ScriptedGenerator
from tests.core.pipeline.test_episodes import START, talk


def stored(title: str = "Trip", count: int = 2) -> Record:
    narrative = Narrative(title, f"About {title}.", START)
    return replace(make_episode(talk(count), narrative, START, "x"), version=1, revision=1)


NEW = Narrative("More on the trip", "They book a hotel.", START + 600)


def test_the_gap_is_what_lies_between_two_conversations() -> None:
    early, late = talk(3), [Message("user", "x", START + 1000), Message("user", "y", START + 1100)]
    assert gap(early, late) == gap(late, early) == 1000 - 120
    assert gap(early, early[1:]) == 0
    assert gap([], early) == float("inf")


def test_without_a_candidate_the_model_is_not_asked() -> None:
    generator = ScriptedGenerator()
    assert choose_merge(NEW, [], generator) is None
    assert generator.calls == []


def test_the_model_chooses_among_those_it_was_shown() -> None:
    answer = {"continues": 2, "title": "Trip with hotel", "content": "All of it."}
    generator = ScriptedGenerator([json.dumps(answer)])
    merge = choose_merge(NEW, [stored("Trip"), stored("Other")], generator)
    assert merge is not None
    assert merge.target.metadata["title"] == "Other"
    assert merge.narrative == Narrative("Trip with hotel", "All of it.", START)
    asked = generator.calls[0].messages[1]["content"]
    assert '<earlier number="2">\nOther\n  \n  About Other.\n</earlier>' in asked


@pytest.mark.parametrize(
    "answer",
    [
        {"continues": None},
        {},
        {"continues": 0, "title": "t", "content": "c"},
        {"continues": 3, "title": "t", "content": "c"},
        {"continues": True, "title": "t", "content": "c"},
        {"continues": "1", "title": "t", "content": "c"},
        {"continues": 1.5, "title": "t", "content": "c"},
        {"continues": 1},
        {"continues": 1, "title": "t", "content": ""},
        {"continues": 1, "title": 5, "content": "c"},
        GeneratorError("down"),
        RuntimeError("a bug"),
    ],
)
def test_any_other_answer_merges_nothing(answer: Any) -> None:
    answers = [answer] if isinstance(answer, Exception) else [json.dumps(answer)] * 2
    assert choose_merge(NEW, [stored(), stored()], ScriptedGenerator(answers)) is None


def test_the_merged_episode_has_all_messages_and_supersedes_the_old_one() -> None:
    scope, storage = Scope(), DictStorage()
    storage.commit(scope, [Put(stored())])
    (old,) = storage.scan(scope)
    new = [Message("user", "a hotel", START + 30, {}, "n1"), Message("user", "booked", START + 600, {}, "n2")]
    merged, changes = merge_changes(Merge(old, Narrative("Both", "All.", START)), new, START + 900, "flushed")
    storage.commit(scope, changes)
    before, after = storage.scan(scope)
    assert [m.message_id for m in Episode.from_record(after).messages] == ["m0", "n1", "m1", "n2"]
    assert after.metadata["merged_from"] == [old.id]
    assert after.metadata["boundary_reason"] == "x; continued: flushed"
    assert (before.text, before.metadata["messages"], before.metadata["message_ids"]) == (old.text, [], [])
    assert before.metadata["merged_into"] == merged.id == after.id
    assert before.chain == after.chain is not None
    assert (before.revision, after.revision) == (1, 2)
    assert "distilled" not in after.metadata
    # And once more.
    merged, changes = merge_changes(Merge(after, Narrative("Three", "All.", START)), talk(1), START + 990, "flushed")
    assert merged.metadata["merged_from"] == [after.id, old.id]
    assert len(merged.metadata["messages"]) == 4


def test_sources_are_renamed_or_left_out_and_none_is_named_twice() -> None:
    fact = Record("f", "x", metadata={"derived_from": ["a", "b", "c"], "k": 1})
    assert sources_of(move_sources(fact, {"a": "c"})) == ["c", "b"]
    assert sources_of(move_sources(fact, {"a": None, "b": None})) == ["c"]
    assert move_sources(fact, {}).metadata == fact.metadata
    assert sources_of(Record("f", "x", metadata={"derived_from": "a"})) == ["a"]
    assert sources_of(Record("f", "x")) == []
