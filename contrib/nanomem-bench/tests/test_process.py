"""The protocol between a run and the processes of the arms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nanomem_bench.measure import THREAD_VARIABLES, memory
from nanomem_bench.process import ArmError, ArmProcess, Setup, environment


@pytest.fixture
def setup(material: Path, tmp_path: Path) -> Setup:
    return Setup("numpy", tmp_path / "store", material)


def test_an_error_of_the_arm_is_told_and_the_process_goes_on(setup: Setup) -> None:
    with ArmProcess(setup) as process:
        process.call("build")
        process.call("open")
        with pytest.raises(ArmError, match="numpy: NotImplementedError"):
            process.call("repeat", operation="delete", seconds=0, limit=1)
        assert len(process.call("repeat", operation="search", seconds=0, limit=1)) == 1


def test_an_unknown_product_is_an_error_of_its_arm(setup: Setup) -> None:
    with ArmProcess(replace(setup, arm="nothing")) as process, pytest.raises(ArmError, match="nothing: KeyError"):
        process.call("describe")


def test_a_process_that_ends_is_an_error_with_its_last_words(setup: Setup) -> None:
    with ArmProcess(setup) as process:
        process.call("build")
        process._process.kill()
        process._process.wait()
        with pytest.raises(ArmError, match="its process ended"):
            process.call("open")


def test_several_processes_work_at_the_same_time(setup: Setup) -> None:
    with ArmProcess(setup) as first, ArmProcess(setup) as second:
        first.call("build")
        for process in (first, second):
            process.call("open")
        for process in (first, second):
            process.ask("repeat", operation="search", seconds=60.0, limit=5)
        assert [len(process.answer()) for process in (first, second)] == [5, 5]


def test_threads_are_limited_by_every_variable(setup: Setup) -> None:
    found = environment(3)
    assert {found[name] for name in THREAD_VARIABLES} == {"3"}


def test_memory_is_told_apart_where_the_system_tells_it(setup: Setup) -> None:
    with ArmProcess(setup) as process:
        process.call("build")
        process.call("open")
        found = process.call("memory")
    if memory() is None:
        assert found is None
    else:
        assert found["anonymous"] > 300 * 24 * 4
        assert found["mapped"] > 0


def test_bandwidth_is_that_of_all_threads_together(setup: Setup) -> None:
    with ArmProcess(setup) as process:
        assert process.call("bandwidth", threads=2) > 1e8
