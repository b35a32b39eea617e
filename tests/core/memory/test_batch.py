"""Several writes as one commit."""

from __future__ import annotations

import threading

import pytest

from nanomem_core.errors import ClosedError, ConflictError, InputError
from nanomem_core.memory import Memory
from tests.memories import Shelf, texts


def test_a_batch_is_one_commit_and_can_be_read_only_afterwards(memory: Memory) -> None:
    old = memory.add("old")
    with memory.batch():
        first = memory.add("one", entity="x", timestamp=1)
        second = memory.add("two", entity="x", timestamp=1)
        assert memory.delete(old) == 1
        assert not memory.exists(first)
        assert texts(memory.records()) == texts(memory.search("one")) == ["old"]
    assert memory.storage.head(memory.scope) == 2
    assert [(entry.id, entry.revision) for entry in memory.history(entity="x")] == [(first, 1), (second, 2)]
    assert texts(memory.records()) == ["one", "two"]


def test_a_batch_that_fails_writes_nothing(memory: Memory) -> None:
    id = memory.add("old")

    def work() -> None:
        with memory.batch():
            memory.add("new")
            memory.update(id, "changed")
            memory.delete(where={"id": id})
            memory.forget_superseded()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert texts(memory.records()) == ["old"]
    memory.add("after")
    assert texts(memory.records()) == ["old", "after"]


def test_removals_in_a_batch_come_with_the_rest(memory: Memory) -> None:
    for number in range(4):
        memory.add(f"v{number}", entity="x", timestamp=number)
    head = memory.storage.head(memory.scope)
    with memory.batch():
        assert memory.forget_superseded(keep=2)["deleted"] == 2
        assert memory.delete(text_contains="v3") == 1
        memory.add("v4", entity="x", timestamp=4)
        assert len(memory.records()) == 4
    assert memory.storage.head(memory.scope) == head + 1
    assert texts(memory.history(entity="x")) == ["v2", "v4"]


def test_a_removal_computed_from_an_old_state_is_refused_at_the_end(shelf: Shelf) -> None:
    memory, other = shelf.open(), shelf.open()
    memory.add("v1", entity="x", timestamp=1)
    memory.add("v2", entity="x", timestamp=2)

    def work() -> None:
        with memory.batch():
            memory.add("new")
            memory.forget_superseded()
            other.add("v0", entity="x", timestamp=0)
            memory.delete(where={"n": {"$exists": False}})

    with pytest.raises(ConflictError, match="expected head 2, found 3"):
        work()
    assert sorted(texts(memory.records())) == ["v0", "v1", "v2"]


def test_two_corrections_of_one_record_in_a_batch_are_refused_rather_than_one_lost(memory: Memory) -> None:
    id = memory.add("one", {"a": 1})

    def work() -> None:
        with memory.batch():
            memory.update(id, "two")
            memory.update(id, metadata={"b": 2})

    with pytest.raises(ConflictError) as caught:
        work()
    assert caught.value.id == id
    assert texts(memory.records()) == ["one"]


def test_a_batch_over_two_scopes_is_one_commit_in_each(memory: Memory) -> None:
    with memory.batch():
        for user in ("ann", "bob", "ann"):
            memory.add(f"of {user}", user=user)
    for user, count in {"ann": 2, "bob": 1}.items():
        scope = memory._scope(user, None)
        assert (memory.storage.head(scope), len(memory.records(user=user))) == (1, count)


def test_a_batch_holds_the_writes_of_its_own_thread_only(memory: Memory) -> None:
    with memory.batch():
        memory.add("inside")
        thread = threading.Thread(target=memory.add, args=("outside",))
        thread.start()
        thread.join()
        assert texts(memory.records()) == ["outside"]
    assert texts(memory.records()) == ["outside", "inside"]


def test_what_can_not_wait_is_refused_in_a_batch(memory: Memory) -> None:
    id = memory.add("x")
    with memory.batch():
        for call in (lambda: memory.purge(id), memory.erase, lambda: memory.prune(older_than_days=0)):
            with pytest.raises(InputError, match="can't be part of a batch"):
                call()
        with pytest.raises(InputError, match="inside a batch already"), memory.batch():
            pass
    assert texts(memory.records()) == ["x"]


def test_a_batch_of_a_closed_memory_can_not_be_begun(memory: Memory) -> None:
    memory.close()
    with pytest.raises(ClosedError), memory.batch():
        pass


def test_an_empty_batch_writes_nothing(memory: Memory) -> None:
    with memory.batch():
        memory.add("")
    assert memory.storage.head(memory.scope) == 0
