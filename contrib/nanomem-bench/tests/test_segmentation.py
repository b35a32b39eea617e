"""``nanomem bench segmentation``: its files, its measures, and the command."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nanomem_bench.segmentation.dialogues import read_dialogues
from nanomem_bench.segmentation.scores import labels, pairs, score, window

from nanomem_core.errors import FormatError, NotFoundError
from nanomem_plugins.texttiling.segmenter import TextTilingSegmenter

DATA = Path(__file__).parents[4] / "shared" / "data" / "segmentation"

MARKED = "user: Hi.[NEWLINE]agent: Hello.[NEWLINE][BOUNDARY][NEWLINE]user: Next: tea?[NEWLINE]agent: Yes."


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path


# Files.


def test_the_three_forms_of_a_dialogue_are_read(tmp_path: Path) -> None:
    texts = ["Hi.", "Hello.", "Next: tea?", "Yes."]
    file = written(
        tmp_path / "dialogues.jsonl",
        {"id": "a", "dialogue": MARKED},
        {"utterances": texts, "segments": [2, 2]},
        {"utterances": texts, "groups": [[1, 3], [2, 0]]},
    )
    marked, counted, grouped = read_dialogues(file)
    assert [message.text for message in marked.messages] == texts
    assert [message.metadata["role"] for message in marked.messages] == ["user", "agent", "user", "agent"]
    assert [message.text for message in counted.messages] == texts
    assert marked.groups == counted.groups == [[0, 1], [2, 3]]
    assert grouped.groups == [[0, 2], [1, 3]]


def test_what_stands_before_a_colon_is_a_speaker_only_if_every_message_has_one(tmp_path: Path) -> None:
    file = written(tmp_path / "d.jsonl", {"utterances": ["note: tea", "no speaker"], "segments": [2]})
    [dialogue] = read_dialogues(file)
    assert [message.text for message in dialogue.messages] == ["note: tea", "no speaker"]
    assert dialogue.messages[0].metadata == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "found list"),
        ({"text": "Hi."}, "expected the key dialogue, .* found text"),
        ({"dialogue": "[NEWLINE]"}, "no message"),
        ({"utterances": ["a", 1], "segments": [2]}, "expected texts"),
        ({"utterances": ["a", "b"], "segments": [1]}, "each of its 2 messages in one segment"),
        ({"utterances": ["a", "b"], "segments": ["2"]}, "expected numbers of messages; found '2'"),
        ({"utterances": ["a", "b"], "groups": [[0, 1], [1]]}, "each of its 2 messages in one segment"),
        ({"utterances": ["a", "b"], "groups": [[0], [True]]}, "each of its 2 messages in one segment"),
        ({"utterances": ["a"], "groups": 1}, "int"),
    ],
    ids=str,
)
def test_a_line_of_another_form_is_named(line: Any, message: str, tmp_path: Path) -> None:
    file = written(tmp_path / "d.jsonl", {"dialogue": "a"}, line)
    with pytest.raises(FormatError, match=rf"d\.jsonl:2: .*{message}"):
        read_dialogues(file)


def test_a_file_that_is_absent_empty_or_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_dialogues(tmp_path / "absent.jsonl")
    with pytest.raises(FormatError, match="found none"):
        read_dialogues(written(tmp_path / "empty.jsonl"))
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="not UTF-8"):
        read_dialogues(tmp_path / "binary.jsonl")


# Measures.


def test_a_boundary_is_where_the_next_message_is_of_another_group() -> None:
    assert labels([[0, 1], [2, 3]]) == "0100"
    assert labels([[0, 2], [1, 3]]) == "1110"
    assert labels([[0]]) == "0"


def test_the_window_is_half_a_mean_segment_but_at_least_two() -> None:
    assert window("0" * 20) == 10
    assert window("0001" * 4 + "0000") == 2
    assert window("0" * 9 + "1" + "0" * 10) == 5
    assert window("0") == 1


def test_pairs_are_counted_in_right_groups_in_proposed_ones_and_in_both() -> None:
    assert pairs([[0, 1, 2], [3]], [[0, 1], [2, 3]]) == {"right": 3, "proposed": 2, "both": 1}


def test_scores_are_those_computed_by_hand() -> None:
    pytest.importorskip("nltk", reason="Pk and WindowDiff are measured by NLTK")
    # Right 0001000, proposed 0010010, k = 2: the windows of right are 0 0 1 1 0 0, of proposed 0 1 1 0 1 1.
    first = ([[0, 1, 2, 3], [4, 5, 6]], [[0, 1, 2], [3, 4, 5], [6]])
    # Right 0100, proposed 0100: nothing is wrong.
    second = ([[0, 1], [2, 3]], [[0, 1], [2, 3]])
    found = score([first, second])
    assert found.pk == pytest.approx((4 / 6 + 0) / 2)
    assert found.window_diff == pytest.approx((4 / 6 + 0) / 2)
    assert (found.boundaries, found.expected) == (3, 2)
    assert found.boundary_f1 == pytest.approx(2 * 1 / (3 + 2))
    assert found.score == pytest.approx(0.5 * 0.4 + 0.25 * (2 / 3) + 0.25 * (2 / 3))
    # Pairs: right 6 + 3 + 2, proposed 3 + 3 + 2, both 3 + 1 + 2.
    assert found.pairwise_f1 == pytest.approx(2 * 6 / (11 + 8))


def test_windowdiff_counts_boundaries_where_pk_only_asks_whether_there_is_one() -> None:
    pytest.importorskip("nltk", reason="Pk and WindowDiff are measured by NLTK")
    # Right 010000, proposed 110000, k = 2: windows 1 1 0 0 0 against 2 1 0 0 0.
    found = score([([[0, 1], [2, 3, 4, 5]], [[0], [1], [2, 3, 4, 5]])])
    assert found.pk == 0
    assert found.window_diff == pytest.approx(1 / 5)


def test_groups_that_are_right_score_best_whether_they_interleave_or_not() -> None:
    pytest.importorskip("nltk", reason="Pk and WindowDiff are measured by NLTK")
    interleaved = [[0, 2, 3], [1, 4]]
    found = score([(interleaved, interleaved), ([[0]], [[0]])])
    assert (found.pk, found.window_diff, found.boundary_f1, found.score, found.pairwise_f1) == (0, 0, 1, 1, 1)


# The command.


def run(cwd: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NANOMEM_")}
    return subprocess.run(
        [sys.executable, "-m", "nanomem_core", "bench", "segmentation", *arguments],
        cwd=cwd,
        env=kept | {"NANOMEM_CONFIG": "", "PYTHONIOENCODING": "utf-8"} | environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """Five dialogues of two topics each; the sixth has one."""
    dice = random.Random(1)
    topics = ["tea milk sugar cup", "train ticket seat platform", "goal ball team match"]
    lines = []
    for number in range(6):
        first, second = dice.sample(topics, 2)
        said = [" ".join(dice.sample(topic.split(), 3)) for topic in [first] * 4 + [second] * (4 if number < 5 else 0)]
        lines.append({"utterances": said, "segments": [4, 4] if number < 5 else [4]})
    return written(tmp_path / "talk.jsonl", *lines)


def test_the_command_measures_segmenters_beside_baselines(talk: Path) -> None:
    pytest.importorskip("nltk", reason="Pk and WindowDiff are measured by NLTK")
    done = run(talk.parent, talk.name, "--json", "--markdown", "report.md")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["library"].startswith("nltk ")
    [file] = report["files"]
    assert (file["dialogues"], file["messages"], file["groups"]) == (6, 44, 11)
    results = {result["segmenter"]: result for result in file["results"]}
    assert list(results) == ["none", "random", "even", "texttiling"]
    assert results["none"]["boundaries"] == results["none"]["boundary_f1"] == 0
    assert results["texttiling"]["boundary_f1"] == 1
    # A mean segment has four messages, as here every one has.
    assert results["even"]["pk"] == 0
    assert all(result["expected"] == 5 and result["seconds_a_dialogue"] >= 0 for result in results.values())
    assert "| texttiling | 0.000 | 0.000 | 1.000 | 1.000 |" in (talk.parent / "report.md").read_text(encoding="utf-8")


def test_the_random_baseline_follows_its_seed(talk: Path) -> None:
    pytest.importorskip("nltk", reason="Pk and WindowDiff are measured by NLTK")

    def boundaries(seed: str) -> Any:
        done = run(talk.parent, talk.name, "--segmenter", "random", "--seed", seed, "--json")
        [result] = json.loads(done.stdout)["files"][0]["results"]
        return result["boundary_f1"], result["boundaries"]

    assert boundaries("1") == boundaries("1")
    assert len({boundaries(seed) for seed in "12345"}) > 1


def test_segmenters_have_the_options_and_the_embedder_of_the_settings(talk: Path) -> None:
    pytest.importorskip("nltk", reason="Pk and WindowDiff are measured by NLTK")
    settings = {"NANOMEM_SEGMENTER__USE": "texttiling", "NANOMEM_SEGMENTER__BY": "embedder"}

    def boundaries(**more: str) -> int:
        done = run(talk.parent, talk.name, "--segmenter", "texttiling", "--json", **settings, **more)
        assert done.returncode == 0, done.stderr
        [result] = json.loads(done.stdout)["files"][0]["results"]
        return int(result["boundaries"])

    assert boundaries() > 0
    assert boundaries(NANOMEM_SEGMENTER__THRESHOLD="99") == 0


def test_a_segmenter_that_is_not_there_and_a_bad_file_are_named(talk: Path) -> None:
    pytest.importorskip("nltk", reason="Pk and WindowDiff are measured by NLTK")
    done = run(talk.parent, talk.name, "--segmenter", "texttilling")
    assert done.returncode == 1
    assert "texttiling" in done.stderr
    done = run(talk.parent, "absent.jsonl")
    assert done.returncode == 2
    assert "absent.jsonl" in done.stderr


def test_the_help_of_bench_leads_to_the_help_of_segmentation(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    assert done.returncode == 0
    assert "Usage: nanomem bench segmentation [OPTIONS] FILE..." in done.stdout


@pytest.mark.skipif(not DATA.exists(), reason="the published dialogues are not beside the project")
def test_texttiling_reaches_on_published_dialogues_what_the_documentation_says() -> None:
    pytest.importorskip("nltk", reason="Pk and WindowDiff are measured by NLTK")
    segmenter = TextTilingSegmenter()
    for name, pk, window_diff, boundary_f1 in (("tiage_test", 0.45, 0.5, 0.29), ("dialseg711_test", 0.33, 0.39, 0.48)):
        dialogues = read_dialogues(DATA / f"{name}.jsonl")
        found = score((dialogue.groups, segmenter.segment(dialogue.messages)) for dialogue in dialogues)
        assert found.pk <= pk
        assert found.window_diff <= window_diff
        assert found.boundary_f1 >= boundary_f1
