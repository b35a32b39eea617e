from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.errors import FormatError, GeneratorError, NotFoundError
from nanomem_core.evaluation.locomo import evaluate, read_locomo
from nanomem_core.evaluation.units import episodes, facts, turns
from nanomem_core.interfaces import Generator, Segmenter
from nanomem_core.memory import Memory
from nanomem_core.pipeline.context import estimate_tokens
from nanomem_core.records import Record
from nanomem_core.registry.manager import PluginManager
from nanomem_core.system import MemorySystem
from nanomem_core.testing.fakes import Call, DictStorage, HashEmbedder, ScriptedGenerator

LOCOMO = Path(__file__).parents[4] / "shared" / "data" / "locomo10.json"


def _question(text: str, evidence: list[str], category: int = 4) -> dict[str, Any]:
    return {"question": text, "answer": "", "evidence": evidence, "category": category}


SMALL = [
    {
        "sample_id": "one",
        "conversation": {
            "speaker_a": "Ada",
            "session_2_date_time": "9:05 am on 3 March, 2024",
            "session_2": [{"speaker": "Ada", "dia_id": "D2:1", "text": "The kayak is green now."}],
            "session_1_date_time": "12:30 pm on 1 February, 2024",
            "session_1": [
                {"speaker": "Ada", "dia_id": "D1:1", "text": "I bought a red kayak."},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "My sister teaches chemistry."},
            ],
        },
        "qa": [
            _question("Who teaches chemistry?", ["D1:2"]),
            _question("What happened to the kayak?", ["D1:1; D2:01"], category=1),
            _question("What was never said?", ["D1:1"], category=5),
            _question("Which turn is this about?", []),
            _question("Which turn is missing?", ["D9:9"]),
        ],
    }
]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps(SMALL), encoding="utf-8")
    return path


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(DictStorage(), HashEmbedder(), taggers=(), plugins=PluginManager()) as memory:
        yield memory


def test_turns_are_read_in_the_order_of_their_sessions_with_their_times(small: Path) -> None:
    [conversation] = read_locomo(small)
    assert [turn.id for turn in conversation.turns] == ["D1:1", "D1:2", "D2:1"]
    assert conversation.turns[0].time.isoformat() == "2024-02-01T12:30:00+00:00"


def test_questions_without_a_known_turn_and_those_of_category_5_are_left_out(small: Path) -> None:
    [conversation] = read_locomo(small)
    assert [(q.text, set(q.evidence)) for q in conversation.questions] == [
        ("Who teaches chemistry?", {"D1:2"}),
        ("What happened to the kayak?", {"D1:1", "D2:1"}),
    ]


def test_recall_counts_all_and_any_evidence_turns(small: Path, memory: Memory) -> None:
    [text] = evaluate(memory, read_locomo(small), modes=["text"]).modes
    assert text.questions == 2
    # One of the two turns about the kayak can be first, both are among the first five.
    assert text.all_turns == {1: 50.0, 5: 100.0, 10: 100.0, 20: 100.0}
    assert text.any_turn[1] == 100.0
    assert text.by_category["multi-hop"][1] == 0.0


def test_the_last_conversations_are_also_told_by_themselves(tmp_path: Path, memory: Memory) -> None:
    # The second one asks for a turn that no word of the question finds.
    other = {**SMALL[0], "sample_id": "two", "qa": [_question("Who teaches chemistry?", ["D2:1"])]}
    path = tmp_path / "two.json"
    path.write_text(json.dumps([*SMALL, other]), encoding="utf-8")
    [text] = evaluate(memory, read_locomo(path), modes=["text"], last=1).modes
    assert text.all_turns[20] == pytest.approx(200 / 3)
    assert text.last_all_turns == text.last_any_turn == {1: 0.0, 5: 0.0, 10: 0.0, 20: 0.0}


def test_neighbours_find_a_turn_that_shares_no_word_with_the_question(tmp_path: Path) -> None:
    talk: dict[str, Any] = {
        "session_1_date_time": "12:30 pm on 1 February, 2024",
        "session_1": [
            {"speaker": "Ada", "dia_id": "D1:1", "text": "I bought a red kayak."},
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Sure."},
        ],
    }
    for number in range(2, 32):
        talk[f"session_{number}_date_time"] = f"12:30 pm on {number - 1} March, 2024"
        talk[f"session_{number}"] = [{"speaker": "Cy", "dia_id": f"D{number}:1", "text": f"Remark {number}"}]
    path = tmp_path / "neighbours.json"
    asked = [_question("Who bought a red kayak?", ["D1:2"])]
    path.write_text(json.dumps([{"sample_id": "one", "conversation": talk, "qa": asked}]), encoding="utf-8")
    found = {}
    for neighbours in (False, True):
        with Memory(DictStorage(), HashEmbedder(), taggers=(), plugins=PluginManager()) as memory:
            [found[neighbours]] = evaluate(memory, read_locomo(path), modes=["hybrid"], neighbours=neighbours).modes
    assert found[False].all_turns[5] == 0
    assert found[True].all_turns[5] == 100


class _Sessions(Segmenter):
    name = "sessions"

    def split(self, messages: Sequence[Record], generator: Generator | None = None) -> list[list[int]]:
        times = sorted({message.valid_from for message in messages})
        return [[n for n, message in enumerate(messages) if message.valid_from == time] for time in times]


