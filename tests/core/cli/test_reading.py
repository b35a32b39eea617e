"""``nanomem search``, ``history``, ``as-of``, ``get``, ``changes``, ``volatility``, ``current`` and ``entities``."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nanomem_core import Vault

from .conftest import Nanomem
from .memories import answer, job_history, texts


@pytest.fixture
def memory(cwd: Path) -> list[str]:
    return job_history()


def test_a_hit_has_its_date_its_standing_its_score_and_its_source(memory: list[str], nanomem: Nanomem) -> None:
    lines = nanomem("search", "where do I work?", "--entity", "employer").stdout.splitlines()
    assert lines[0].split() == ["#", "date", "(UTC)", "standing", "text", "score", "source"]
    assert lines[2].split()[:3] == ["1", "2026-02-01", "current"]
    assert "Moved to Birch Labs" in lines[2]
    assert lines[3].split()[:3] == ["2", "2025-01-10", "SUPERSEDED"]
    assert "I work at Alder Foods" in lines[3]
    assert lines[3].split()[-1] == "cli"


def test_json_of_a_search_has_what_was_cut_and_the_label(memory: list[str], nanomem: Nanomem) -> None:
    found = answer(nanomem("search", "engineer at Alder Foods", "-k", "1", "--min-score", "0.01", "--json"))
    assert found["truncated"] is (found["n_above_floor"] > 1)
    both = answer(nanomem("search", "where do I work?", "--entity", "employer", "--json"))["results"]
    assert [hit["label"].partition(" ")[0] for hit in both] == ["", "SUPERSEDED"]
    assert [hit["superseded"] for hit in both] == [False, True]
    with Vault("memory.dat", read_only=True) as vault:
        assert {key for hit in both for key in hit} - set(vault.search("work")[0]) == {"label"}


def test_what_was_cut_is_told_on_the_last_line(cwd: Path, nanomem: Nanomem) -> None:
    with Vault("memory.dat") as vault:
        for number in range(5):
            vault.add(f"Server {number} has a backup", source="runbook.md")
    last = nanomem("search", "server backup", "-k", "2", "--min-score", "0.1").stdout.splitlines()[-1]
    with Vault("memory.dat", read_only=True) as vault:
        assert last == vault.search("server backup", 2, min_score=0.1).explain()
    assert last.startswith("This answer is incomplete")
    assert "incomplete" not in nanomem("search", "server backup", "-k", "2").stdout


def test_nothing_found_is_said(memory: list[str], nanomem: Nanomem) -> None:
    assert nanomem("search", "zebra", "--mode", "text").stdout == "Nothing was found.\n"
    assert answer(nanomem("search", "zebra", "--mode", "text", "--json"))["results"] == []


def test_where_there_are_only_conversations_it_is_said_how_to_search_them(cwd: Path, nanomem: Nanomem) -> None:
    with Vault("memory.dat") as vault:
        vault.add("ann: The hut has no stove", kind="episode")
        vault.add("ann: Has it one?", kind="message")
        vault.add("bob: No.", kind="message")
    found = nanomem("search", "stove").stdout
    assert found == (
        "Nothing was found.\n"
        "There are 2 messages and 1 episode, which --kind message or --kind episode or --kind all searches.\n"
    )
    assert answer(nanomem("search", "stove", "--json"))["other_kinds"] == {"message": 2, "episode": 1}
    for kind in ("episode", "all"):
        assert "The hut has no stove" in nanomem("search", "stove", "--kind", kind).stdout


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["topic=health"], {"Peanuts make me ill"}),
        (['{"topic": "health"}'], {"Peanuts make me ill"}),
        (["source=notes.md"], {"Peanuts are legumes"}),
        (["source=cli", "topic=health"], {"Peanuts make me ill"}),
        (["source=cli", "topic=sport"], set()),
        (['topic={"$exists": false}', "source=notes.md"], {"Peanuts are legumes"}),
    ],
)
def test_filters_are_pairs_or_json_and_all_must_match(
    filters: list[str], expected: set[str], memory: list[str], nanomem: Nanomem
) -> None:
    options = [word for each in filters for word in ("--filter", each)]
    assert set(texts(nanomem("search", "peanuts", *options, "-k", "9", "--json"))) == expected


@pytest.mark.parametrize(("stored", "asked"), [(5, "5"), ("5", "5"), ("007", "007"), (True, "true"), (1.5, "1.5")])
def test_a_pair_matches_a_value_as_it_was_stored(stored: object, asked: str, cwd: Path, nanomem: Nanomem) -> None:
    with Vault("memory.dat") as vault:
        vault.add("the one", metadata={"n": stored})
        vault.add("the other", metadata={"n": "other"})
    assert texts(nanomem("search", "the", "--filter", f"n={asked}", "--json")) == ["the one"]


def test_the_past_can_be_asked_for(memory: list[str], nanomem: Nanomem) -> None:
    result = nanomem("as-of", "2025-06-01", "where do I work?", "--entity", "employer")
    assert result.stdout.startswith("As of 2025-06-01:\n")
    assert "Alder Foods" in result.stdout
    assert "Birch" not in result.stdout
    assert texts(nanomem("as-of", "2025-06-01", "--json")) == ["I work at Alder Foods as an engineer"]
    assert texts(nanomem("as-of", "1748736000", "--json")) == ["I work at Alder Foods as an engineer"]
    assert nanomem("as-of", "2001-01-01").stdout == "As of 2001-01-01:\nNo fact held then.\n"


def test_what_was_known_then_can_be_asked_for(memory: list[str], nanomem: Nanomem) -> None:
    assert texts(nanomem("search", "peanuts", "--known-at", "2026-01-01", "--json")) == []
    assert texts(nanomem("search", "peanuts ill", "--known-at", "2999-01-01", "-k", "1", "--json"))


def test_history_counts_the_whole_chain_when_it_shows_less(memory: list[str], nanomem: Nanomem) -> None:
    result = nanomem("history", "--entity", "employer", "--max", "1")
    assert "Alder" not in result.stdout
    assert result.stdout.endswith("The newest 1 of 2 values.\n")
    part = answer(nanomem("history", "--entity", "employer", "-n", "1", "--json"))
    assert (part["total"], part["returned"], len(part["results"])) == (2, 1, 1)
    whole = texts(nanomem("history", "--id", memory[0], "--json"))
    assert whole == ["I work at Alder Foods as an engineer", "Moved to Birch Labs"]


def test_history_says_what_a_single_value_means(cwd: Path, nanomem: Nanomem) -> None:
    with Vault("memory.dat", taggers=[]) as vault:
        vault.add("My shoe size is 42", entity="shoe size")
        loose = vault.add("The sky was red")
        gone = vault.add("The code is 7431")
        vault.purge(gone)
    assert "nothing has replaced it" in nanomem("history", "--entity", "shoe size").stdout
    assert "nobody knows whether it has changed" in nanomem("history", "--id", loose).stdout
    assert "was purged" in nanomem("history", "--id", gone).stdout
    assert nanomem("history", "--entity", "hat size").stdout == "No such fact is remembered.\n"


def test_a_record_is_shown_whole(cwd: Path, nanomem: Nanomem) -> None:
    text = "line one\n" + "long " * 200 + "\nlast line"
    with Vault("memory.dat") as vault:
        id = vault.add(text, metadata={"n": 5}, entity="essay", timestamp="2026-01-02T03:04:05Z")
    shown = nanomem("get", id).stdout
    assert shown.endswith(text.strip() + "\n")
    assert "true from: 2026-01-02 03:04" in shown
    assert "entity: essay (declared)" in shown
    assert "metadata n: 5" in shown
    result = nanomem("get", id, "nope", "--json")
    assert result.exit_code == 1
    assert '"missing": [\n    "nope"' in result.stdout


def test_ids_are_shown_on_request(memory: list[str], nanomem: Nanomem) -> None:
    for words in (["search", "Birch Labs"], ["history", "--entity", "employer"], ["current"], ["as-of", "2026-06-01"]):
        assert memory[1] in nanomem(*words, "--ids").stdout
        assert memory[1] not in nanomem(*words).stdout


def test_changes_show_the_old_value_beside_the_new_one(memory: list[str], nanomem: Nanomem) -> None:
    lines = nanomem("changes", "--since", "2026-01-01", "--entity", "employer").stdout.splitlines()
    assert len(lines) == 3
    assert lines[2].split()[:3] == ["2026-02-01", "changed", "employer"]
    assert lines[2].endswith("I work at Alder Foods as an engineer")
    everything = answer(nanomem("changes", "--json"))["results"]
    assert [change["change"] for change in everything] == ["added", "added", "added", "changed"]
    assert nanomem("changes", "--since", "2026-03-01").stdout == "Nothing changed.\n"
    assert len(answer(nanomem("changes", "--limit", "2", "--json"))["results"]) == 2


def test_volatility_gives_the_interval_between_changes(memory: list[str], nanomem: Nanomem) -> None:
    line = nanomem("volatility").stdout.splitlines()[2]
    assert line.split()[:4] == ["employer", "2", "13", "months"]
    [row] = answer(nanomem("volatility", "--json"))["results"]
    days = (datetime(2026, 2, 1, tzinfo=UTC) - datetime(2025, 1, 10, tzinfo=UTC)).days
    assert row["intervals"] == [days * 86400.0]
    assert nanomem("volatility", "--min-revisions", "3").stdout == "No fact has had 3 values.\n"


def test_current_and_entities_list_the_facts(memory: list[str], nanomem: Nanomem) -> None:
    assert texts(nanomem("current", "--json")) == ["Moved to Birch Labs"]
    assert "Moved to Birch Labs" in nanomem("current").stdout
    [row] = answer(nanomem("entities", "--json"))["results"]
    assert (row["entity"], row["declared"], row["n_revisions"]) == ("employer", True, 2)
    line = nanomem("entities").stdout.splitlines()[2]
    assert line.split() == ["employer", "caller", "2", "2026-02-01", "Moved", "to", "Birch", "Labs"]


def test_chains_of_several_users_are_told_apart(cwd: Path, nanomem: Nanomem) -> None:
    with Vault("memory.dat") as vault:
        vault.add("tea", entity="drink", metadata={"user_id": "ann"})
        vault.add("coffee", entity="drink", metadata={"user_id": "bo"})
    shown = nanomem("entities").stdout
    assert "drink (user_id=ann)" in shown
    assert "drink (user_id=bo)" in shown
    asked = nanomem("history", "--entity", "drink")
    assert asked.exit_code == 1
    assert "filter on user_id" in asked.stderr
    assert texts(nanomem("history", "--entity", "drink", "--filter", "user_id=bo", "--json")) == ["coffee"]


def test_control_characters_of_a_text_do_not_reach_the_terminal(cwd: Path, nanomem: Nanomem) -> None:
    with Vault("memory.dat") as vault:
        id = vault.add("red \x1b[31malert\x07 \x9b2J", metadata={"k": "\x1b[0m"}, source="a\x1b[1m")
    for words in (["search", "alert"], ["get", id], ["changes"], ["history", "--id", id], ["inspect"]):
        shown = nanomem(*words).stdout
        assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert "\\x1b[31malert\\x07" in nanomem("get", id).stdout


def test_users_and_agents_have_memories_of_their_own(cwd: Path, nanomem: Nanomem) -> None:
    assert nanomem("add", "tea", "--user", "ann").exit_code == 0
    assert nanomem("--user", "ann", "--agent", "tutor", "add", "coffee").exit_code == 0
    assert texts(nanomem("search", "tea coffee", "--user", "ann", "--json")) == ["tea"]
    assert texts(nanomem("search", "tea coffee", "--user", "ann", "--agent", "tutor", "--json")) == ["coffee"]
    assert texts(nanomem("search", "tea coffee", "--json")) == []


def test_a_question_keeps_what_it_computed_where_it_may_write_and_a_listing_never_does(
    cwd: Path, nanomem: Nanomem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Vault("memory.dat", taggers=()) as vault:
        vault.add_many({"text": f"cup {number} of tea", "timestamp": number} for number in range(1100))
    assert nanomem("current").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: False)
        refused = nanomem("search", "tea", "--json")
    assert not Path("memory.dat.derived").exists()
    answered = nanomem("search", "tea", "--json")
    assert list(Path("memory.dat.derived").iterdir())
    assert answered.stdout == refused.stdout == nanomem("search", "tea", "--json").stdout


def test_context_prints_a_text_for_a_prompt(nanomem: Nanomem) -> None:
    job_history()
    lines = nanomem("context", "where do I work?").stdout.splitlines()
    assert lines[:2] == ["Facts:", "- Moved to Birch Labs"]
    assert not any("Alder" in line for line in lines)
    assert "then: Moved to Birch Labs" in nanomem("context", "where did I work before?").stdout


def test_context_as_json_tells_its_length_and_keeps_to_the_budget(nanomem: Nanomem) -> None:
    job_history()
    whole = answer(nanomem("context", "--json"))
    assert whole["query"] is None
    assert len(whole["text"].splitlines()) == 4
    short = answer(nanomem("context", "--json", "--max-tokens", str(whole["tokens"] - 1)))
    assert len(short["text"].splitlines()) == 3
    assert short["tokens"] < whole["tokens"]
    assert answer(nanomem("context", "--json", "--max-tokens", "0"))["text"] == ""
