"""Short programs as an application would write them, with the installed plugins and no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nanomem_core import Vault
from nanomem_core.interfaces import Embedder
from nanomem_core.pipeline.search import MODES
from nanomem_core.testing.fakes import FrozenClock, HashEmbedder
from tests.memories import DAY, texts

JOB = {"entity": "employer"}
ACME, INITECH, GLOBEX = (
    "I work at Acme Corp.",
    "I moved jobs, I now work at Initech.",
    "I switched again, I work at Globex now.",
)


@pytest.fixture(params=["lexical", "hash"])
def vault(request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock) -> Iterator[Vault]:
    """Three employers, told 300, 155 and 10 days ago."""
    embedder: str | Embedder = "lexical" if request.param == "lexical" else HashEmbedder()
    with Vault(tmp_path / "memory.dat", embedder, clock=clock) as vault:
        for days, text in ((300, ACME), (155, INITECH), (10, GLOBEX)):
            vault.add(text, metadata=JOB, timestamp=clock.now - days * DAY)
        yield vault


def test_the_current_employer_is_found_in_every_mode_and_so_are_the_former_ones(vault: Vault) -> None:
    for mode in MODES:
        hits = vault.search("where do I work", top_k=3, mode=mode)
        assert [(hit["superseded"], hit["text"]) for hit in hits] == [(False, GLOBEX), (True, INITECH), (True, ACME)]
        assert vault.search("I work at Acme Corp.", mode=mode)[0]["text"] == GLOBEX


def test_history_lists_every_employer_the_current_one_last(vault: Vault) -> None:
    assert [(e["revision"], e["superseded"], e["text"]) for e in vault.history("where do I work")] == [
        (1, True, ACME),
        (2, True, INITECH),
        (3, False, GLOBEX),
    ]


def test_the_employer_of_a_past_day(vault: Vault, clock: FrozenClock) -> None:
    for days, text in ((299, ACME), (200, ACME), (155, INITECH), (100, INITECH), (10, GLOBEX), (0, GLOBEX)):
        hits = vault.search("where do I work", as_of=clock.now - days * DAY)
        assert (hits[0]["text"], hits[0]["superseded"]) == (text, False)
    assert vault.search("where do I work", as_of=clock.now - 301 * DAY) == []


def test_how_often_the_employer_changes(vault: Vault) -> None:
    (fact,) = vault.volatility()
    assert (fact["entity"], fact["n_revisions"], round(fact["median_interval"] / DAY)) == ("employer", 3, 145)
    assert [row["p_superseded"] for row in vault.staleness()] == [None]


def test_what_changed_in_a_window(vault: Vault, clock: FrozenClock) -> None:
    (change,) = vault.changes(since=clock.now - 30 * DAY)
    assert (change["text"], change["previous_text"]) == (GLOBEX, INITECH)


def test_what_is_no_longer_true_says_how_long_ago_it_was_replaced(vault: Vault) -> None:
    labels = [vault.staleness_label(hit) for hit in vault.search("where do I work")]
    held = "this held when it was written and does not hold now"
    assert labels == ["", f"SUPERSEDED 10 days ago: {held}", f"SUPERSEDED 5 months ago: {held}"]


def test_the_program_goes_on_with_the_file_of_the_last_run(vault: Vault, tmp_path: Path, clock: FrozenClock) -> None:
    with Vault(tmp_path / "memory.dat", vault.embedder, clock=clock, read_only=True) as again:
        assert again.history("where do I work") == vault.history("where do I work")
        assert texts(again.search("where do I work")) == [GLOBEX, INITECH, ACME]


def test_an_answer_that_was_cut_says_so(tmp_path: Path) -> None:
    with Vault(tmp_path / "memory.dat") as vault:
        vault.add_many(f"Revenue of company {name} in the year {year}" for name in "ABC" for year in range(2018, 2025))
        vault.add_many(f"Ticket {number} was closed by the night shift" for number in range(80))
        results = vault.search("revenue of every company in every year", top_k=3, min_score=0.4)
        assert (len(results), results.truncated, results.n_above_floor) == (3, True, 21)
        assert "showing 3 of 21 records" in results.explain()
        without_floor = vault.search("revenue of every company in every year", top_k=3)
        assert (without_floor.n_above_floor, without_floor.explain()) == (101, "")


def test_a_question_of_two_parts_says_which_part_got_nothing(tmp_path: Path) -> None:
    with Vault(tmp_path / "memory.dat", mode="text") as vault:
        vault.add("Acme revenue was 4 million")
        results = vault.search("What is Acme revenue? Which port does staging use?")
        assert texts(results) == ["Acme revenue was 4 million"]
        assert results.unanswered_sub_queries == ["Which port does staging use"]
        vault.add("The staging database is on port 5433")
        assert vault.search("What is Acme revenue? Which port does staging use?").unanswered_sub_queries == []


def test_a_document_is_added_found_and_removed_by_its_id(tmp_path: Path) -> None:
    with Vault(tmp_path / "knowledge.dat") as vault:
        id = vault.add("Server backup runs daily at 02:00 UTC")
        vault.add("The staging database is on port 5433")
        hits = vault.search("When does the backup run?")
        assert (hits[0]["id"], hits[0]["cosine"] > hits[1]["cosine"]) == (id, True)
        assert vault.update(id, "Server backup runs daily at 03:00 UTC")
        assert vault.delete(id) == 1
    with Vault(tmp_path / "knowledge.dat") as vault:
        assert texts(vault.search("When does the backup run?")) == ["The staging database is on port 5433"]
