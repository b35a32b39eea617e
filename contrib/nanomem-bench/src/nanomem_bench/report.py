"""What a run found, as Markdown and as JSON types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from nanomem_core.cli.show import count
from nanomem_core.errors import InputError
from nanomem_core.hints import did_you_mean

from .arms import OUR_FILES, OURS
from .bars import BARS, Verdict, judge
from .findings import Figure, Findings
from .measure import slope

__all__ = ["Growth", "Report", "growth", "markdown_table"]

_FLOOR = (100_000, 768)
"""The store whose float32 vectors the bandwidth is told for: records, dimensions."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How an operation's time follows the number of records.

    Attributes:
        milliseconds: median, by number of records.
        exponent: b in time = a · records^b; 0 is constant, 1 linear. None with fewer than two sizes.
    """

    arm: str
    operation: str
    milliseconds: Mapping[int, float]
    exponent: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """A finished run.

    Attributes:
        seconds: that each suite took.
        bandwidth: bytes a second, by number of threads.
    """

    findings: Findings
    machine: Mapping[str, Any]
    bandwidth: Mapping[int, float]
    seconds: Mapping[str, float]

    @property
    def verdicts(self) -> list[Verdict]:
        """Of the suites that were run."""
        return judge([bar for bar in BARS if bar.ours.suite in self.seconds], self.findings.figures)

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON types."""
        return {
            "machine": dict(self.machine),
            "bandwidth": {str(threads): rate for threads, rate in self.bandwidth.items()},
            "seconds": dict(self.seconds),
            **self.findings.as_dict(),
            "growth": [
                asdict(row) | {"milliseconds": {str(n): ms for n, ms in row.milliseconds.items()}}
                for row in growth(self.findings.figures)
            ],
            "goals": [
                {"goal": v.bar.goal, "threads": v.threads, "found": v.found, "limit": v.bar.limit, "met": v.met}
                for v in self.verdicts
            ],
        }

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """What `as_dict` made; goals and growth are told anew.

        Raises:
            KeyError, TypeError: it is something else, or of another release.
        """
        bandwidth = {int(threads): rate for threads, rate in tree["bandwidth"].items()}
        return cls(Findings.from_dict(tree), tree["machine"], bandwidth, tree["seconds"])

    def table(self, name: str) -> str:
        """A part of the report: ``setting``, ``arms``, ``goals``, ``growth``, a suite with a line for each of its
        measures and cases, or one measure of it as ``suite/measure``.

        Raises:
            InputError: there is no such part in this report; names those that there are.
        """
        parts = {"setting": self._setting, "arms": self._arms, "goals": self._goals}
        if name in parts:
            return parts[name]()
        suite, _, measure = name.partition("/")
        figures = [f for f in self.findings.figures if f.suite == suite and measure in ("", f.measure)]
        if not figures:
            suites = list(self.seconds)
            raise InputError(
                f"the report has no part {name!r}{did_you_mean(suite, [*parts, *suites])} (its parts: "
                f"{', '.join([*parts, *suites])}; and suite/measure)"
            )
        return _growth_table(growth(figures)) if name == "growth" else _by_case(figures)

    def as_markdown(self) -> str:
        parts = ["# nanomem bench", self._setting(), "## Arms", self._arms(), "## Goals", self._goals()]
        for suite, seconds in self.seconds.items():
            parts.append(f"## {suite}\n\nTook {seconds:.0f} s.")
            figures = [figure for figure in self.findings.figures if figure.suite == suite]
            if suite == "growth":
                parts.append(_growth_table(growth(figures)))
            else:
                measures = dict.fromkeys(figure.measure for figure in figures)
                parts += [f"### {name}\n\n" + _figures([f for f in figures if f.measure == name]) for name in measures]
        if self.findings.failures:
            rows = [[f.suite or "start", f.arm, f.message] for f in self.findings.failures]
            parts += ["## Failures", markdown_table(["suite", "arm", "error"], rows)]
        return "\n\n".join(parts) + "\n"

    def _setting(self) -> str:
        n, dim = _FLOOR
        size = 4 * n * dim
        lines = [f"{key}: {value}" for key, value in self.machine.items()]
        lines += [
            f"memory bandwidth, {count(threads, 'thread')}: {rate / 1e9:.1f} GB/s; "
            f"the {n:,} × {dim} float32 vectors take {1e3 * size / rate:.1f} ms to read"
            for threads, rate in self.bandwidth.items()
        ]
        effort = self.findings.effort
        lines.append(
            f"effort: {effort.rounds} rounds of at most {effort.calls} calls or {effort.seconds:g} s for each arm in "
            f"turn; at most {effort.top:,} records ({effort.growth_top:,} in growth)"
            + ("" if effort.scale == 1 else f"; every number of records multiplied by {effort.scale:g}")
        )
        lines += [
            "vectors are given, not computed; each arm has its own process, on a store that was closed and reopened",
            "threads are limited by each library's own means, and on Linux by as many processors",
        ]
        return "\n".join(f"* {line}" for line in lines)

    def _arms(self) -> str:
        rows = [[name, arm.version, arm.settings] for name, arm in self.findings.arms.items()]
        rows += [
            [name, "missing", "not installed: `pip install nanomem-bench[peers]`"] for name in self.findings.missing
        ]
        return markdown_table(["arm", "version", "configuration"], rows)

    def _goals(self) -> str:
        rows = []
        for verdict in self.verdicts:
            threads = "" if verdict.threads is None else f", {count(verdict.threads, 'thread')}"
            found = "-" if verdict.found is None else f"{verdict.found:.3g}"
            rows.append(
                [verdict.bar.goal + threads, found, {True: "met", False: "NOT met", None: "not measured"}[verdict.met]]
            )
        return markdown_table(["goal", "found", "verdict"], rows)