def test_a_turn_is_found_where_a_unit_that_holds_it_is(small: Path, memory: Memory) -> None:
    report = evaluate(memory, read_locomo(small), modes=["text"], ingest=partial(episodes, segmenter=_Sessions()))
    assert (report.turns, report.records) == (3, 2)
    [text] = report.modes
    assert memory.get("D1:1", user="one")["text"] == (
        "12:30 pm on 1 February, 2024\nAda: I bought a red kayak.\nBo: My sister teaches chemistry."
    )
    # The first session answers the first question; for the second, both sessions are needed.
    assert text.all_turns == {1: 50.0, 5: 100.0, 10: 100.0, 20: 100.0}
    assert text.any_turn[1] == 100.0


def _drawn(call: Call) -> str:
    """One fact of each episode, in the words of its last message; nothing else can be answered."""
    if call.schema is None or "facts" not in call.schema["properties"]:
        raise GeneratorError("not today")
    text = "Ada has a kayak." if "bought" in call.messages[-1]["content"] else "The kayak of Ada is green."
    fact = {"text": text, "entity": None, "category": "preference", "confidence": 0.9, "since": None}
    return json.dumps({"facts": [fact]})


def test_a_fact_holds_the_turns_of_the_episode_that_it_was_drawn_from(small: Path, memory: Memory) -> None:
    [conversation] = read_locomo(small)
    with MemorySystem(memory, segmenter=_Sessions(), generator=ScriptedGenerator(_drawn)) as system:
        found = facts(memory, "one", conversation.turns, system=system)
    assert {unit.text: set(unit.turns) for unit in found} == {
        "Ada has a kayak.": {"D1:1", "D1:2"},
        "The kayak of Ada is green.": {"D2:1"},
    }


def test_facts_that_could_not_be_drawn_are_an_error_and_no_figure(small: Path, memory: Memory) -> None:
    def fail(call: Call) -> str:
        raise GeneratorError("not today")

    with (
        MemorySystem(memory, segmenter=_Sessions(), generator=ScriptedGenerator(fail)) as system,
        pytest.raises(GeneratorError, match=r"one: expected the facts of every episode; .* not today"),
    ):
        evaluate(memory, read_locomo(small), modes=["text"], ingest=partial(facts, system=system))


def test_the_size_of_what_is_found_is_told_and_can_be_limited(small: Path, memory: Memory) -> None:
    sizes = {
        turn.id: estimate_tokens(f"{turn.date} {turn.speaker}: {turn.text}") for turn in read_locomo(small)[0].turns
    }
    one, both = sizes["D1:2"], sizes["D1:1"] + sizes["D2:1"]
    assert one < both
    budgets = (one - 1, one, both - 1, both)
    [text] = evaluate(memory, read_locomo(small), modes=["text"], budgets=budgets).modes
    assert text.within == {one - 1: 0.0, one: 50.0, both - 1: 50.0, both: 100.0}
    # The first question finds one turn, the second one both others; a search by words brings no more.
    assert text.tokens[5] == (one + both) / 2


def test_a_budget_is_filled_even_where_it_takes_more_hits_than_are_counted(tmp_path: Path, memory: Memory) -> None:
    many = [{"speaker": "Ada", "dia_id": f"D1:{n}", "text": f"kayak {n}"} for n in range(1, 41)]
    talk = {"session_1_date_time": "12:30 pm on 1 February, 2024", "session_1": many}
    path = tmp_path / "many.json"
    asked = [_question("kayak", [f"D1:{n}" for n in range(1, 41)])]
    path.write_text(json.dumps([{"sample_id": "many", "conversation": talk, "qa": asked}]), encoding="utf-8")
    [text] = evaluate(memory, read_locomo(path), modes=["text"], budgets=[1000]).modes
    assert text.all_turns[20] == 0.0
    assert text.within == {1000: 100.0}


def test_a_missing_and_a_foreign_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="locomo10"):
        read_locomo(tmp_path / "absent.json")
    foreign = tmp_path / "foreign.json"
    foreign.write_text('[{"name": "x"}]', encoding="utf-8")
    with pytest.raises(FormatError, match=r"foreign\.json"):
        read_locomo(foreign)


@pytest.mark.skipif(not LOCOMO.exists(), reason="the LoCoMo data set is not beside the project")
def test_the_offline_parts_find_the_evidence_that_the_documentation_promises(tmp_path: Path) -> None:
    from nanomem_core import Vault

    conversations = read_locomo(LOCOMO)
    assert sum(len(conversation.turns) for conversation in conversations) == 5882
    with Vault(tmp_path / "memory.dat", durability="os") as vault:
        text, hybrid = evaluate(vault, conversations, modes=["text", "hybrid"]).modes
    assert text.questions == hybrid.questions == 1536
    assert (text.all_turns[10], text.all_turns[20]) >= (57.0, 62.5)
    assert hybrid.all_turns[10] >= 57.0
    assert hybrid.all_turns[20] >= 62.5
    with Vault(tmp_path / "neighbours.dat", durability="os") as vault:
        [lifted] = evaluate(vault, conversations, modes=["hybrid"], neighbours=True).modes
    assert lifted.all_turns[10] >= 62.5
    assert lifted.all_turns[20] >= 67.5


@pytest.mark.skipif(not LOCOMO.exists(), reason="the LoCoMo data set is not beside the project")
def test_episodes_hold_more_of_the_evidence_than_turns_of_the_same_size(tmp_path: Path) -> None:
    from nanomem_core import Vault

    conversations = read_locomo(LOCOMO)[:3]
    segmenter = PluginManager.discover().build("segmenter", "texttiling")
    found = {}
    for name, ingest in (("turns", turns), ("episodes", partial(episodes, segmenter=segmenter))):
        with Vault(tmp_path / f"{name}.dat", durability="os") as vault:
            [found[name]] = evaluate(vault, conversations, modes=["hybrid"], ingest=ingest, budgets=[2000]).modes
    assert found["episodes"].within[2000] > found["turns"].within[2000] + 3
