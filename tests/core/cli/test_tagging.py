"""``nanomem tag`` and ``nanomem evaluate chains``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanomem_core import Vault

from .conftest import Nanomem
from .memories import answer


@pytest.fixture
def statements(cwd: Path) -> None:
    with Vault("memory.dat", taggers=()) as vault:
        vault.add("My dog is called Rex.", id="dog")
        vault.add("My gym is Iron Temple.", id="gym", entity="training")
        vault.add("What a week!", id="week")


@pytest.mark.usefixtures("statements")
class TestTag:
    def entities(self, nanomem: Nanomem) -> dict[str, str | None]:
        entries = answer(nanomem("get", "dog", "gym", "week", "--json"))["results"]
        return {entry["id"]: entry["entity"] for entry in entries}

    def test_a_dry_run_shows_what_would_change(self, nanomem: Nanomem) -> None:
        done = nanomem("tag", "--dry-run")
        assert done.exit_code == 0, done.output
        assert "dog" in done.stdout
        assert "My dog is called Rex." in done.stdout
        assert "Asked about 2 statements; 1 record would change." in done.stdout
        assert "gym" not in done.stdout
        assert self.entities(nanomem) == {"dog": None, "gym": "training", "week": None}

    def test_it_asks_and_then_writes_what_it_showed(self, nanomem: Nanomem) -> None:
        refused = nanomem("tag", input="n\n")
        assert refused.exit_code == 1
        assert "My dog is called Rex." in refused.stderr
        assert "nothing was changed" in refused.stderr
        assert self.entities(nanomem)["dog"] is None
        done = nanomem("tag", input="y\n")
        assert done.stdout == "Asked about 2 statements; changed 1 record.\n"
        assert self.entities(nanomem) == {"dog": "dog_name", "gym": "training", "week": None}
        again = nanomem("tag")
        assert again.stdout == "Asked about 2 statements; changed 0 records.\n"

    def test_as_json_and_with_a_filter(self, nanomem: Nanomem) -> None:
        report = answer(nanomem("tag", "--yes", "--json", "--tagger", "keyword", "--filter", "id=week"))
        assert (report["looked_at"], report["untold"], report["changed"], report["changes"]) == (1, 1, 0, [])
        report = answer(nanomem("tag", "--yes", "--json"))
        assert report["changed"] == 1
        assert report["changes"][0]["before"] is None
        assert report["changes"][0]["after"] == "dog_name"

    def test_a_tagger_that_asks_a_model_says_that_there_is_none(self, nanomem: Nanomem) -> None:
        done = nanomem("tag", "--tagger", "llm", "--dry-run")
        assert done.exit_code == 1
        assert "Configure `generator`" in done.stderr

    def test_an_unknown_tagger_is_an_error(self, nanomem: Nanomem) -> None:
        done = nanomem("tag", "--tagger", "keywords", "--dry-run")
        assert done.exit_code == 1
        assert "did you mean 'keyword'" in done.stderr

    def test_without_a_memory_there_is_nothing_to_tag(self, nanomem: Nanomem) -> None:
        Path("memory.dat").unlink()
        assert nanomem("tag").exit_code == 1


class TestEvaluateChains:
    def test_every_tagger_that_can_be_used_is_measured(self, nanomem: Nanomem, cwd: Path) -> None:
        report = answer(nanomem("evaluate", "chains", "--json"))
        assert (report["people"], report["statements"]) == (16, 263)
        rows = {row["taggers"]: row for row in report["taggers"]}
        assert list(rows) == ["declared", "keyword"]
        assert rows["declared"]["accuracy"] == 100
        assert rows["keyword"]["chains"] == 110
        assert rows["keyword"]["by_language"]["german"] == 0
        assert list(cwd.iterdir()) == []

    def test_taggers_have_their_options_from_the_settings_and_may_be_asked_in_turn(
        self, nanomem: Nanomem, cwd: Path
    ) -> None:
        (cwd / "nanomem.yaml").write_text("taggers: [{use: keyword, languages: [german]}]", encoding="utf-8")
        arguments = ("--tagger", "keyword", "--tagger", "keyword,keyword", "--split", "test", "--json")
        report = answer(nanomem("evaluate", "chains", *arguments, NANOMEM_CONFIG="nanomem.yaml"))
        assert report["people"] == 8
        assert [row["taggers"] for row in report["taggers"]] == ["keyword", "keyword,keyword"]
        assert all(row["by_language"]["german"] > 0 for row in report["taggers"])

    def test_the_table_names_the_kinds_and_the_languages(self, nanomem: Nanomem, cwd: Path) -> None:
        file = cwd / "mine.yaml"
        person = {"name": "a", "language": "french", "split": "test", "chains": {"b": "odd_kind"}}
        file.write_text(json.dumps([{**person, "said": [{"b": "Le chat"}, {"b": "Un chat"}]}]), encoding="utf-8")
        done = nanomem("evaluate", "chains", "mine.yaml", "--tagger", "declared")
        assert done.exit_code == 0, done.output
        assert "People: 1; statements: 2." in done.stdout
        assert "odd kind" in done.stdout
        assert "french" in done.stdout

    def test_a_model_s_tagger_that_is_asked_for_needs_a_generator(self, nanomem: Nanomem) -> None:
        done = nanomem("evaluate", "chains", "--tagger", "llm")
        assert done.exit_code == 1
        assert "Configure `generator`" in done.stderr
