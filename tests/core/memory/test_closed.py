"""A memory that was closed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.errors import ClosedError, UnknownComponentError
from nanomem_core.memory import Memory
from nanomem_core.memory.tagging import TagPlan
from nanomem_core.records import Scope
from nanomem_core.testing.fakes import DictStorage, HashEmbedder
from tests.memories import Shelf

ARGUMENTS: dict[str, dict[str, Any]] = {
    "add": {"text": "x"},
    "add_many": {"items": []},
    "apply_tags": {"plan": TagPlan(Scope(), (), 0, 0)},
    "ask": {"question": "x"},
    "ask_stream": {"question": "x"},
    "build": {"kind": "tagger", "spec": "keyword"},
    "changes": {"since": 0},
    "chat": {"message": "x"},
    "chat_stream": {"message": "x"},
    "commit": {"changes": []},
    "delete": {"id": "x"},
    "exists": {"id": "x"},
    "export": {"target": "out.jsonl"},
    "forget": {"query": "x"},
    "get": {"id": "x"},
    "history": {"query": "x"},
    "import_": {"source": ()},
    "ingest_directory": {"directory": "files"},
    "ingest_file": {"path": "files/notes.txt"},
    "inspect_memory": {"text": "x"},
    "merge": {"source": "files/notes.txt"},
    "prune": {"older_than_days": 1},
    "purge": {"id": "x"},
    "remember": {"text": "x"},
    "restore": {"id": "x"},
    "retract": {"id": "x"},
    "search": {"query": "x"},
    "should_store": {"text": "x"},
    "split": {"where": {"a": 1}, "target": "out.jsonl"},
    "split_by_key": {"key": "a", "directory": "out"},
    "unmerge": {"vault_or_project": "x"},
    "update": {"id": "x"},
}
"""Arguments for the methods that need some."""

NEED_NO_STORE = {"open", "close", "staleness_label", "import_nanomem"}

METHODS = sorted(
    name
    for name, member in inspect.getmembers(Memory, callable)
    if not name.startswith("_") and name not in NEED_NO_STORE
)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_a_closed_memory_says_so(
    shelf: Shelf, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("x\n")
    memory = shelf.open()
    memory.add("x")
    memory.close()
    memory.close()

    def call() -> None:
        result = getattr(memory, name)(**ARGUMENTS.get(name, {}))
        if name == "batch":
            result.__enter__()
        elif inspect.isgenerator(result):
            next(result)

    with pytest.raises(ClosedError):
        call()


def test_closing_keeps_what_was_acknowledged_and_what_was_lent(shelf: Shelf) -> None:
    class Lent(HashEmbedder):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    embedder = Lent()
    with shelf.open(embedder) as memory:
        memory.add("x")
        memory.flush()
    assert embedder.closed == 0
    with pytest.raises(ClosedError):
        memory.flush()
    assert len(shelf.open(embedder).records()) == 1


def test_what_was_built_is_closed_at_once_where_a_later_part_can_not_be_built() -> None:
    closed: list[str] = []

    class Store(DictStorage):
        def close(self) -> None:
            closed.append("storage")
            super().close()

    class Model(HashEmbedder):
        def close(self) -> None:
            closed.append("embedder")

    with pytest.raises(UnknownComponentError):
        Memory({"use": Store}, "nowhere")
    assert closed == ["storage"]
    with pytest.raises(UnknownComponentError):
        Memory({"use": Store}, {"use": Model}, taggers=["nowhere"])
    assert closed == ["storage", "embedder", "storage"]
    lent = Store()
    with pytest.raises(UnknownComponentError):
        Memory(lent, Model(), taggers=["nowhere"])
    assert closed == ["storage", "embedder", "storage"], "what was lent stays open"


def test_components_that_were_built_by_name_are_closed(shelf: Shelf) -> None:
    class Built(HashEmbedder):
        name = "built"
        closed = 0

        def close(self) -> None:
            Built.closed += 1

    memory = shelf.open({"use": Built, "dim": 8})  # type: ignore[arg-type]
    assert memory.embedder.dim == 8
    memory.close()
    memory.close()
    assert Built.closed == 1
