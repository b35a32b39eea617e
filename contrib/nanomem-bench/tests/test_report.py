"""The arithmetic of bars and reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nanomem_bench.arms import ARMS, FACT_ARMS, OURS
from nanomem_bench.bars import BARS, Bar, Key, judge
from nanomem_bench.findings import FULL, Described, Failure, Figure, Findings
from nanomem_bench.measure import p95, slope
from nanomem_bench.report import Report, growth
from nanomem_bench.suites import SUITES

RATIO = Bar("search ≤ 0.4 × faiss", Key("search", "search", "c"), Key("search", "search", "c", "faiss"), 0.4)


def figure(arm: str, value: float, **fields: Any) -> Figure:
    return Figure(
        **{"suite": "search", "measure": "search", "case": "c", "unit": "ms", "n": 10} | fields, arm=arm, value=value
    )


def test_a_ratio_is_held_against_its_limit() -> None:
    for ours, met in ((3.9, True), (4.0, True), (4.1, False)):
        [verdict] = judge([RATIO], [figure(OURS, ours), figure("faiss", 10.0)])
        assert verdict.found == pytest.approx(ours / 10)
        assert verdict.met is met


def test_a_bar_may_ask_for_at_least() -> None:
    bar = Bar("rate ≥ 3 × faiss", RATIO.ours, RATIO.other, 3.0, at_least=True)
    for ours, met in ((29.0, False), (30.0, True)):
        [verdict] = judge([bar], [figure(OURS, ours), figure("faiss", 10.0)])
        assert verdict.met is met


def test_a_bar_without_another_figure_is_absolute() -> None:
    [verdict] = judge([Bar("search ≤ 10 ms", RATIO.ours, None, 10.0)], [figure(OURS, 8.0)])
    assert (verdict.found, verdict.met) == (8.0, True)


def test_a_bar_may_be_about_the_95th_percentile() -> None:
    bar = Bar("p95", Key("search", "search", "c", use_p95=True), Key("search", "search", "c", "faiss", True), 3.0)
    [verdict] = judge([bar], [figure(OURS, 1.0, p95=8.0), figure("faiss", 1.0, p95=2.0)])
    assert (verdict.found, verdict.met) == (4.0, False)


def test_each_number_of_threads_gets_a_verdict() -> None:
    figures = [figure(arm, value, threads=n) for n in (1, 2) for arm, value in ((OURS, 3.0 * n), ("faiss", 10.0))]
    assert [(v.threads, v.met) for v in judge([RATIO], figures)] == [(1, True), (2, False)]


@pytest.mark.parametrize("figures", [[], [figure(OURS, 1.0)], [figure("faiss", 1.0)]], ids=len)
def test_what_was_not_measured_is_neither_met_nor_missed(figures: list[Figure]) -> None:
    [verdict] = judge([RATIO], figures)
    assert (verdict.found, verdict.met) == (None, None)


def test_every_bar_is_about_a_suite_and_an_arm_that_exist() -> None:
    for bar in BARS:
        for key in filter(None, (bar.ours, bar.other)):
            assert key.suite in SUITES
            assert key.arm in {*ARMS, *FACT_ARMS, "python"}
    assert len({bar.goal for bar in BARS}) == len(BARS)


def test_the_slope_is_the_exponent_of_a_power_law() -> None:
    sizes = [1_000, 10_000, 100_000]
    assert slope(sizes, [5.0] * 3) == pytest.approx(0, abs=1e-9)
    assert slope(sizes, [0.3 * n for n in sizes]) == pytest.approx(1)
    assert slope(sizes, [2.0 * n**0.5 for n in sizes]) == pytest.approx(0.5)


def test_the_95th_percentile_lies_between_the_samples() -> None:
    assert p95([float(n) for n in range(101)]) == 95.0
    assert p95([4.0]) == 4.0


def test_growth_is_told_for_each_operation() -> None:
    figures = [figure(OURS, n / 1000, suite="growth", measure="open", n=n) for n in (1_000, 10_000)]
    figures.append(figure("sqlite", 1.0, suite="growth", measure="add", n=1_000))
    opened, added = growth([*figures, figure(OURS, 1.0)])
    assert (opened.operation, opened.milliseconds) == ("open", {1_000: 1.0, 10_000: 10.0})
    assert opened.exponent == pytest.approx(1)
    assert added.exponent is None


def report(*figures: Figure) -> Report:
    findings = Findings(
        effort=FULL,
        arms={OURS: Described("0.1", "defaults | all", True, True, ("search",))},
        missing=["chroma"],
        failures=[Failure("search", "faiss", "ValueError: no")],
        figures=list(figures),
    )
    return Report(findings, {"processors": 2}, {1: 20e9}, {"search": 1.0, "growth": 2.0})


def test_markdown_tells_medians_percentiles_and_how_ours_relates() -> None:
    text = report(figure(OURS, 2.0, p95=2.5, threads=1), figure("faiss", 8.0, p95=9.0, threads=1)).as_markdown()
    assert "| arm (ms) | c, 1 thread |" in text
    assert f"| {OURS} | 2, p95 2.5 |" in text
    assert "| faiss | 8, p95 9 (ours: 0.25×) |" in text


def test_markdown_names_what_is_missing_what_failed_and_what_was_not_measured() -> None:
    text = report().as_markdown()
    assert "| chroma | missing |" in text
    assert "| search | faiss | ValueError: no |" in text
    assert "| search: search, 100,000 × 768 ≤ 0.4 × faiss | - | not measured |" in text
    assert "defaults \\| all" in text
    assert "take 15.4 ms to read" in text


def test_a_report_is_json() -> None:
    figures = [figure(OURS, 1.0, suite="growth", measure="add", n=n, case=f"{n}") for n in (1_000, 10_000)]
    found = json.loads(json.dumps(report(*figures).as_dict()))
    assert found["growth"][0]["milliseconds"] == {"1000": 1.0, "10000": 1.0}
    assert {goal["met"] for goal in found["goals"]} == {None}
