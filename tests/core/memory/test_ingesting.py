"""Reading files into the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanomem_core.errors import InputError, NotFoundError
from nanomem_core.memory import Memory
from tests.memories import CountingEmbedder, Shelf, WordTagger, texts


def test_a_file_is_remembered_section_by_section_and_no_line_is_lost(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    lines = [f"  line {number} of the notes" for number in range(130)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    count = memory.ingest_file(path, metadata={"team": "ops"})
    records = memory.records()
    assert count == len(records) > 1
    assert {line for record in records for line in record.text.split("\n") if line} == set(lines)
    first = records[0]
    assert first.source == "notes.txt:1-50"
    assert {"team": "ops", "start_line": 1, "end_line": 50, "filename": "notes.txt"}.items() <= first.metadata.items()
    assert memory.search("line 99 of the notes", mode="text", top_k=1)[0].metadata["end_line"] >= 99


def test_an_unchanged_file_is_skipped_and_a_changed_one_replaced(shelf: Shelf) -> None:
    embedder = CountingEmbedder()
    memory = shelf.open(embedder)
    path = shelf.folder / "notes.md"
    path.write_text("# One\nalpha\n# Two\nbeta\n", encoding="utf-8")
    memory.add("a fact about notes.md", source="notes.md")
    count = memory.ingest_file(path)
    memory.search("beta")
    head, seen = memory.storage.head(memory.scope), len(embedder.encoded)
    assert memory.ingest_file(path) == count
    assert (memory.storage.head(memory.scope), len(embedder.encoded)) == (head, seen)
    path.write_text("# One\ngamma\n", encoding="utf-8")
    memory.ingest_file(path)
    assert memory.storage.head(memory.scope) == head + 1
    assert memory.search("alpha", mode="text") == memory.search("beta", mode="text") == []
    assert "gamma" in memory.search("gamma", mode="text")[0].text
    assert "a fact about notes.md" in texts(memory.records())
    assert memory.delete(source="notes.md") == 2
    assert memory.records() == []


def test_files_of_one_name_do_not_collide_and_form_no_chains(shelf: Shelf) -> None:
    memory = shelf.open(taggers=[WordTagger({"work": "employer"})])
    for folder in ("a", "b"):
        (shelf.folder / folder).mkdir()
        (shelf.folder / folder / "me.txt").write_text("I work at Acme\n", encoding="utf-8")
        memory.ingest_file(shelf.folder / folder / "me.txt", metadata={"entity": "employer"})
    assert [entry.entity for entry in memory.records()] == [None, None]
    assert memory.delete(source=str(shelf.folder / "a" / "me.txt")) == 1


def test_metadata_can_be_made_for_each_section(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("".join(f"{number}\n" for number in range(80)), encoding="utf-8")
    memory.ingest_file(path, metadata=lambda text, start, end: {"lines": end - start + 1, "first": text.split()[0]})
    assert [record.metadata["lines"] for record in memory.records()] == [50, 40]
    assert [record.metadata["first"] for record in memory.records()] == ["0", "40"]


def test_what_is_no_text_file_is_refused(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / "data.txt").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(NotFoundError):
        memory.ingest_file(tmp_path / "absent.txt")
    for name in ("image.png", "data.txt"):
        with pytest.raises(InputError):
            memory.ingest_file(tmp_path / name)
    assert memory.ingest_file(tmp_path / "empty.txt") == 0
    assert memory.records() == []


def test_a_directory_is_read_once_and_a_bad_file_hinders_no_other(memory: Memory, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "node_modules").mkdir(parents=True)
    (root / "node_modules" / "x.md").write_text("hidden\n")
    (root / "a.md").write_text("alpha\n")
    (root / "b.txt").write_bytes(bytes(range(256)) * 4)
    (root / "c.txt").write_text("gamma\n")
    told: list[tuple[int, int]] = []
    report = memory.ingest_directory(root, progress=lambda done, total, path: told.append((done, total)))
    assert (report["files_indexed"], report["chunks_indexed"], report["skipped_unchanged"]) == (2, 2, 0)
    assert [Path(path).name for path in report["failed"]] == ["b.txt"]
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert sorted(text.strip() for text in texts(memory.records())) == ["alpha", "gamma"]
    again = memory.ingest_directory(root)
    assert (again["files_indexed"], again["skipped_unchanged"]) == (0, 2)
