"""``nanomem bench``, from end to end on a scale that takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


MEASURED = {
    ("search", "search"),
    ("search", "plain"),
    ("search", "in chains"),
    ("search", "filter of 1 %"),
    ("search", "hybrid"),
    ("open", "open and first search"),
    ("write", "durable add"),
    ("write", "add_many"),
    ("write", "add_many, before closing"),
    ("delete", "add"),
    ("delete", "delete"),
    ("memory", "disk: all"),
    ("concurrency", "commits"),
    ("concurrency", "search"),
    ("concurrency", "compaction"),
    ("concurrency", "longest commit"),
    ("history", "history of a record"),
    ("history", "history found by a question"),
    ("history", "the last ten changes"),
    ("history", "volatility of all chains"),
    ("startup", "import Vault"),
    ("startup", "--help"),
    ("startup", "search, 50 records"),
    ("recall", "recall@10 of what is stored"),
}


# One test, since one run gives all of it, and takes longer than all other tests.
def test_a_run_of_all_suites_measures_everything_and_gets_right_answers(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("\n".join(f"note {n} about topic {n % 9}" for n in range(200)), encoding="utf-8")
    (tmp_path / "work").mkdir()
    files = ("--text", "notes.txt", "--folder", "work", "--markdown", "report.md", "--json")
    done = nanomem(tmp_path, "bench", "all", *ALONE, *files)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "work").iterdir()) == []

    found = json.loads(done.stdout)
    assert found["failures"] == []
    assert set(found["seconds"]) == set(SUITES)
    figures = [figure for figure in found["figures"] if figure["arm"] == OURS]
    assert {(figure["suite"], figure["measure"]) for figure in figures} >= MEASURED
    assert all(figure["value"] > 0 for figure in figures if figure["unit"] == "ms")
    grown = {row["operation"] for row in found["growth"] if row["arm"] == OURS}
    assert grown == {"add", "get", "history", "changes", "search", "delete", "open"}

    answers = [figure for figure in figures if figure["unit"] == "" and "given" not in figure["measure"]]
    assert {figure["value"] for figure in answers} == {1.0}
    kinds = {figure["case"].partition(", ")[2] for figure in answers if figure["suite"] == "recall"}
    assert kinds == {"", "clustered", "duplicates", "dominant", "text"}

    goals = {goal["goal"]: goal["met"] for goal in found["goals"]}
    assert goals["open: 100,000 × 384 ≤ 10 ms"] is None
    assert goals["startup: --help ≤ 2 × import click"] is not None

    (tmp_path / "report.json").write_text(done.stdout, encoding="utf-8")
    parts = sorted({figure["suite"] for figure in figures})
    (tmp_path / "page.md").write_text("".join(f"<!-- bench: {part} -->\n<!-- end of bench -->\n" for part in parts))
    filled = nanomem(tmp_path, "bench", "page", "report.json", "page.md")
    assert (filled.returncode, filled.stdout) == (0, f"page.md: {len(parts)} tables\n"), filled.stderr

    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert [line for line in report.splitlines() if line.startswith("## ")][2:] == [f"## {suite}" for suite in SUITES]
    assert f"{len(SUITES) - 1}/{len(SUITES)}  growth: " in done.stderr


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
