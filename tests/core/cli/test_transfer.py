"""``nanomem ingest``, ``import``, ``export``, ``merge``, ``unmerge`` and ``split``."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanomem_core import Vault

from .conftest import Nanomem
from .memories import answer, job_history, texts


@pytest.fixture
def memory(cwd: Path) -> list[str]:
    return job_history()


def all_of(path: str) -> list[dict[str, object]]:
    """Every record of a memory, with its scope."""
    with Vault(path, read_only=True) as vault:
        return [{"user": parcel.scope.user, **parcel.record.to_dict()} for parcel in vault.parcels(all_scopes=True)]


# Files in.


def test_a_file_is_read_once_and_its_sections_replaced_when_it_changes(cwd: Path, nanomem: Nanomem) -> None:
    page = Path("page.md")
    page.write_text("# One\n\nfirst\n\n# Two\n\nsecond\n", encoding="utf-8")
    assert nanomem("ingest", "page.md", "--metadata", "project=x").stdout == "Read 1 file, 2 sections.\n"
    assert nanomem("ingest", "page.md").stdout == "Read 0 files, 0 sections; 1 file unchanged.\n"
    page.write_text("# One\n\nfirst\n", encoding="utf-8")
    assert answer(nanomem("ingest", "page.md", "--json"))["chunks_indexed"] == 1
    assert len(texts(nanomem("search", "first second", "-k", "9", "--json"))) == 1


def test_of_a_folder_what_can_be_read_is_read(cwd: Path, nanomem: Nanomem) -> None:
    for name, data in {
        "d/a.md": b"# A\n\nalpha",
        "d/b.txt": b"beta",
        "d/sub/c.md": b"# C\n\ngamma",
        "d/old/e.md": b"epsilon",
        "d/f.md": b"\0\1\2",
    }.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
    result = nanomem("ingest", "d", "--extension", ".md", "--ignore", "old")
    assert (result.exit_code, result.stdout) == (1, "Read 2 files, 2 sections.\n")
    assert "f.md" in result.stderr
    assert "1 file could not be read" in result.stderr
    found = texts(nanomem("search", "alpha beta gamma epsilon", "-k", "9", "--json"))
    assert sorted(text.split()[-1] for text in found) == ["alpha", "gamma"]


def test_a_binary_file_hinders_no_other(cwd: Path, nanomem: Nanomem) -> None:
    Path("bad.md").write_bytes(b"\0")
    Path("good.md").write_text("# Good\n\nnews", encoding="utf-8")
    result = nanomem("ingest", "bad.md", "good.md")
    assert (result.exit_code, result.stdout) == (1, "Read 1 file, 1 section.\n")


# Out and in again.


def test_an_export_brings_everything_back(memory: list[str], nanomem: Nanomem) -> None:
    assert nanomem("add", "of ann", "--user", "ann").exit_code == 0
    assert nanomem("retract", "--entity", "employer").exit_code == 0
    assert nanomem("export", "all.jsonl", "--all-scopes").stdout == "Exported 5 records to all.jsonl.\n"
    report = answer(nanomem("import", "all.jsonl", "--vault", "copy.dat", "--json"))
    assert report == {"incoming": 5, "added": 5, "skipped": 0, "renamed": 0, "notes": []}
    assert all_of("copy.dat") == all_of("memory.dat")
    again = answer(nanomem("import", "all.jsonl", "--vault", "copy.dat", "--json"))
    assert (again["added"], again["skipped"]) == (0, 5)
    assert answer(nanomem("import", "copy.dat", "--vault", "third.dat", "--json"))["added"] == 5
    assert all_of("third.dat") == all_of("memory.dat")


def test_an_import_can_put_everything_into_one_memory(memory: list[str], nanomem: Nanomem) -> None:
    assert nanomem("add", "of ann", "--user", "ann").exit_code == 0
    assert nanomem("export", "all.jsonl", "--all-scopes").exit_code == 0
    assert nanomem("import", "all.jsonl", "--vault", "copy.dat", "--user", "bo").exit_code == 0
    assert {record["user"] for record in all_of("copy.dat")} == {"bo"}


def test_an_export_replaces_a_file_only_by_force(memory: list[str], nanomem: Nanomem) -> None:
    Path("out.jsonl").write_text("mine", encoding="utf-8")
    assert nanomem("export", "out.jsonl").exit_code == 1
    assert Path("out.jsonl").read_text(encoding="utf-8") == "mine"
    assert nanomem("export", "out.jsonl", "--force", "--where", "topic=health").exit_code == 0
    assert len(Path("out.jsonl").read_text(encoding="utf-8").splitlines()) == 2


def test_only_what_was_true_in_a_time_is_exported(memory: list[str], nanomem: Nanomem) -> None:
    result = nanomem("export", "part.dat", "--after", "2025-01-10", "--before", "2025-03-02")
    assert result.exit_code == 0
    assert [record["text"] for record in all_of("part.dat")] == [
        "I work at Alder Foods as an engineer",
        "Peanuts make me ill",
    ]


def test_a_merge_can_be_taken_out_again(memory: list[str], nanomem: Nanomem) -> None:
    job_history("phone.dat")
    with Vault("phone.dat") as vault:
        vault.add("Off to Cedar Works", entity="employer", timestamp="2026-03-01", source="cli")
    before = all_of("memory.dat")
    report = answer(nanomem("merge", "phone.dat", "--dedup", "--json"))
    assert report == {"incoming": 5, "added": 1, "duplicates_skipped": 4}
    assert texts(nanomem("current", "--json")) == ["Off to Cedar Works"]
    assert nanomem("unmerge", "phone.dat", "--to", "back.dat").stdout == "Removed 1 record.\n"
    assert all_of("memory.dat") == before
    assert [record["text"] for record in all_of("back.dat")] == ["Off to Cedar Works"]


def test_a_merge_into_a_project_keeps_its_chains_apart(memory: list[str], nanomem: Nanomem) -> None:
    job_history("team.dat")
    assert nanomem("merge", "team.dat", "--project", "team-x", "--user-id", "ann").exit_code == 0
    rows = answer(nanomem("entities", "--json"))["results"]
    assert [(row["user_id"], row["project"]) for row in rows] == [(None, None), ("ann", "team-x")]
    assert nanomem("unmerge", "team-x").stdout == "Removed 4 records.\n"


def test_a_split_copies_and_with_purge_moves(memory: list[str], nanomem: Nanomem) -> None:
    assert nanomem("split", "--where", "topic=health", "part.dat").stdout == "part.dat: 1 record\n"
    assert len(all_of("memory.dat")) == 4
    assert nanomem("split", "--source-doc", "notes.md", "docs.dat", "--purge").exit_code == 0
    assert len(all_of("memory.dat")) == 3
    assert [record["text"] for record in all_of("docs.dat")] == ["Peanuts are legumes"]


def test_a_split_by_key_makes_a_store_for_each_value(cwd: Path, nanomem: Nanomem) -> None:
    for project in ("a", "b", "../out"):
        assert nanomem("add", f"of {project}", "--metadata", f"project={project}").exit_code == 0
    counts = answer(nanomem("split", "--key", "project", "parts", "--json"))["targets"]
    assert list(counts.values()) == [1, 1, 1]
    assert {path.name for path in cwd.iterdir()} == {"memory.dat", "memory.dat.lock", "parts"}
    stores = [path for path in Path("parts").iterdir() if path.suffix == ".dat"]
    assert sorted(all_of(str(path))[0]["text"] for path in stores) == ["of ../out", "of a", "of b"]
    assert nanomem("split", "--key", "nope", "parts").stdout == "No record has the metadata key 'nope'.\n"


@pytest.mark.parametrize(
    "words",
    [
        ["split", "--where", "topic=health", "memory.dat", "--purge"],
        ["split", "--where", "topic=health", "link.dat", "--purge"],
        ["split", "--key", "topic", ".", "--purge"],
        ["export", "./memory.dat"],
        ["merge", "memory.dat"],
        ["unmerge", "notes.md", "--to", "memory.dat"],
    ],
)
def test_a_memory_is_not_moved_onto_itself(words: list[str], memory: list[str], cwd: Path, nanomem: Nanomem) -> None:
    try:
        Path("link.dat").symlink_to("memory.dat")
    except OSError:
        pytest.skip("this machine lets nobody make links")
    before = all_of("memory.dat")
    result = nanomem(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "expected another place" in result.stderr
    assert all_of("memory.dat") == before


# Vaults of the package nanomem 0.8.


def old_vault(path: str, password: str | None = None) -> None:
    nanomem08 = pytest.importorskip("nanomem")

    class Letters:
        dim = 8

        def embed(self, text: str) -> list[float]:
            return [1.0 + text.count(letter) for letter in "aeiourst"]

        def embed_batch(self, texts: list[str]) -> list[list[float]]:
            return [self.embed(text) for text in texts]

    with nanomem08.Vault(path, embedder=Letters(), password=password) as vault:
        vault.add("I work at Alder Foods", metadata={"entity": "employer"}, timestamp=1736467200.0)
        vault.add("Moved to Birch Labs", metadata={"entity": "employer"}, timestamp=1769904000.0)


def test_a_vault_of_nanomem_08_comes_over_with_its_history(cwd: Path, nanomem: Nanomem) -> None:
    old_vault("old.dat")
    report = answer(nanomem("import", "nanomem", "old.dat", "--json"))
    assert (report["added"], report["notes"]) == (2, [])
    assert texts(nanomem("history", "--entity", "employer", "--json")) == [
        "I work at Alder Foods",
        "Moved to Birch Labs",
    ]
    kept = nanomem("import", "nanomem", "old.dat", "--keep-vectors")
    assert kept.exit_code == 1
    assert "8 dimensions" in kept.stderr


def test_what_is_no_old_vault_is_refused(cwd: Path, nanomem: Nanomem) -> None:
    pytest.importorskip("nanomem")
    Path("notes.md").write_text("# Notes", encoding="utf-8")
    result = nanomem("import", "nanomem", "notes.md")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "notes.md: expected a vault" in result.stderr


def test_the_password_of_an_old_vault_comes_from_standard_input(cwd: Path, nanomem: Nanomem) -> None:
    old_vault("old.dat", "s3cret")
    for given in ({}, {"input": "wrong\n"}):
        options = ["--password-stdin"] if given else []
        result = nanomem("import", "nanomem", "old.dat", *options, **given)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "password" in result.stderr
    result = nanomem("import", "nanomem", "old.dat", "--password-stdin", input="s3cret\n")
    assert result.stdout.startswith("Imported 2 of 2 records")
