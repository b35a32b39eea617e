from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Nanomem

TALK = {
    "session_1_date_time": "12:30 pm on 1 February, 2024",
    "session_1": [
        {"speaker": "Ada", "dia_id": "D1:1", "text": "I bought a red kayak."},
        {"speaker": "Bo", "dia_id": "D1:2", "text": "A kayak? My sister teaches chemistry."},
    ],
    "session_2_date_time": "9:05 am on 3 March, 2024",
    "session_2": [{"speaker": "Ada", "dia_id": "D2:1", "text": "The canoe is green."}],
}
QUESTION = {"question": "Who teaches chemistry?", "evidence": ["D1:1", "D1:2"], "category": 1}


@pytest.fixture
def data(cwd: Path) -> str:
    file = cwd / "locomo10.json"
    file.write_text(json.dumps([{"sample_id": "one", "conversation": TALK, "qa": [QUESTION]}]), encoding="utf-8")
    return file.name


def test_locomo_measures_turns_where_nothing_else_is_asked(nanomem: Nanomem, data: str) -> None:
    done = nanomem("evaluate", "locomo", data, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    [report] = answer["reports"]
    assert (answer["units"], report["turns"], report["records"]) == ("turns", 3, 3)
    assert [mode["mode"] for mode in report["modes"]] == ["vector", "text", "hybrid"]
    assert report["modes"][1]["all_turns"]["1"] == 0


def test_locomo_joins_turns_to_episodes_by_the_segmenter(nanomem: Nanomem, data: str) -> None:
    done = nanomem("evaluate", "locomo", data, "--units", "episodes", "--budget", "100", "--budget", "1", "--json")
    assert done.exit_code == 0, done.output
    [report] = json.loads(done.stdout)["reports"]
    # The pause between the sessions parts them.
    assert (report["turns"], report["records"]) == (3, 2)
    for mode in report["modes"]:
        assert mode["all_turns"]["1"] == 100
        assert mode["within"] == {"1": 0, "100": 100}
        assert 20 < mode["tokens"]["1"] < 40


def test_locomo_has_the_options_of_the_segmenter_from_the_settings(nanomem: Nanomem, data: str) -> None:
    arguments = ("evaluate", "locomo", data, "--units", "episodes", "--json")
    settings = {"NANOMEM_SEGMENTER__USE": "texttiling", "NANOMEM_SEGMENTER__PAUSE": "1e9"}
    done = nanomem(*arguments, NANOMEM_SEGMENTER__BY="embedder", **settings)
    assert json.loads(done.stdout)["reports"][0]["records"] == 1


def test_locomo_prints_the_sizes_and_the_budgets(nanomem: Nanomem, data: str) -> None:
    done = nanomem("evaluate", "locomo", data, "--units", "episodes", "--mode", "text", "--budget", "500")
    assert done.exit_code == 0, done.output
    assert "1 conversations, 3 turns as 2 episodes" in done.stdout
    assert "tokens@10" in done.stdout
    assert "all in 500 tokens" in done.stdout


def test_several_embedders_are_measured_in_memories_of_their_own(nanomem: Nanomem, data: str) -> None:
    arguments = ("--embedder", "lexical", "--embedder", '{"use": "lexical", "dim": 64}', "--last", "1", "--json")
    done = nanomem("evaluate", "locomo", data, *arguments)
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert [(report["embedder"], [mode["mode"] for mode in report["modes"]]) for report in answer["reports"]] == [
        ("lexical-1-512", ["vector", "text", "hybrid"]),
        # Words are counted alike, whatever makes vectors.
        ("lexical-1-64", ["vector", "hybrid"]),
    ]
    for report in answer["reports"]:
        for mode in report["modes"]:
            assert mode["last_all_turns"] == mode["all_turns"]
    printed = nanomem("evaluate", "locomo", data, *arguments[:-1]).stdout
    assert [line.split()[:2] for line in printed.splitlines() if line.startswith("hybrid")][:2] == [
        ["hybrid", "lexical-1-512"],
        ["hybrid", "lexical-1-64"],
    ]
    assert "The last conversations alone:" in printed


def test_an_unknown_embedder_is_an_error_before_anything_is_measured(nanomem: Nanomem, data: str) -> None:
    done = nanomem("evaluate", "locomo", data, "--embedder", "lexicla")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "did you mean 'lexical'" in done.stderr


def test_facts_without_a_generator_are_an_error_that_says_what_to_set(nanomem: Nanomem, data: str) -> None:
    done = nanomem("evaluate", "locomo", data, "--units", "facts")
    assert done.exit_code == 1
    assert "NANOMEM_GENERATOR__USE" in done.stderr
