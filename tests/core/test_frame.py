"""What one read sees while others write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nanomem_core.changes import Commit
from nanomem_core.columns import MemoryColumns
from nanomem_core.errors import ConflictError
from nanomem_core.filters import parse_filter
from nanomem_core.frame import Frame
from nanomem_core.records import Record, Scope
from nanomem_core.tokens import Tokenizer
from nanomem_core.view import View
from tests.rows import record


class Scene:
    """A scope without a store that keeps only the newest version of a record."""

    def __init__(self, *records: Record) -> None:
        self.records = {record.id: record for record in records}
        self.source = MemoryColumns(Scope(), 1, records, lambda id: self.records.get(id))
        self.view = View(lambda: 4, Tokenizer("none"), None, self.records.get)

    def frame(self, **options: Any) -> Frame:
        return Frame(self.source.columns(), self.view, 1000.0, **options)

    def write_again(self, id: str, **fields: Any) -> None:
        new = replace(self.records[id], version=self.records[id].version + 1, **fields)
        self.records[id] = new
        assert self.source.apply(Commit(Scope(), self.source.head + 1, (new,)))


def test_a_record_that_was_written_since_is_a_conflict_and_an_absent_one_is_none() -> None:
    scene = Scene(record("a"), record("b"))
    frame = scene.frame()
    assert (frame.row("a"), frame.row("absent")) == (0, None)
    scene.write_again("a")
    with pytest.raises(ConflictError, match="read again") as caught:
        frame.row("a")
    assert caught.value.id == "a"
    assert frame.row("b") == 1
    assert scene.frame().row("a") == 2


def test_a_record_that_was_corrected_meanwhile_comes_in_its_newest_version() -> None:
    scene = Scene(record("a", "x", 1), record("b", "x", 2))
    frame = scene.frame()
    scene.write_again("a", text="corrected")
    entries = frame.entries([0, 1])
    assert [(entry.text, entry.superseded) for entry in entries.values()] == [("corrected", True), ("text of b", False)]


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"user_id": "bob", "n": 1}},
        {"metadata": {"user_id": "ann", "n": 2}},
        {"entity": "y"},
        {"valid_from": 2.0},
        {"kind": "purged", "text": ""},
    ],
)
def test_a_newer_version_that_would_not_be_found_here_is_left_out(change: dict[str, Any]) -> None:
    scene = Scene(record("a", "x", 1, metadata={"user_id": "ann", "n": 1}), record("b", metadata={"n": 1}))
    frame = scene.frame(filter=parse_filter({"n": 1}))
    assert frame.allowed.tolist() == [True, True]
    scene.write_again("a", **change)
    assert [entry.id for entry in frame.entries([0, 1]).values()] == ["b"]


def test_what_is_deleted_meanwhile_is_left_out() -> None:
    scene = Scene(record("a"), record("b"))
    frame = scene.frame()
    del scene.records["a"]
    scene.source.apply(Commit(Scope(), 2, (), ("a",)))
    assert [entry.id for entry in frame.entries([0, 1]).values()] == ["b"]


def test_standing_is_judged_among_all_visible_rows_whatever_the_filter() -> None:
    scene = Scene(record("a", "x", 1, metadata={"n": 1}), record("b", "x", 2), record("c", "x", 3))
    frame = scene.frame(filter=parse_filter({"n": 1}), as_of=2.0)
    assert frame.allowed.tolist() == [True, False, False]
    assert frame.entries([0])[0].superseded_at == 2
    assert frame.at == 2
    assert scene.frame(entity="X").allowed.all()
    assert not scene.frame(entity="y").allowed.any()
