"""Each installed arm does what it is measured for, and answers what brute force answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from nanomem_bench import arms
from nanomem_bench.arms import OURS
from nanomem_bench.data import BUCKETS, K, Material
from nanomem_bench.measure import judge
from nanomem_bench.process import ArmProcess, Setup

from nanomem_core import Vault

Built = tuple[str, Path, Path]


@pytest.fixture
def process(built: Built, tmp_path: Path) -> Iterator[ArmProcess]:
    """The arm in a process of its own, with a copy of its store."""
    name, folder, material = built
    copy = tmp_path / "store"
    shutil.copytree(folder, copy)
    with ArmProcess(Setup(name, copy, material)) as process:
        process.call("open")
        yield process
        process.call("close")


def operations(name: str) -> list[str]:
    return arms.load(name).operations()


def needs(name: str, *wanted: str) -> None:
    if not set(wanted) <= set(operations(name)):
        pytest.skip(f"{name} does not do this")


def test_its_answers_are_those_of_brute_force(built: Built, process: ArmProcess) -> None:
    needs(built[0], "search")
    found = process.call("check", questions=100)
    assert found["recall"] == 1.0  # an approximate index, too, finds everything among so few
    assert found["order"] == 1.0
    assert found["recall_of_given"] >= 0.99  # rounding to float16 may swap the last hit for one that is as near


def test_every_operation_that_it_offers_can_be_repeated(built: Built, process: ArmProcess) -> None:
    for operation in operations(built[0]):
        samples = process.call("repeat", operation=operation, seconds=60.0, limit=3)
        assert len(samples) == 3
        assert min(samples) > 0


def test_what_was_added_is_found_after_reopening_and_what_was_deleted_is_not(
    built: Built, process: ArmProcess, material: Path
) -> None:
    needs(built[0], "add", "delete", "search")
    process.call("repeat", operation="add", seconds=60.0, limit=2)
    process.call("repeat", operation="delete", seconds=60.0, limit=4)
    process.call("close")
    process.call("open")
    count = len(Material(material))
    with ArmProcess(process.setup) as other:
        other.call("open")
        held = {position for answer in other.call("answers", operation="search", count=200) for position in answer}
        other.call("close")
    # The added records are made of the vectors of the first two, so they are as near to every question.
    assert held & {count, count + 1}
    assert not held & set(range(count - 4, count))


def test_a_filter_lets_through_one_bucket(built: Built, process: ArmProcess) -> None:
    needs(built[0], "search_filtered")
    for number, hits in enumerate(process.call("answers", operation="search_filtered", count=20)):
        assert len(set(hits)) == 3
        assert {hit % BUCKETS for hit in hits} == {number}


def test_every_operation_works_on_records_in_chains(built: Built, tmp_path: Path) -> None:
    needs(built[0], "volatility")
    setup = Setup(built[0], tmp_path / "chained", built[2], chains=30)
    with ArmProcess(setup) as process:
        process.call("build")
        process.call("open")
        for operation in operations(built[0]):
            assert len(process.call("repeat", operation=operation, seconds=60.0, limit=2)) == 2
        process.call("close")


def test_the_chains_of_ours_are_those_of_the_data(material: Path, tmp_path: Path) -> None:
    with ArmProcess(Setup(OURS, tmp_path / "chained", material, chains=30)) as process:
        process.call("build")
    with Vault(tmp_path / "chained" / "memory.dat") as vault:
        assert [row["n_revisions"] for row in vault.volatility()] == [10] * 30


def test_many_records_come_in_within_a_new_store(built: Built, process: ArmProcess) -> None:
    before = process.call("disk")
    for _ in range(2):
        added, closed = process.call("add_many", count=250)
        assert 0 < added < closed
    assert sum(process.call("disk")) > sum(before)


def test_the_store_is_told_apart_from_what_is_derived(built: Built, process: ArmProcess) -> None:
    store, derived = process.call("disk")
    vectors = 300 * 24 * 2
    assert store > vectors
    assert derived >= 0
    if built[0] == OURS:
        assert derived > 0


def test_its_settings_are_told(built: Built, process: ArmProcess) -> None:
    found = process.call("describe")
    assert found["settings"]
    assert set(found["operations"]) <= set(arms.OPERATIONS)
    assert found["exact"] == (built[0] != "chroma")


def test_the_judge_counts_what_is_missing_and_what_is_out_of_order() -> None:
    vectors = np.eye(4, dtype=np.float32)
    query = np.array([[0.9, 0.5, 0.3, 0.1]], np.float32)
    assert judge(vectors, query, [[0, 1]], 2) == (1.0, 1.0)
    assert judge(vectors, query, [[1, 0]], 2) == (1.0, 0.0)
    assert judge(vectors, query, [[0, 2]], 2) == (0.5, 0.0)
    assert judge(vectors, query, [[0]], 2) == (0.5, 0.0)
    assert judge(vectors, query, [[0, 0]], 2) == (0.0, 0.0)


def test_the_judge_lets_equals_stand_in_for_one_another() -> None:
    vectors = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], np.float32)
    query = np.array([[1, 0]], np.float32)
    assert judge(vectors, query, [[2, 1]], 2) == (1.0, 1.0)
    assert judge(vectors, query, [[2, 3]], 2) == (0.5, 0.0)


def test_a_search_finds_ten(built: Built, process: ArmProcess) -> None:
    needs(built[0], "search")
    assert [len(set(hits)) for hits in process.call("answers", operation="search", count=3)] == [K] * 3
