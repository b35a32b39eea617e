"""Prepared changes are written like all others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.errors import ConflictError
from nanomem_core.memory import Memory
from nanomem_core.records import Record
from tests.memories import CountingEmbedder, Shelf, texts


def test_changes_are_one_commit_or_none(memory: Memory) -> None:
    memory.commit([Put(Record("a", "first"), expect=0), Put(Record("b", "second"), expect=0)], user="ann")
    assert memory.storage.head(replace(memory.scope, user="ann")) == 1
    with pytest.raises(ConflictError):
        memory.commit([Delete("a"), Put(Record("b", "third"), expect=7)], user="ann")
    with pytest.raises(ConflictError):
        memory.commit([Delete("a")], expect_head=9, user="ann")
    assert texts(memory.records(user="ann")) == ["first", "second"]
    assert [hit.text for hit in memory.search("second", 1, mode="vector", user="ann")] == ["second"]


def test_a_text_that_stays_is_not_embedded_again_and_one_that_changes_is(shelf: Shelf) -> None:
    embedder = CountingEmbedder()
    memory = shelf.open(embedder)
    memory.commit([Put(Record("a", "first"), expect=0)])
    memory.commit([Put(Record("a", "first", metadata={"k": 1}), expect=1)])
    memory.search("x", mode="vector")
    assert embedder.encoded == ["first"]
    memory.commit([Put(Record("a", "second"), expect=2)])
    assert memory.search("second", mode="vector")[0].cosine == pytest.approx(1.0)
    assert embedder.encoded == ["first", "second"]