def growth(figures: Sequence[Figure]) -> list[Growth]:
    """The growth of each operation, from the figures of the suite ``growth``."""
    times: dict[tuple[str, str], dict[int, float]] = {}
    for figure in figures:
        if figure.suite == "growth":
            times.setdefault((figure.arm, figure.measure), {})[figure.n] = figure.value
    return [
        Growth(arm, operation, by_size, slope(list(by_size), list(by_size.values())) if len(by_size) > 1 else None)
        for (arm, operation), by_size in times.items()
    ]


def _growth_table(rows: Sequence[Growth]) -> str:
    sizes = sorted({n for row in rows for n in row.milliseconds})
    cells = [
        [
            row.arm,
            row.operation,
            *(_number(row.milliseconds[n]) if n in row.milliseconds else "-" for n in sizes),
            "-" if row.exponent is None else f"{row.exponent:.2f}",
        ]
        for row in rows
    ]
    note = "Median in ms, and b of the power law time = a · records^b that fits best.\n\n"
    return note + markdown_table(["arm", "operation", *(f"{n:,}" for n in sizes), "b"], cells)


def _figures(figures: Sequence[Figure]) -> str:
    """One measure: a line an arm, a column a case, and how ours relates to each."""
    columns = list(dict.fromkeys((figure.case, figure.threads) for figure in figures))
    found = {(figure.arm, figure.case, figure.threads): figure for figure in figures}
    unit = figures[0].unit
    headers = [case + ("" if threads is None else f", {count(threads, 'thread')}") for case, threads in columns]
    ours = _ours(figures)
    rows = [
        [arm, *(_cell(found.get((arm, *column)), found.get((ours, *column))) for column in columns)]
        for arm in dict.fromkeys(figure.arm for figure in figures)
    ]
    return markdown_table([f"arm ({unit})" if unit else "arm", *headers], rows)


def _by_case(figures: Sequence[Figure]) -> str:
    """Several measures: a line for each case, a column an arm, medians alone."""
    arms = sorted(dict.fromkeys(figure.arm for figure in figures), key=lambda arm: arm != _ours(figures))
    found = {(f.measure, f.case, f.threads, f.unit, f.arm): _number(f.value) for f in figures}
    several = len({figure.measure for figure in figures}) > 1
    rows = []
    for measure, case, threads, unit in dict.fromkeys(key[:-1] for key in found):
        parts = (measure if several else "", case, "" if threads is None else count(threads, "thread"))
        cells = [found.get((measure, case, threads, unit, arm), "-") for arm in arms]
        rows.append([", ".join(filter(None, parts)), unit, *cells])
    return markdown_table(["", "unit", *arms], rows)


def _ours(figures: Sequence[Figure]) -> str:
    """The arm that the others are compared with."""
    return OURS if any(figure.arm == OURS for figure in figures) else OUR_FILES


def _cell(figure: Figure | None, ours: Figure | None) -> str:
    if figure is None:
        return "-"
    text = _number(figure.value)
    if figure.p95 is not None:
        text += f", p95 {_number(figure.p95)}"
    # Shares have no unit; dividing them would tell nothing.
    if ours is not None and ours is not figure and figure.value and figure.unit:
        text += f" (ours: {ours.value / figure.value:.3g}×)"
    return text


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
