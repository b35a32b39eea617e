"""``nanomem init``, ``stats``, ``inspect``, ``doctor``, ``compact``, ``reembed`` and ``user``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from nanomem_core.config.sources import load_settings

from .conftest import Nanomem
from .memories import answer, job_history, texts


@pytest.fixture
def memory(cwd: Path) -> list[str]:
    return job_history()


# Starting.


def test_init_makes_settings_that_say_what_the_embedder_can_not_do(cwd: Path, nanomem: Nanomem) -> None:
    result = nanomem("init")
    assert result.exit_code == 0
    assert "not meanings" in result.stdout
    text = Path("nanomem.yaml").read_text(encoding="utf-8")
    assert "not meanings" in text
    assert yaml.safe_load(text)["storage"] == {"use": "arena", "path": "memory.dat"}
    assert load_settings().settings.embedder == {"use": "lexical"}
    assert nanomem("search", "x").stdout == "Nothing was found.\n"


def test_init_replaces_settings_only_by_force_and_a_memory_never(memory: list[str], nanomem: Nanomem) -> None:
    Path("nanomem.yaml").write_text("search: {top_k: 9}\n", encoding="utf-8")
    refused = nanomem("init")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "--force" in refused.stderr
    assert Path("nanomem.yaml").read_text(encoding="utf-8") == "search: {top_k: 9}\n"
    assert answer(nanomem("init", "--force", "--json"))["created"] is False
    assert texts(nanomem("current", "--json")) == ["Moved to Birch Labs"]


@pytest.mark.parametrize("name", ["notes.dat", "dir with blanks/ünïcode: #1 '漢字'.dat"])
def test_the_settings_of_init_lead_to_the_memory_from_elsewhere(name: str, cwd: Path, nanomem: Nanomem) -> None:
    assert nanomem("init", "--vault", name).exit_code == 0
    assert Path(name).is_file()
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    assert nanomem("--config", "../nanomem.yaml", "add", "found it").exit_code == 0
    assert os.listdir() == []
    os.chdir("..")
    assert texts(nanomem("search", "found", "--vault", name, "--json")) == ["found it"]


def test_init_with_an_unknown_embedder_writes_nothing(cwd: Path, nanomem: Nanomem) -> None:
    result = nanomem("init", "--embedder", "lexicla")
    assert result.exit_code == 1
    assert "did you mean 'lexical'" in result.stderr
    assert list(cwd.iterdir()) == []


# Looking.


def test_stats_and_inspect_count(memory: list[str], nanomem: Nanomem) -> None:
    facts = answer(nanomem("stats", "--json"))
    assert (facts["total_documents"], facts["chains"], facts["storage"]) == (4, 1, "arena")
    assert facts["read_only"] is True
    assert "lexical-1-512" in nanomem("stats").stdout
    report = answer(nanomem("inspect", "--json"))
    assert report["sources"] == {"cli": 3, "notes.md": 1}
    assert report["metadata_summary"] == {"topic": {"health": 1}}
    lines = [line.split() for line in nanomem("inspect", "--filter", "source=cli").stdout.splitlines()]
    assert lines[0] == ["3", "records"]
    assert ["topic", "health", "1"] in lines


def test_users_are_listed_shown_and_deleted(memory: list[str], cwd: Path, nanomem: Nanomem) -> None:
    for user, agent in (("ann", "default"), ("ann", "tutor"), ("anna", "default")):
        assert nanomem("add", f"ZEBRA of {user}", "--user", user, "--agent", agent).exit_code == 0
    rows = answer(nanomem("user", "list", "--json"))["results"]
    assert [(row["user"], row["agent"], row["records"]) for row in rows] == [
        ("ann", "default", 1),
        ("ann", "tutor", 1),
        ("anna", "default", 1),
        ("default", "default", 4),
    ]
    assert [row["agent"] for row in answer(nanomem("user", "show", "ann", "--json"))["agents"]] == ["default", "tutor"]
    assert nanomem("user", "delete", "ann", "--agent", "tutor", "-y").stdout == "Erased 1 record of 1 memory.\n"
    assert nanomem("user", "delete", "ann", "-y").exit_code == 0
    rows = answer(nanomem("user", "list", "--json"))["results"]
    assert [row["user"] for row in rows] == ["anna", "default"]
    for path in cwd.iterdir():
        assert b"ZEBRA of ann" not in path.read_bytes().replace(b"ZEBRA of anna", b"")


# Damage.


def damage(path: Path, text: bytes) -> int:
    """Change a byte in the middle of `text` in the file; returns its place."""
    data = bytearray(path.read_bytes())
    place = data.index(text) + len(text) // 2
    data[place] ^= 0xFF
    path.write_bytes(data)
    return place


def test_a_sound_store_is_said_to_be_sound(memory: list[str], nanomem: Nanomem) -> None:
    assert (nanomem("doctor").exit_code, nanomem("doctor").stdout) == (0, "No damage was found.\n")


def test_damage_that_only_a_person_can_mend_is_left_and_said_to_be(cwd: Path, nanomem: Nanomem) -> None:
    nanomem("init", "--storage", "markdown")
    nanomem("add", "I live in Oslo", "--entity", "city")
    [file] = (cwd / "memory").rglob("facts/*/*.md")
    file.with_name("README.md").write_text("notes", encoding="utf-8")
    found, repaired = nanomem("doctor"), nanomem("doctor", "--repair")
    assert (found.exit_code, repaired.exit_code) == (1, 1)
    assert "README.md" in found.stdout
    assert "README.md" in repaired.stdout
    assert "nothing can be set aside without you" in repaired.stdout
    assert file.with_name("README.md").read_text(encoding="utf-8") == "notes"


def test_damage_is_shown_with_its_place_and_set_aside_by_a_repair(
    memory: list[str], cwd: Path, nanomem: Nanomem
) -> None:
    damage(cwd / "memory.dat", b"Peanuts make me ill")
    result = nanomem("doctor", "memory.dat")
    assert result.exit_code == 1
    assert str(cwd / "memory.dat") in result.stdout
    report = nanomem("doctor", "--json")
    assert report.exit_code == 1
    [found, *_] = json.loads(report.stdout)["damage"]
    assert found["path"] == str(cwd / "memory.dat")
    assert isinstance(found["offset"], int)
    assert str(found["offset"]) in result.stdout
    assert nanomem("doctor").stdout == result.stdout

    repaired = nanomem("doctor", "--repair")
    assert repaired.exit_code == 0
    assert str(cwd / "memory.dat.quarantine") in repaired.stdout
    assert memory[2] in (cwd / "memory.dat.quarantine").read_text(encoding="utf-8")
    assert nanomem("doctor").stdout == "No damage was found.\n"
    assert texts(nanomem("history", "--entity", "employer", "--json")) == [
        "I work at Alder Foods as an engineer",
        "Moved to Birch Labs",
    ]


def test_a_warning_of_the_store_is_one_message(memory: list[str], cwd: Path, nanomem: Nanomem) -> None:
    with (cwd / "memory.dat").open("ab") as file:
        file.write(b"a commit that was cut off")
    result = nanomem("add", "another fact", "--json")
    assert len(answer(result)["ids"]) == 1
    [line] = result.stderr.splitlines()
    assert line.startswith(f"nanomem: {cwd / 'memory.dat'} at byte ")


def test_compacting_drops_the_bytes_of_what_was_deleted(memory: list[str], cwd: Path, nanomem: Nanomem) -> None:
    assert nanomem("delete", memory[2]).exit_code == 0
    assert b"Peanuts make me ill" in (cwd / "memory.dat").read_bytes()
    assert answer(nanomem("compact", "--json"))["bytes_regained"] > 0
    assert b"Peanuts make me ill" not in (cwd / "memory.dat").read_bytes()


def test_compacting_drops_the_vectors_of_what_was_deleted_and_no_others(cwd: Path, nanomem: Nanomem) -> None:
    store = {"NANOMEM_STORAGE": "jsonl"}
    ids = [answer(nanomem("add", text, "--json", **store))["ids"][0] for text in ("Peanuts", "Oslo")]
    assert nanomem("search", "Oslo", **store).exit_code == 0
    [vectors] = cwd.rglob("vectors-*.bin")
    before = vectors.stat().st_size
    assert nanomem("delete", ids[0], **store).exit_code == 0
    assert nanomem("compact", **store).exit_code == 0
    assert 0 < vectors.stat().st_size < before


# Another embedder.


def test_another_embedder_is_refused_until_the_store_is_embedded_anew(memory: list[str], nanomem: Nanomem) -> None:
    wider = {"NANOMEM_EMBEDDER__DIM": "1024"}
    for words in (["search", "work"], ["add", "more"]):
        refused = nanomem(*words, **wider)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "lexical-1-512" in refused.stderr
        assert "lexical-1-1024" in refused.stderr
        assert "nanomem reembed" in refused.stderr
    report = answer(nanomem("reembed", "--to", '{"use": "lexical", "dim": 1024}', "--json"))
    assert report == {"embedded": 4, "embedder": "lexical-1-1024", "dim": 1024}
    assert texts(nanomem("search", "Birch Labs", "-k", "1", "--json", **wider)) == ["Moved to Birch Labs"]
    assert nanomem("search", "work").exit_code == 1
    assert nanomem("reembed").exit_code == 0
    assert nanomem("search", "work").exit_code == 0
