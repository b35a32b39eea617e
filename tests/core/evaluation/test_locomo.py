from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.errors import FormatError, NotFoundError
from nanomem_core.evaluation.locomo import evaluate, read_locomo
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.fakes import DictStorage, HashEmbedder

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
    assert [turn["id"] for turn in conversation.turns] == ["D1:1", "D1:2", "D2:1"]
    assert conversation.turns[0]["timestamp"].isoformat() == "2024-02-01T12:30:00+00:00"


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
