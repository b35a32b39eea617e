"""A run: what is built once, who takes part, and what happens to an arm that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nanomem_bench.bench import Bench
from nanomem_bench.data import Spec
from nanomem_bench.findings import FULL, QUICK
from nanomem_bench.process import ArmError

from nanomem_core import PluginManager

EFFORT = replace(QUICK, rounds=2, seconds=60.0, calls=3)
SPEC = Spec(200, 16)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with PluginManager.discover().build("embedder", "lexical") as embedder:
        yield Bench(tmp_path, EFFORT, ["numpy", "sqlite"], seed=0, embedder=embedder)


def test_an_effort_limits_and_scales_the_numbers_of_records() -> None:
    assert FULL.records(100_000) == 100_000
    assert FULL.records(1_000_000, FULL.growth_top) == 1_000_000
    assert QUICK.records(100_000) == 10_000
    assert replace(QUICK, scale=0.5).records(100_000) == 5_000
    assert replace(QUICK, scale=0.001).records(1_000) == 50


def test_sizes_that_a_limit_makes_equal_are_measured_once(bench: Bench) -> None:
    sizes = ((10_000, 16), (100_000, 16), (100_000, 32))
    assert bench.specs(sizes) == [Spec(10_000, 16), Spec(10_000, 32)]
    bench.kinds = ("random", "clustered")
    assert len(bench.specs(sizes)) == 4
    assert bench.spec(100_000, 16, in_chains=True) == Spec(10_000, 16, chains=1_000)


def test_a_store_is_built_once_and_written_to_in_copies_only(bench: Bench) -> None:
    folder = bench.store("sqlite", SPEC)
    assert folder is not None
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.suffix == ".db"}
    with bench.running(["sqlite"], SPEC, writes=True) as running:
        assert running[0].process.setup.folder != folder
        bench.turns(running, "add", "delete")
    assert bench.store("sqlite", SPEC) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.suffix == ".db"} == before
    assert list((bench.folder / "copies").iterdir()) == []
    assert bench.failures == []


def test_each_arm_gets_as_many_turns_for_what_it_can_do(bench: Bench) -> None:
    with bench.running(bench.arms, SPEC) as running:
        samples = bench.turns(running, "search", "get")
    found = {(each.arm, operation): len(seconds) for (each, operation), seconds in samples.items()}
    assert found == {("numpy", "search"): 6, ("sqlite", "get"): 6}
    assert bench.able("search") == ["numpy"]
    assert bench.able("add", "delete") == ["sqlite"]


def test_an_arm_that_fails_is_noted_and_the_others_go_on(bench: Bench) -> None:
    for name in bench.arms:
        bench.store(name, SPEC)
    damaged = bench.store("numpy", SPEC)
    assert damaged is not None
    (damaged / "vectors.npy").write_bytes(b"no matrix")
    bench.suite = "open"
    with bench.running(bench.arms, SPEC) as running:
        assert [each.arm for each in running] == ["sqlite"]
    [failure] = bench.failures
    assert (failure.suite, failure.arm) == ("open", "numpy")
    assert "ValueError" in failure.message


def test_a_store_that_can_not_be_built_is_noted_once(bench: Bench) -> None:
    (bench.folder / "stores").write_text("in the way")
    assert bench.store("numpy", SPEC) is None
    assert bench.store("numpy", SPEC) is None
    with bench.running(["numpy"], SPEC) as running:
        assert running == []
    assert len(bench.failures) == 1


def test_the_same_failure_is_told_once(bench: Bench) -> None:
    bench.note(ArmError("numpy", "no"))
    bench.note(ArmError("numpy", "no"))
    bench.note(ArmError("sqlite", "no"))
    assert [failure.arm for failure in bench.failures] == ["numpy", "sqlite"]


def test_times_are_told_as_median_and_percentile_in_milliseconds(bench: Bench) -> None:
    bench.add_times("search", "numpy", SPEC, [0.001 * n for n in range(101)], threads=1)
    [figure] = bench.figures
    assert (figure.value, figure.p95, figure.unit) == (pytest.approx(50), pytest.approx(95), "ms")
    assert (figure.n, figure.case, figure.threads) == (200, "200 × 16", 1)
