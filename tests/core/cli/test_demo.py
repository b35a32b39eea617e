"""``nanomem demo``: what it shows is what the memory answers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from nanomem_core import Vault
from nanomem_core.cli.story import STORY

from .conftest import Nanomem
from .memories import answer, texts


@pytest.fixture
def shown(nanomem: Nanomem) -> dict[str, list[dict[str, object]]]:
    """What was answered, by the question."""
    return {question["call"]: question["results"] for question in answer(nanomem("demo", "--json"))["asked"]}


def test_the_story_has_what_the_memory_is_for() -> None:
    assert 12 <= len(STORY) <= 20
    assert any(said.ends for said in STORY)
    assert any(said.since and not said.ends for said in STORY)
    assert any(said.source.endswith(".md") for said in STORY)
    assert [said.told for said in STORY] == sorted(said.told for said in STORY)


def test_the_current_value_leads_though_an_older_one_is_more_like_the_question(
    shown: dict[str, list[dict[str, object]]],
) -> None:
    [hits] = [results for call, results in shown.items() if call.startswith("search('which team")]
    first, likest = hits[0], max(hits, key=lambda hit: float(str(hit["cosine"])))
    assert (first["status"], likest["status"]) == ("current", "superseded")
    assert first["entity"] == likest["entity"] == "team"


def test_what_was_true_and_what_was_known_differ_for_a_backdated_correction(
    shown: dict[str, list[dict[str, object]]],
) -> None:
    asked = [results for call, results in shown.items() if "as_of" in call]
    assert [[hit["text"] for hit in hits] for hits in asked] == [
        ["For the tax form: in mid April I had already moved to Delft."],
        ["My flat is in Utrecht, by the canal."],
    ]


def test_every_answer_is_the_same_after_reopening(nanomem: Nanomem) -> None:
    report = answer(nanomem("demo", "--json"))
    assert report["after_reopening"] == {"asked": len(report["asked"]), "same": len(report["asked"])}


def test_the_page_shows_each_call_and_the_two_ends_of_a_chain(nanomem: Nanomem) -> None:
    page = nanomem("demo").stdout
    for question in answer(nanomem("demo", "--json"))["asked"]:
        assert question["call"] in page
    for label in ("SUPERSEDED 8 months ago", "current", "ended"):
        assert label in page


def test_the_same_page_is_shown_whenever_it_is_run(nanomem: Nanomem) -> None:
    def lines() -> list[str]:
        return nanomem("demo").stdout.splitlines()[:-1]  # the last line tells the size of the file

    assert lines() == lines()


def test_nothing_is_left_unless_it_is_kept(
    nanomem: Nanomem, cwd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert nanomem("demo").exit_code == 0
    assert [*temporary.iterdir(), *cwd.iterdir()] == []
    assert nanomem("demo", "--keep", "story.dat").exit_code == 0
    with Vault("story.dat", read_only=True) as vault:
        assert len(vault.records()) == sum(not said.ends for said in STORY)
    assert len(texts(nanomem("history", "--entity", "city", "--vault", "story.dat", "--json"))) == 3
