"""``nanomem migrate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Nanomem
from .memories import answer


@pytest.fixture
def root(cwd: Path) -> Path:
    """Three users with a memory in the older layout; that of cid is damaged."""
    for user in ("ann", "bob", "cid"):
        folder = cwd / "deermem" / "users" / user
        folder.mkdir(parents=True)
        facts = [
            {"id": "good", "content": f"{user} prefers tea", "confidence": 0.9},
            {"id": "odd", "content": "x", "confidence": None},
        ]
        text = json.dumps({"version": "1.0", "user": {}, "history": {}, "facts": facts})
        (folder / "memory.json").write_text("{broken" if user == "cid" else text)
    return cwd / "deermem"


def files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_all_users_are_migrated_but_the_one_that_can_not_be(root: Path, nanomem: Nanomem) -> None:
    done = nanomem("migrate", "markdown", str(root), "--all-users")
    assert done.exit_code == 1
    assert "3 users: 2 migrated, 1 failed." in done.stdout
    assert "memory.json: facts[1]: confidence:" in " ".join(done.stdout.split())
    assert "1 user of 3 could not be migrated" in done.stderr
    assert (root / "users/ann/memory.json.v1.bak").exists()
    assert (root / "users/cid/memory.json").read_text() == "{broken"
    again = nanomem("migrate", "markdown", str(root), "--user", "ann", "--user", "bob")
    assert again.exit_code == 0
    assert "2 users: 2 current." in again.stdout


def test_a_dry_run_writes_nothing_and_is_told_apart(root: Path, nanomem: Nanomem) -> None:
    before = files(root)
    found = answer(nanomem("migrate", "markdown", str(root), "--user", "ann", "--dry-run", "--json"))
    assert (found["dry_run"], found["failed"]) == (True, 0)
    [result] = found["results"]
    assert (result["user"], result["state"], result["moved"], result["skipped"]) == ("ann", "planned", 1, 0)
    assert (result["from_version"], result["to_version"], result["error"]) == ("1.0", "2.0", None)
    assert len(result["refused"]) == 1
    assert files(root) == before


def test_a_user_that_is_not_there_fails_by_name(root: Path, nanomem: Nanomem) -> None:
    done = nanomem("migrate", "markdown", str(root), "--user", "nobody", "--json")
    assert done.exit_code == 1
    [result] = json.loads(done.stdout)["results"]
    assert result["state"] == "failed"
    assert "nobody" in result["error"]


@pytest.mark.parametrize("options", [(), ("--all-users", "--user", "ann")])
def test_exactly_one_way_to_say_whose_memory_is_asked_for(root: Path, nanomem: Nanomem, options: tuple[str]) -> None:
    done = nanomem("migrate", "markdown", str(root), *options)
    assert done.exit_code == 2
    assert "either --all-users or at least one --user" in done.stderr


def test_nobody_to_migrate_is_said(cwd: Path, nanomem: Nanomem) -> None:
    (cwd / "empty").mkdir()
    done = nanomem("migrate", "markdown", "empty", "--all-users")
    assert (done.exit_code, done.stdout) == (0, "There is nobody whose memory could be migrated.\n")


def test_a_store_without_an_older_layout_says_so(cwd: Path, nanomem: Nanomem) -> None:
    nanomem("add", "tea", "--vault", "memory.dat")
    done = nanomem("migrate", "arena", "memory.dat", "--all-users")
    assert done.exit_code == 1
    assert "the storage 'arena' has no older layout to migrate from" in done.stderr
    missing = nanomem("migrate", "markdown", "missing", "--all-users")
    assert (missing.exit_code, "expected a file or folder" in missing.stderr) == (1, True)
