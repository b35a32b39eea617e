"""What plugins see of a memory, and what they can do to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nanomem_core.changes import Change, Commit, Delete, Put
from nanomem_core.errors import ConflictError, PluginError, VetoError
from nanomem_core.hookspecs import Plugin, hookimpl
from nanomem_core.memory import Memory
from nanomem_core.records import Scope
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.samples import bytes_below
from tests.memories import CountingEmbedder, Shelf, texts


class Redact(Plugin):
    """Blacks out a word."""

    @hookimpl
    def nanomem_before_commit(self, scope: Scope, changes: Sequence[Change]) -> Sequence[Change]:
        return [
            replace(c, record=replace(c.record, text=c.record.text.replace("hunter2", "***")))
            if isinstance(c, Put)
            else c
            for c in changes
        ]


class Refuse(Plugin):
    """Lets nothing be written under one id, and nothing be deleted."""

    @hookimpl
    def nanomem_before_commit(self, scope: Scope, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Delete) or change.record.id == "bad":
                raise VetoError("not this one")


class Watch(Plugin):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.searches: list[tuple[str, str, list[str]]] = []
        self.while_told: Callable[[], Any] = lambda: None

    @hookimpl
    def nanomem_committed(self, commit: Commit) -> None:
        self.commits.append(commit)
        self.while_told()

    @hookimpl
    def nanomem_searched(self, scope: Scope, query: str, results: Sequence[Mapping[str, Any]]) -> None:
        self.searches.append((str(scope), query, [hit["text"] for hit in results]))


class Fail(Plugin):
    """Raises when it is told something."""

    @hookimpl
    def nanomem_committed(self, commit: Commit) -> None:
        raise RuntimeError("no disk")

    @hookimpl
    def nanomem_searched(self, scope: Scope, query: str, results: Sequence[Mapping[str, Any]]) -> None:
        raise RuntimeError("no network")


def open_with(shelf: Shelf, *plugins: Plugin, **options: Any) -> Memory:
    manager = PluginManager()
    for plugin in plugins:
        manager.register(plugin)
    return shelf.open(plugins=manager, **options)


def test_a_text_is_redacted_before_it_is_embedded_or_stored(shelf: Shelf) -> None:
    embedder = CountingEmbedder()
    memory = open_with(shelf, Redact(), embedder=embedder)
    id = memory.add("the password is hunter2")
    memory.update(id, "now it is hunter2!")
    with memory.batch():
        memory.add("hunter2 again")
    memory.search("anything")
    assert texts(memory.records()) == ["now it is ***!", "*** again"]
    assert not any("hunter2" in text for text in embedder.encoded)
    assert [path for path, content in bytes_below(shelf.folder) if b"hunter2" in content] == []


def test_a_redacted_text_does_not_keep_the_vectors_that_came_with_it(shelf: Shelf) -> None:
    embedder = CountingEmbedder()
    memory = open_with(shelf, Redact(), embedder=embedder)
    source = shelf.another().open(embedder)
    source.add_many(["hunter2", "harmless"])
    memory.import_(source)
    if memory.storage.keeps_vectors:
        assert embedder.encoded == ["hunter2", "harmless", "***"]
    best = memory.search("***", mode="vector")[0]
    assert (best.text, round(best.cosine, 2)) == ("***", 1.0)


def test_a_vetoed_commit_writes_nothing_and_the_memory_goes_on(shelf: Shelf) -> None:
    watch = Watch()
    memory = open_with(shelf, Refuse(), watch)
    good = memory.add("good")
    with pytest.raises(VetoError, match="not this one"):
        memory.add_many(["first", {"text": "second", "id": "bad"}])
    for remove in (
        lambda: memory.delete(good),
        lambda: memory.delete(where={"id": good}),
        lambda: memory.forget("good"),
        lambda: memory.export(shelf.folder / "out.jsonl", {"id": good}, purge=True),
    ):
        with pytest.raises(VetoError):
            remove()
    assert texts(memory.records()) == ["good"]
    memory.add("more")
    assert [commit.head for commit in watch.commits] == [1, 2]


def test_a_deletion_by_id_needs_no_quiet_scope_and_a_computed_one_does(shelf: Shelf) -> None:
    class Busy(Plugin):
        """Lets somebody else write whenever this memory is about to."""

        @hookimpl
        def nanomem_before_commit(self, scope: Scope, changes: Sequence[Change]) -> None:
            other.add("meanwhile")

    other = shelf.open()
    first, second = other.add_many(["one", "two"])
    memory = open_with(shelf, Busy())
    assert memory.delete(first) == 1
    with pytest.raises(ConflictError, match="expected head"):
        memory.delete(text_exact="two")
    assert memory.get(first) is None
    assert memory.get(second) is not None
    assert memory.update(second, "changed")


def test_a_hook_that_fails_stops_the_write_and_is_named(shelf: Shelf) -> None:
    class Broken(Plugin):
        @hookimpl
        def nanomem_before_commit(self, scope: Scope, changes: Sequence[Change]) -> Any:
            return [1]

    memory = open_with(shelf, Broken())
    with pytest.raises(PluginError, match="Broken"):
        memory.add("x")
    assert memory.records() == []


def test_every_commit_is_told_as_it_is_stored(shelf: Shelf) -> None:
    watch = Watch()
    memory = open_with(shelf, watch)
    id = memory.add("one", entity="x")
    memory.update(id, "two", user=None)
    memory.delete(id)
    memory.delete(id)
    added, changed, deleted = watch.commits
    assert [(c.head, [(r.text, r.version, r.revision) for r in c.records], c.deleted) for c in watch.commits] == [
        (1, [("one", 1, 1)], ()),
        (2, [("two", 2, 1)], ()),
        (3, [], (id,)),
    ]
    assert added.scope == changed.scope == deleted.scope == memory.scope


def test_a_plugin_may_use_the_memory_while_it_is_told(shelf: Shelf) -> None:
    watch = Watch()
    memory = open_with(shelf, watch)

    def follow_up() -> None:
        if len(watch.commits) == 1:
            assert texts(memory.search("one")) == ["one"]
            memory.add("told by the hook")

    watch.while_told = follow_up
    memory.add("one")
    assert texts(memory.records()) == ["one", "told by the hook"]


def test_a_plugin_that_fails_when_told_disturbs_nobody(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    before, after = Watch(), Watch()
    memory = open_with(shelf, before, Fail(), after)
    with caplog.at_level(logging.ERROR, "nanomem"):
        memory.add("one")
        assert texts(memory.search("one", user="default")) == ["one"]
    for watch in (before, after):
        assert len(watch.commits) == 1
        assert watch.searches == [("default", "one", ["one"])]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert all("'Fail'" in message for message in messages)
