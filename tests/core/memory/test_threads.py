"""Readers and writers at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nanomem_core.errors import ConflictError
from nanomem_core.testing.fakes import HashEmbedder
from tests.memories import Shelf, texts


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Let threads take turns every 10 microseconds, so that they meet at every place."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Crew:
    """Threads whose first failure is raised when they are waited for."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[..., Any], *arguments: Any) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self._errors.append(error)
                self.stop.set()

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def repeat(self, work: Callable[[], Any]) -> None:
        """Do `work` at least once, and again until `stop` is set."""

        def loop() -> None:
            work()
            while not self.stop.is_set():
                work()

        self.start(loop)

    def wait(self, *, count: int | None = None) -> None:
        for thread in self._threads[:count]:
            thread.join()
        if count is None and self._errors:
            raise self._errors[0]

    def finish(self, writers: int) -> None:
        """Wait for the first `writers` threads, then stop the others."""
        self.wait(count=writers)
        self.stop.set()
        self.wait()


def test_threads_lose_no_write_and_number_their_chain_without_gaps(shelf: Shelf) -> None:
    memory, crew = shelf.open(), Crew()

    def write(worker: int) -> None:
        for number in range(15):
            memory.add(f"{worker}-{number}", entity="x", timestamp=1)

    for worker in range(6):
        crew.start(write, worker)
    crew.wait()
    history = shelf.open().history(entity="x")
    assert [entry.revision for entry in history] == list(range(1, 91))
    assert {entry.text for entry in history} == {f"{worker}-{number}" for worker in range(6) for number in range(15)}
    assert [entry.superseded for entry in memory.history(entity="x")] == [True] * 89 + [False]


def test_a_reader_never_sees_a_chain_without_a_current_value(shelf: Shelf) -> None:
    memory, crew = shelf.open(), Crew()
    memory.add("value 0", entity="x", timestamp=0)

    def write() -> None:
        for number in range(1, 60):
            memory.add(f"value {number}", entity="x", timestamp=number)

    def read() -> None:
        history = memory.history(entity="x")
        assert [entry.superseded for entry in history] == [True] * (len(history) - 1) + [False]
        assert texts(history) == [f"value {number}" for number in range(len(history))]
        hits = memory.search("value 0", top_k=500, mode="vector")
        assert [hit.superseded for hit in hits] == [False] + [True] * (len(hits) - 1)
        assert len(hits) >= len(history)
        assert len(memory.current()) == 1

    crew.start(write)
    for _ in range(3):
        crew.repeat(read)
    crew.finish(1)


def test_a_reader_always_finds_a_record_that_is_corrected_again_and_again(shelf: Shelf) -> None:
    memory, crew = shelf.open(), Crew()
    id = memory.add("steady", {"n": 0, "own": True}, entity="x")

    def write() -> None:
        for number in range(1, 60):
            memory.update(id, metadata={"n": number})

    def read() -> None:
        for found in (
            memory.search("steady", filter={"own": True}),
            memory.search("steady", mode="vector"),
            memory.history("steady"),
            memory.history(id=id),
            memory.current(),
            memory.records(),
            memory.changes(0),
            [memory.get(id)],
        ):
            assert [entry and entry.id for entry in found] == [id]

    crew.start(write)
    for _ in range(2):
        crew.repeat(read)
    crew.finish(1)
    assert memory.history(id=id)[0].version == 60


def test_a_record_is_deleted_though_others_write_at_the_same_time(shelf: Shelf) -> None:
    memory, crew = shelf.open(), Crew()
    ids = memory.add_many(f"r{number}" for number in range(20))

    def delete() -> None:
        for id in ids:
            assert memory.delete(id) == 1

    crew.start(delete)
    crew.repeat(lambda: memory.add("more"))
    crew.finish(1)
    assert set(texts(memory.records())) == {"more"}


def test_corrections_of_one_record_by_many_threads_are_merged_or_refused(shelf: Shelf) -> None:
    memory, crew = shelf.open(), Crew()
    id = memory.add("x")
    done: list[str] = []

    def write(worker: int) -> None:
        for number in range(5):
            try:
                assert memory.update(id, metadata={f"{worker}-{number}": True})
            except ConflictError:
                continue
            done.append(f"{worker}-{number}")

    for worker in range(4):
        crew.start(write, worker)
    crew.wait()
    found = memory.get(id)
    assert found is not None
    assert sorted(found.metadata) == sorted(done)
    assert found.version == len(done) + 1


def test_two_memories_over_one_store_see_each_other(shelf: Shelf) -> None:
    first, second = shelf.open(), shelf.open()
    first.add("one", entity="x", timestamp=1)
    assert texts(second.search("one")) == ["one"]
    second.add("two", entity="x", timestamp=2)
    assert [entry.superseded for entry in first.history(entity="x")] == [True, False]
    assert first.search("one", filter={"id": {"$exists": True}}, top_k=1)[0].text == "two"
    first.delete(text_exact="two")
    assert texts(second.current()) == ["one"]
    second.compact()
    first.add("three", entity="x", timestamp=3)
    assert texts(second.search("three", top_k=1)) == texts(first.search("three", top_k=1)) == ["three"]
    first.erase()
    assert second.records() == second.search("one") == []
    second.add("anew")
    assert texts(first.records()) == texts(first.search("anew")) == ["anew"]


def test_an_embedder_that_fails_once_costs_nothing_but_the_call(shelf: Shelf) -> None:
    class Flaky(HashEmbedder):
        failures = 0

        def encode(self, texts: Any) -> Any:
            if self.failures and "fact 5000" in texts:
                self.failures -= 1
                raise ConnectionError("no route")
            return super().encode(texts)

    embedder = Flaky()
    memory = shelf.open(embedder)
    if memory.storage.keeps_vectors:
        pytest.skip("texts are embedded when they are added")
    memory.add_many(f"fact {number}" for number in range(6000))
    embedder.failures = 1
    with pytest.raises(ConnectionError):
        memory.search("fact 3", mode="vector")
    for number in (3, 4500, 5999):
        hit = memory.search(f"fact {number}", top_k=1, mode="vector")[0]
        assert (hit.text, round(hit.cosine, 3)) == (f"fact {number}", 1)
    assert len(memory.search("fact 3", top_k=7000, mode="vector")) == 6000
