"""Putting the tables of a report into a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from nanomem_bench.arms import OURS
from nanomem_bench.findings import FULL, Described, Figure, Findings
from nanomem_bench.page import page, parts_of, read_report, with_tables
from nanomem_bench.report import Report
from nanomem_bench.suites import SUITES

from nanomem_core.errors import FormatError, InputError

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "performance.md"


def report(*, faiss: float = 8.0) -> Report:
    def figure(suite: str, measure: str, arm: str, value: float, **fields: Any) -> Figure:
        return Figure(suite, measure, arm, **{"case": "1,000 × 384", "unit": "ms", "n": 1_000} | fields, value=value)

    figures = [
        figure("search", "search", "faiss", faiss, threads=1),
        figure("search", "search", OURS, 2.0, threads=1, p95=2.5),
        figure("search", "search", OURS, 1.5, threads=2, p95=1.75),
        figure("write", "durable add", OURS, 0.25),
        figure("write", "add_many", OURS, 40_000.0, unit="records/s", case="20,000 records"),
        *(figure("growth", "get", OURS, 0.5, n=n, case=f"{n}") for n in (1_000, 10_000)),
    ]
    arms = {OURS: Described("0.1", "defaults", True, True, ("search",))}
    seconds = {"search": 1.0, "write": 1.0, "growth": 1.0}
    return Report(Findings(FULL, arms, ["chroma"], [], figures), {"processors": 2}, {1: 20e9}, seconds)


def marked(part: str, body: str = "old") -> str:
    return f"before\n\n<!-- bench: {part} -->\n{body}\n<!-- end of bench -->\nafter\n"


def test_a_suite_has_a_line_for_each_measure_and_case_and_a_column_for_each_arm() -> None:
    assert with_tables(marked("write"), report()) == marked(
        "write",
        f"\n|  | unit | {OURS} |\n| --- | --- | --- |\n| durable add, 1,000 × 384 | ms | 0.25 |\n"
        "| add_many, 20,000 records | records/s | 40,000 |\n",
    )


def test_one_measure_of_a_suite_is_named_by_the_mark_alone() -> None:
    assert with_tables(marked("search/search"), report()) == marked(
        "search/search",
        f"\n|  | unit | {OURS} | faiss |\n| --- | --- | --- | --- |\n| 1,000 × 384, 1 thread | ms | 2 | 8 |\n"
        "| 1,000 × 384, 2 threads | ms | 1.5 | - |\n",
    )


def test_what_people_wrote_stays_and_a_second_time_changes_nothing() -> None:
    text = "# Title\n" + marked("goals") + "prose | with bars\n" + marked("search", "")
    once = with_tables(text, report())
    assert with_tables(once, report()) == once
    assert parts_of(once) == ["goals", "search"]
    assert once.startswith("# Title\nbefore\n")
    assert "after\nprose | with bars\nbefore\n" in once
    assert "old" not in once
    assert with_tables(once, report(faiss=9.0)) == once.replace("| 2 | 8 |", "| 2 | 9 |")


def test_setting_arms_and_growth_are_those_of_the_whole_report() -> None:
    whole = report().as_markdown()
    for part in ("setting", "arms", "goals", "growth"):
        assert report().table(part) in whole


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no mark\n", "found none"),
        ("<!-- bench: goals -->\n", "is not followed by"),
        ("<!-- bench: goals -->\n" + marked("arms"), "goals --> is not followed by"),
        (marked("serach"), "did you mean 'search'"),
        (marked("search/speed"), "no part 'search/speed'"),
        (marked("delete"), "its parts: setting, arms, goals, search, write, growth"),
    ],
)
def test_a_page_that_can_not_be_filled_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        with_tables(text, report())


def test_the_command_fills_every_page_or_none(tmp_path: Path) -> None:
    file, good, bad = tmp_path / "report.json", tmp_path / "good.md", tmp_path / "bad.md"
    file.write_text(json.dumps(report().as_dict()), encoding="utf-8")
    good.write_text(marked("write") + marked("arms"), encoding="utf-8")
    bad.write_text(marked("delete"), encoding="utf-8")
    refused = CliRunner().invoke(page, [str(file), str(good), str(bad)])
    assert isinstance(refused.exception, InputError)
    assert str(bad) in str(refused.exception)
    assert "old" in good.read_text(encoding="utf-8")
    done = CliRunner().invoke(page, [str(file), str(good)])
    assert (done.exit_code, done.stdout) == (0, f"{good}: 2 tables\n")
    assert good.read_text(encoding="utf-8") == with_tables(marked("write") + marked("arms"), report())


def test_a_report_comes_back_from_json_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report().as_dict()), encoding="utf-8")
    assert read_report(file) == report()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"effort": {}}', "null"])
def test_what_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(FormatError, match="expected what `nanomem bench"):
        read_report(file)


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not beside the distribution")
def test_the_page_on_performance_names_parts_that_a_full_run_has() -> None:
    parts = parts_of(PAGE.read_text(encoding="utf-8"))
    assert {part.partition("/")[0] for part in parts} <= {"setting", "arms", "goals", *SUITES}
    assert len(set(parts)) == len(parts) > 5
