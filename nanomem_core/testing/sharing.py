"""The part of the storage contract about handles, threads and processes that share one store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ..errors import ConflictError
from ..interfaces import Snapshot, Storage
from .fixtures import ANN, BOB, MakeStorage, StorageFixtures
from .processes import in_processes, must_be_picklable
from .samples import assert_columns_agree, fact, put, put_all, remove

__all__ = ["SharingContract"]

Worker = Callable[[Storage, int], None]


class SharingContract(StorageFixtures):
    """No commit is lost, none is seen in part, and every handle sees those of the others."""

    def test_two_handles_see_the_commits_of_each_other(self, opened: MakeStorage) -> None:
        first, second = opened(), opened()
        put_all(first, ANN, [fact("a", entity="city")])
        assert second.head(ANN) == 1
        assert second.get(ANN, "a") == first.get(ANN, "a")
        put_all(second, ANN, [fact("a", "changed", entity="city"), fact("b", entity="city")])
        assert [record.text for record in first.scan(ANN)] == ["changed", "text of b"]
        remove(first, ANN, "a")
        assert second.get(ANN, "a") is None
        first.erase(ANN)
        assert (second.head(ANN), list(second.scan(ANN)), second.scopes()) == (0, [], [])
        put_all(second, ANN, [fact("c")])
        assert [record.id for record in first.scan(ANN)] == ["c"]

    def test_a_handle_goes_on_after_another_one_compacted(self, opened: MakeStorage) -> None:
        first, second = opened(), opened()
        put_all(first, ANN, [fact(f"r{i}") for i in range(30)])
        remove(first, ANN, *(f"r{i}" for i in range(20)))
        assert_columns_agree(second, ANN)
        first.compact()
        assert len(list(second.scan(ANN))) == 10
        assert_columns_agree(second, ANN)
        put_all(second, ANN, [fact("after")])
        remove(second, ANN, "r29")
        for handle in (first, second, opened()):
            assert [record.id for record in handle.scan(ANN)] == [*(f"r{i}" for i in range(20, 29)), "after"]
            assert_columns_agree(handle, ANN)

    def test_a_scope_that_another_handle_erased_and_filled_again_is_another_one(
        self, storage: Storage, opened: MakeStorage
    ) -> None:
        other = opened()
        for id in "abc":
            put_all(storage, ANN, [fact(id)])
        assert storage.columns(ANN).head == 3
        other.erase(ANN)
        for id in "xyz":
            put_all(other, ANN, [fact(id)])
        assert_columns_agree(storage, ANN)
        other.erase(ANN)
        for id in "uvw":
            put_all(other, ANN, [fact(id)])
        put_all(storage, ANN, [fact("t")])
        assert_columns_agree(storage, ANN)

    def test_threads_lose_nothing(self, storage: Storage) -> None:
        _in_threads(storage, _add_25)
        _assert_all_added(storage, 8)

    def test_threads_number_one_chain_without_gaps(self, storage: Storage) -> None:
        _in_threads(storage, _extend_chain)
        _assert_numbered(storage, 8 * 10)

    def test_updates_of_threads_are_never_lost(self, storage: Storage) -> None:
        put_all(storage, ANN, [fact("sum", "0")])
        _in_threads(storage, _count_up)
        found = storage.get(ANN, "sum")
        assert found is not None
        assert found.text == str(8 * 5)

    def test_readers_see_whole_commits_while_threads_write(self, storage: Storage) -> None:
        stop, torn = threading.Event(), []

        def read() -> None:
            while not stop.is_set():
                texts = {record.text for record in storage.scan(ANN)}
                columns = storage.columns(ANN)
                if len(texts) > 1 or int(columns.live.sum()) not in (0, 3):
                    torn.append((texts, int(columns.live.sum())))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(60):
                put_all(storage, ANN, [fact(id, f"commit {number}") for id in "abc"])
        finally:
            stop.set()
            reader.join()
        assert torn == []

    def test_processes_lose_nothing(self, make_storage: MakeStorage, opened: MakeStorage) -> None:
        self._in_processes(make_storage, _add_25, 8)
        _assert_all_added(opened(), 8)

    def test_processes_number_one_chain_without_gaps(self, make_storage: MakeStorage, opened: MakeStorage) -> None:
        self._in_processes(make_storage, _extend_chain, 4)
        _assert_numbered(opened(), 4 * 10)

    def _in_processes(self, make_storage: MakeStorage, worker: Worker, count: int) -> None:
        if not self.on_disk:
            pytest.skip("the store lives in memory")
        must_be_picklable(make_storage, "make_storage")
        in_processes(_work, [(make_storage, worker, number) for number in range(count)])


def _work(make_storage: MakeStorage, worker: Worker, number: int) -> None:
    with make_storage() as storage:
        worker(storage, number)


def _in_threads(storage: Storage, worker: Worker) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            worker(storage, number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _add_25(storage: Storage, worker: int) -> None:
    for number in range(25):
        put_all(storage, BOB if number % 5 == 4 else ANN, [fact(f"{worker}-{number}", f"worker {worker} ünïcode 漢字")])


def _extend_chain(storage: Storage, worker: int) -> None:
    for number in range(10):
        put_all(storage, ANN, [fact(f"{worker}-{number}", entity="city")])


def _count_up(storage: Storage, worker: int) -> None:
    def compute(snapshot: Snapshot) -> list[Any]:
        return [put(storage, fact("sum", str(int(snapshot.records[0].text) + 1)))]

    for _ in range(5):
        while True:
            try:
                storage.update(ANN, compute)
                break
            except ConflictError:
                continue


def _assert_all_added(storage: Storage, workers: int) -> None:
    for scope, numbers in ((ANN, [n for n in range(25) if n % 5 != 4]), (BOB, range(4, 25, 5))):
        expected = {f"{worker}-{number}" for worker in range(workers) for number in numbers}
        assert {record.id for record in storage.scan(scope)} == expected
        assert storage.head(scope) == len(expected)
        assert_columns_agree(storage, scope)


def _assert_numbered(storage: Storage, count: int) -> None:
    assert sorted(record.revision for record in storage.scan(ANN)) == list(range(1, count + 1))
    assert_columns_agree(storage, ANN)
