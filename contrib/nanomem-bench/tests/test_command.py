"""``nanomem bench``, from end to end on a scale that takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nanomem_bench.arms import ARMS, OURS, installed_version
from nanomem_bench.suites import SUITES

ALONE = ("--arm", OURS, "--arm", "sqlite", "--quick", "--scale", "0.001")
"""Arms that need nothing else installed, and stores of 50 records."""


def nanomem(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NANOMEM_")}
    return subprocess.run(
        [sys.executable, "-m", "nanomem_core", *arguments],
        cwd=cwd,
        env=environ | {"NANOMEM_CONFIG": "", "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    """A run of every suite: its JSON, its Markdown, and what it said on stderr."""
    folder = tmp_path_factory.mktemp("run")
    text = folder / "notes.txt"
    text.write_text("\n".join(f"note {n} about topic {n % 9}" for n in range(200)), encoding="utf-8")
    work = folder / "work"
    work.mkdir()
    done = nanomem(
        folder, "bench", "all", *ALONE, "--text", "notes.txt", "--folder", "work", "--markdown", "r.md", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert list(work.iterdir()) == []
    return json.loads(done.stdout), (folder / "r.md").read_text(encoding="utf-8"), done.stderr


def test_every_suite_gives_figures_and_no_arm_fails(full: tuple[dict[str, Any], str, str]) -> None:
    found, _, _ = full
    assert found["failures"] == []
    assert {figure["suite"] for figure in found["figures"]} == set(SUITES)
    assert set(found["seconds"]) == set(SUITES)
    assert all(figure["value"] > 0 for figure in found["figures"] if figure["unit"] == "ms")


def test_every_operation_of_ours_is_measured(full: tuple[dict[str, Any], str, str]) -> None:
    figures = [figure for figure in full[0]["figures"] if figure["arm"] == OURS]
    measured = {(figure["suite"], figure["measure"]) for figure in figures}
    assert measured >= {
        ("search", "search"),
        ("search", "plain"),
        ("search", "in chains"),
        ("search", "filter of 1 %"),
        ("search", "hybrid"),
        ("open", "open and first search"),
        ("write", "durable add"),
        ("write", "add_many"),
        ("delete", "delete"),
        ("memory", "disk: all"),
        ("concurrency", "commits"),
        ("concurrency", "search"),
        ("history", "history of a record"),
        ("history", "the last ten changes"),
        ("history", "volatility of all chains"),
        ("startup", "import Vault"),
        ("startup", "--help"),
    }
    grown = {row["operation"] for row in full[0]["growth"] if row["arm"] == OURS}
    assert grown == {"add", "get", "history", "changes", "search", "delete", "open"}


def test_answers_are_right_on_every_kind_of_data(full: tuple[dict[str, Any], str, str]) -> None:
    shares = [figure for figure in full[0]["figures"] if figure["unit"] == "" and "given" not in figure["measure"]]
    assert {figure["value"] for figure in shares} == {1.0}
    cases = {figure["case"].partition(", ")[2] for figure in shares if figure["suite"] == "recall"}
    assert cases == {"", "clustered", "duplicates", "dominant", "text"}


def test_goals_of_sizes_that_were_not_measured_are_open(full: tuple[dict[str, Any], str, str]) -> None:
    goals = {goal["goal"]: goal for goal in full[0]["goals"]}
    assert goals["open: 100,000 × 384 ≤ 10 ms"]["met"] is None
    assert goals["startup: --help ≤ 2 × import click"]["met"] in (True, False)


def test_the_report_and_the_progress_tell_the_same_story(full: tuple[dict[str, Any], str, str]) -> None:
    _, markdown, progress = full
    for suite in SUITES:
        assert f"\n## {suite}\n" in markdown
    assert f"{len(SUITES) - 1}/{len(SUITES)}  growth: " in progress
    assert "memory bandwidth" in markdown


def test_arms_that_are_not_installed_are_named(tmp_path: Path) -> None:
    absent = [name for name in ARMS if installed_version(name) is None]
    if not absent:
        pytest.skip("every peer is installed")
    done = nanomem(tmp_path, "bench", "delete", *ALONE, "--arm", absent[0])
    assert done.returncode == 0, done.stderr
    assert f"| {absent[0]} | missing |" in done.stdout


def test_nanomem_lists_it_without_importing_it(tmp_path: Path) -> None:
    code = """
import sys
from nanomem_core.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
print("imported" if any(name.startswith("nanomem_bench") for name in sys.modules) else "not imported")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "From nanomem-bench." in done.stdout
    assert done.stdout.endswith("not imported\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument"),
        (("speed",), "'speed' is not one of"),
        (("search", "--arm", "oracle"), "'oracle' is not one of"),
        (("search", "--data", "text"), "--data text needs --text FILE"),
        (("search", "--scale", "0"), "0"),
    ],
    ids=str,
)
def test_a_wrong_use_is_explained(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = nanomem(tmp_path, "bench", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
