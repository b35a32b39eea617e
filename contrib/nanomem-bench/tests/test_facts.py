"""The stores of facts do what they are measured for, and the suite tells all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nanomem_bench import arms
from nanomem_bench.arms import FACT_ARMS, OUR_FILES
from nanomem_bench.bars import BARS
from nanomem_bench.bench import Bench
from nanomem_bench.findings import QUICK
from nanomem_bench.process import ArmProcess, Setup
from nanomem_bench.report import Report
from nanomem_bench.suites import SUITES, facts_as_files

from nanomem_core import PluginManager

WRITING = ("add", "update", "delete")


@pytest.fixture(params=FACT_ARMS)
def process(request: pytest.FixtureRequest, material: Path, tmp_path: Path) -> Iterator[ArmProcess]:
    """An arm in a process of its own, on a store that was closed and is open again."""
    with ArmProcess(Setup(request.param, tmp_path / "store", material)) as process:
        process.call("build")
        process.call("open")
        yield process
        process.call("close")


def test_every_operation_that_it_offers_is_measured(process: ArmProcess) -> None:
    operations = arms.load(process.setup.arm).operations()
    assert {"get", "list_all", *WRITING} <= set(operations)
    for operation in operations:
        rows = process.call("measure", operation=operation, seconds=60.0, limit=3)
        assert len(rows) == 3
        assert all(row["seconds"] > 0 for row in rows)
        # The reference is in C, where nobody counts.
        counted = operation in WRITING and process.setup.arm != "sqlite-facts"
        assert (sum(row["syncs"] for row in rows) > 0) == counted


def test_what_is_done_before_each_call_is_done_and_not_measured(process: ArmProcess) -> None:
    rows = process.call("measure", operation="get", seconds=60.0, limit=3, after="add")
    assert [row["syncs"] for row in rows] == [0, 0, 0]
    # The next number of that operation: an id is free once only.
    assert process.call("compete", operation="add", seconds=0.01)["failures"] == 0


def test_a_store_is_read_after_opening_it_anew(process: ArmProcess) -> None:
    for fresh in (False, True):
        assert process.call("reopen", operation="list_all", fresh=fresh) > 0
    derived = process.setup.folder / ".derived"
    assert derived.exists() == (process.setup.arm == OUR_FILES)


def test_calls_that_fail_are_counted_and_the_others_go_on(process: ArmProcess) -> None:
    process.call("measure", operation="add", seconds=60.0, limit=3)
    with ArmProcess(process.setup) as other:
        other.call("open")
        # Its numbers begin where those of the first did, and so do the ids, which are free once.
        found = other.call("compete", operation="add", seconds=1.0)
        other.call("close")
    assert found["failures"] == 3
    assert found["seconds"]
    assert found["error"]


def test_the_suite_tells_what_facts_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_as_files, "WRITERS", (1, 2))
    effort = replace(QUICK, scale=0.001, rounds=1, seconds=0.02, opens=1, span=0.1)
    with PluginManager.discover().build("embedder", "lexical") as embedder:
        bench = Bench(tmp_path, effort, [*FACT_ARMS, "numpy"], seed=0, embedder=embedder)
        seconds = bench.run({"facts-as-files": SUITES["facts-as-files"]})
    assert bench.failures == []
    figures = {(each.arm, each.measure, each.case): each.value for each in bench.figures}
    assert {arm for arm, _, _ in figures} == set(FACT_ARMS)
    for arm in FACT_ARMS:
        for measure in ("create", "update", "delete", "get", "list", "list after a create"):
            assert figures[arm, measure, "50 facts"] > 0
            assert figures[arm, f"{measure}: CPU", "50 facts"] > 0
        assert figures[arm, "open and list", "50 facts"] > 0
        for case in ("1 process", "2 processes"):
            assert figures[arm, "creates beside others", case] > 0
            assert figures[arm, "creates that failed", case] == 0
    assert 1 <= figures[OUR_FILES, "create: files forced to disk", "50 facts"] <= 3
    assert figures[OUR_FILES, "page of 20, looking for edits", "50 facts"] > 0
    report = Report(bench.findings, {}, {}, seconds)
    text = report.as_markdown()
    assert "| sqlite-facts | " in text
    assert "(ours: " in text
    goals = {verdict.bar.goal: verdict.met for verdict in report.verdicts}
    assert goals["facts-as-files: open and get, 10,000 facts ≤ 500 ms"] is None


def test_the_goals_name_what_the_suite_measures() -> None:
    keys = [key for bar in BARS for key in (bar.ours, bar.other) if key and key.suite == "facts-as-files"]
    assert len(keys) > 10
    known = {*(f"{n:,} facts" for n in facts_as_files.SIZES), "1 process", f"{facts_as_files.WRITERS[-1]} processes"}
    assert {key.case for key in keys} <= known
    assert {key.arm for key in keys} == {OUR_FILES}
