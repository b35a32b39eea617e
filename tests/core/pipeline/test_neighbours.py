"""Turns of a conversation gain from what was said next to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nanomem_core import Vault
from nanomem_core.columns import Columns
from nanomem_core.memory import Memory
from nanomem_core.pipeline.neighbours import considered, lift
from nanomem_core.results import SearchResults
from nanomem_core.system import MemorySystem
from nanomem_core.testing import ScriptedGenerator
from tests.core.system.models import Listener

HOUR = 3600.0
TALK = (
    "Where did you go with the red kayak in the end?",
    "Sure, last June.",
    "It rained all the time.",
    "What does your sister teach?",
)


def columns_of(memory: Memory) -> Columns:
    return memory.storage.columns(memory.scope)


def lifted(memory: Memory, scores: Sequence[float]) -> dict[int, float]:
    """What becomes of a score for each row, by row."""
    rows = np.argsort(-np.array(scores), kind="stable")
    columns = columns_of(memory)
    found, values = lift(columns, columns.where("fact"), rows, np.array(scores)[rows])
    assert list(values) == sorted(values, reverse=True)
    return dict(sorted(zip(found.tolist(), values.tolist(), strict=True)))


def say(memory: Memory, *times: float) -> None:
    for number, time in enumerate(times):
        memory.add(f"turn {number}", timestamp=1e6 + time, source="conversation")


def test_a_row_gains_from_the_two_before_and_the_two_after_it(memory: Memory) -> None:
    say(memory, 0, 1, 2, 3, 4, 5)
    assert_allclose(list(lifted(memory, [0, 0, 1, 0, 0, 0]).values()), [0.15, 0.3, 1, 0.3, 0.15, 0])


def test_the_least_score_gives_nothing_and_is_the_floor(memory: Memory) -> None:
    say(memory, 0, 1, 2)
    assert lifted(memory, [0.5, 0.5, 0.5]) == {0: 0.5, 1: 0.5, 2: 0.5}
    assert_allclose(list(lifted(memory, [0.5, 1.5, 0.5]).values()), [0.8, 1.5, 0.8])


def test_rows_beyond_a_pause_are_no_neighbours(memory: Memory) -> None:
    say(memory, 0, HOUR, 2 * HOUR + 1, 2 * HOUR + 2)
    assert_allclose(list(lifted(memory, [0, 1, 0, 0]).values()), [0.3, 1, 0, 0])


def test_the_timeline_is_that_of_the_times_and_not_of_the_writes(memory: Memory) -> None:
    say(memory, 30, 0, 20, 10)
    assert_allclose(list(lifted(memory, [1, 0, 0, 0]).values()), [1, 0, 0.3, 0.15])


def test_turns_of_one_moment_stand_in_the_order_in_which_they_were_written(memory: Memory) -> None:
    say(memory, 0, 0, 0, 0)
    assert_allclose(list(lifted(memory, [1, 0, 0, 0]).values()), [1, 0.3, 0.15, 0])


def test_values_of_declared_chains_are_not_on_the_timeline(memory: Memory) -> None:
    memory.add("turn", timestamp=1e6)
    memory.add("I live in Oslo", entity="city", timestamp=1e6 + 1)
    memory.add("turn", timestamp=1e6 + 2)
    assert_allclose(list(lifted(memory, [1, 0.5, 0]).values()), [1, 0.5, 0.3])


@pytest.mark.parametrize("count", [1, 2])
def test_few_rows_are_no_special_case(memory: Memory, count: int) -> None:
    say(memory, *range(count))
    assert lifted(memory, [0.25] * count) == dict.fromkeys(range(count), 0.25)


def test_more_is_considered_than_is_shown() -> None:
    assert considered(3) == 200
    assert considered(50) == 500


def talk(memory: Memory) -> None:
    for number, text in enumerate(TALK):
        memory.add(text, timestamp=1e6 + number * 60, source="conversation")
    for number in range(30):
        memory.add(f"The {number}th unrelated remark, long after that", timestamp=1e8 + number * 10 * HOUR)


def place(found: SearchResults, text: str) -> int:
    return [hit.text for hit in found].index(text)


def test_an_answer_that_shares_no_word_with_the_question_is_found_by_the_turn_before_it(memory: Memory) -> None:
    talk(memory)
    question = "When was the trip with the red kayak?"
    before, after = (memory.search(question, 40, neighbours=wanted) for wanted in (False, True))
    # The embedder of these tests compares digests, so that only words and neighbours decide.
    assert place(after, TALK[0]) == 0
    assert place(after, "Sure, last June.") <= 2
    assert after[place(after, TALK[1])].score > before[place(before, TALK[1])].score + 0.2


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
def test_scores_descend_and_the_best_hit_stays(memory: Memory, mode: str) -> None:
    talk(memory)
    found = memory.search(TALK[0], 5, mode=mode, neighbours=True)  # type: ignore[arg-type]
    assert found[0].text == TALK[0]
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert len(found) <= 5


def test_what_counts_as_found_is_the_same(memory: Memory) -> None:
    talk(memory)
    with_neighbours, without = (memory.search("kayak", 2, neighbours=wanted) for wanted in (True, False))
    assert with_neighbours.n_above_floor == without.n_above_floor
    assert with_neighbours.truncated == without.truncated
    assert len(with_neighbours) == len(without) == 2


def test_chains_are_still_led_by_what_holds(memory: Memory) -> None:
    talk(memory)
    memory.add("I paddle a red kayak", entity="boat", timestamp=2e6)
    memory.add("Sold it. A canoe now", entity="boat", timestamp=3e6)
    found = memory.search("red kayak", 40, neighbours=True)
    assert found[0].text == "Sold it. A canoe now"
    assert place(found, "Sold it. A canoe now") < place(found, "I paddle a red kayak")


def test_an_empty_memory_gives_nothing(memory: Memory) -> None:
    assert list(memory.search("anything", neighbours=True)) == []


def test_whatever_searches_follows_the_default_of_the_memory_and_what_is_given_counts_first(memory: Memory) -> None:
    talk(memory)
    question, model = "When was the trip with the red kayak?", ScriptedGenerator(["June [1]."] * 9)

    def looked_up(**options: Any) -> list[list[str]]:
        """What each way of asking finds of the talk, in order."""
        with MemorySystem(memory) as system:
            found = system.search(question, 40, **options)
        asked = memory.ask(question, model, top_k=40, max_tokens=9999, **options)
        streamed = memory.ask_stream(question, model, top_k=40, max_tokens=9999, **options)
        turn = memory.chat(question, store=False, top_k=40, **options)
        shown = asked.retrieval["shown"], streamed.question.shown
        assert shown == (len(found), len(found))
        lists = [memory.search(question, 40, **options), found, streamed.question.hits, turn.context]
        return [[hit.text for hit in hits if hit.text in TALK] for hits in lists]

    [plain] = {tuple(order) for order in looked_up()}
    [lifted] = {tuple(order) for order in looked_up(neighbours=True)}
    assert plain != lifted
    memory.neighbours = True
    assert {tuple(order) for order in looked_up()} == {lifted}
    assert {tuple(order) for order in looked_up(neighbours=False)} == {plain}


def test_the_default_is_a_setting(tmp_path: Path) -> None:
    storage = {"use": "arena", "path": str(tmp_path / "memory.dat")}
    with Memory.open(storage=storage, search={"neighbours": True}) as memory:
        assert memory.neighbours
    with Vault(tmp_path / "memory.dat", neighbours=True) as vault:
        assert vault.neighbours


def test_what_is_to_be_one_certain_record_has_no_neighbours(memory: Memory) -> None:
    memory.neighbours = True
    talk(memory)
    before = [memory.history(TALK[1])[-1].text, memory.forget(TALK[1], dry_run=True)[0].score]
    memory.neighbours = False
    assert [memory.history(TALK[1])[-1].text, memory.forget(TALK[1], dry_run=True)[0].score] == before


def test_a_text_for_a_prompt_follows_the_default_too(memory: Memory) -> None:
    talk(memory)
    question = "When was the trip with the red kayak?"

    def order() -> list[str]:
        lines = memory.context(question, 9999).splitlines()
        return [text for line in lines for text in TALK if line.endswith(text)]

    plain = order()
    assert sorted(plain) == sorted(TALK)
    memory.neighbours = True
    assert order() != plain


def test_what_new_messages_are_compared_with_has_no_neighbours(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    search = Memory.search

    def watched(self: Memory, *arguments: Any, **options: Any) -> SearchResults:
        asked[options.get("kind", "fact")] = options.get("neighbours")
        return search(self, *arguments, **options)

    monkeypatch.setattr(Memory, "search", watched)
    memory.neighbours = True
    with MemorySystem(memory, generator=Listener()) as system:
        for number in range(2):
            system.add_messages([{"role": "user", "content": f"fact: Ann likes tea {number}"}])
            system.flush()
            assert system.wait(60)
    assert asked == {"episode": False, "fact": False}
