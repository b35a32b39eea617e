"""``nanomem add``, ``update``, ``retract``, ``restore``, ``delete``, ``forget``, ``prune`` and ``purge``."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nanomem_core import Vault

from .conftest import Nanomem
from .memories import answer, job_history, texts


@pytest.fixture
def memory(cwd: Path) -> list[str]:
    return job_history()


# Adding and mending.


def test_adding_prints_the_id_and_keeps_every_field(cwd: Path, nanomem: Nanomem) -> None:
    options = ["--entity", "city", "--timestamp", "2021-05-01", "--until", "2022-01-01", "--source", "mail"]
    metadata = ["--metadata", "project=home", "--metadata", '{"n": 5, "deep": {"a": [1]}}', "--metadata", "zip=0123"]
    id = nanomem("add", "I live in Oslo", *options, *metadata).stdout.strip()
    with Vault("memory.dat", read_only=True) as vault:
        entry = vault.get(id)
    assert entry is not None
    assert (entry.text, entry.entity, entry.declared, entry.source) == ("I live in Oslo", "city", True, "mail")
    assert (entry.timestamp, entry.valid_to) == (1619827200.0, 1640995200.0)
    assert entry.metadata == {"project": "home", "n": 5, "deep": {"a": [1]}, "zip": "0123"}


def test_a_text_comes_from_standard_input(cwd: Path, nanomem: Nanomem) -> None:
    ids = answer(nanomem("add", "-", "--json", input="two\nlines – 漢字\n".encode()))["ids"]
    assert "two\nlines – 漢字" in nanomem("get", *ids).stdout
    ids = answer(nanomem("add", "-", "--lines", "--json", input="one\n\n  two  \n"))["ids"]
    assert len(ids) == 2
    result = nanomem("add", "-", input=b"caf\xe9")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "expected UTF-8" in result.stderr
    assert nanomem("add", "-", input="\n \n").exit_code == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no mode bits")
def test_files_are_for_their_owner_alone(cwd: Path, nanomem: Nanomem) -> None:
    assert nanomem("init").exit_code == 0
    assert nanomem("add", "secret").exit_code == 0
    assert nanomem("export", "out.jsonl").exit_code == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in cwd.iterdir()}
    assert set(modes.values()) == {0o600}


def test_an_id_that_is_taken_is_refused(cwd: Path, nanomem: Nanomem) -> None:
    assert nanomem("add", "one", "--id", "x").stdout == "x\n"
    result = nanomem("add", "two", "--id", "x")
    assert result.exit_code == 1
    assert "already exists" in result.stderr
    assert texts(nanomem("get", "x", "--json")) == ["one"]


def test_an_update_keeps_the_place_and_raises_the_version(memory: list[str], nanomem: Nanomem) -> None:
    assert answer(nanomem("update", memory[0], "I worked at Alder", "--expect", "1", "--json"))["version"] == 2
    assert texts(nanomem("history", "--entity", "employer", "--json"))[0] == "I worked at Alder"
    result = nanomem("update", memory[0], "again", "--expect", "1")
    assert result.exit_code == 1
    assert "found 2" in result.stderr
    assert nanomem("update", memory[2], "--entity", "allergy", "--metadata", "checked=true").exit_code == 0
    [entry] = answer(nanomem("get", memory[2], "--json"))["results"]
    assert (entry["entity"], entry["metadata"]) == ("allergy", {"topic": "health", "checked": True})


def test_a_retracted_fact_is_marked_as_ended_until_it_is_restored(memory: list[str], nanomem: Nanomem) -> None:
    result = nanomem("retract", "--entity", "employer", "--at", "2026-03-01", "--reason", "sabbatical")
    assert result.stdout == f"Ended {memory[1]}.\n"
    assert "ENDED" in nanomem("history", "--entity", "employer").stdout.splitlines()[3]
    assert texts(nanomem("current", "--json")) == []
    assert "retracted_because: sabbatical" in nanomem("get", memory[1]).stdout
    assert nanomem("restore", memory[1]).exit_code == 0
    assert texts(nanomem("current", "--json")) == ["Moved to Birch Labs"]


# Removing.


def test_deleting_the_newest_value_makes_the_one_before_current(memory: list[str], nanomem: Nanomem) -> None:
    assert nanomem("delete", memory[1]).stdout == "Deleted 1 record.\n"
    assert texts(nanomem("current", "--json")) == ["I work at Alder Foods as an engineer"]
    again = nanomem("delete", memory[0], memory[1])
    assert (again.exit_code, again.stdout) == (1, "Deleted 1 record.\n")
    assert memory[1] in again.stderr


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (["delete", "--where", "topic=health"], "Delete 1 record?"),
        (["delete", "--source", "notes.md"], "Delete 1 record?"),
        (["forget", "Moved to Birch Labs"], "Forget 1 record?"),
        (["prune", "--superseded"], "Delete 1 value of 1 fact?"),
        (["prune", "--older-than", "1"], "Delete facts with"),
        (["purge", "{id}"], "Erase 2 records"),
        (["user", "delete", "default"], "Erase 4 records of default"),
    ],
)
@pytest.mark.parametrize("said", ["n\n", "\n", "", "what?\n"])
def test_nothing_goes_without_a_yes(
    words: list[str], question: str, said: str, memory: list[str], nanomem: Nanomem
) -> None:
    words = [word.format(id=memory[0]) for word in words]
    for form in ([], ["--json"]):
        result = nanomem(*words, *form, input=said)
        assert (result.exit_code, result.stdout) == (1, "")
        assert question in result.stderr
        assert "nothing was changed" in result.stderr
    assert answer(nanomem("inspect", "--json"))["total_documents"] == 4
    done = nanomem(*words, "--json", input="y\n")
    assert done.exit_code == 0
    assert answer(nanomem("inspect", "--json"))["total_documents"] < 4


def test_what_is_forgotten_is_what_was_shown(memory: list[str], nanomem: Nanomem) -> None:
    result = nanomem("forget", "Moved to Birch Labs", "-y")
    assert memory[1] in result.stderr
    assert result.stdout == "Forgot 1 record.\n"
    assert answer(nanomem("inspect", "--json"))["total_documents"] == 3
    assert texts(nanomem("current", "--json")) == ["I work at Alder Foods as an engineer"]
    nothing = nanomem("forget", "the capital of Peru", "-y")
    assert (nothing.exit_code, nothing.stdout) == (
        0,
        "Nothing fits that well (cosine 0.42 or more); nothing was deleted.\n",
    )


def test_pruning_tells_in_a_dry_run_what_it_does(memory: list[str], nanomem: Nanomem) -> None:
    assert nanomem("prune", "--superseded", "--dry-run").stdout == "This would delete 1 value of 1 fact.\n"
    assert answer(nanomem("prune", "--superseded", "--dry-run", "--json"))["values"] == 1
    dry = answer(nanomem("prune", "--older-than", "1", "--dry-run", "--json"))
    assert dry["text_bytes"] == sum(
        map(len, ("I work at Alder Foods as an engineer", "Peanuts make me ill", "Peanuts are legumes"))
    )
    assert (dry["deleted"], dry["dry_run"]) == (0, True)
    real = answer(nanomem("prune", "--older-than", "1", "--yes", "--json"))
    assert (real["deleted"], real["dry_run"]) == (3, False)
    assert texts(nanomem("current", "--json")) == ["Moved to Birch Labs"]
    assert nanomem("prune", "--older-than", "1").stdout == "Nothing is to be deleted.\n"
    assert answer(nanomem("prune", "--older-than", "1", "--current-too", "--yes", "--json"))["deleted"] == 1


def test_a_purge_leaves_no_byte_of_the_chain(memory: list[str], cwd: Path, nanomem: Nanomem) -> None:
    result = nanomem("purge", memory[1], "--yes")
    assert result.stdout == "Purged 2 records.\n"
    assert "Alder" in result.stderr
    for path in cwd.iterdir():
        assert b"Alder" not in path.read_bytes()
        assert b"Birch" not in path.read_bytes()
    again = nanomem("purge", memory[1])
    assert (again.exit_code, again.stdout) == (0, "They were purged before.\n")
