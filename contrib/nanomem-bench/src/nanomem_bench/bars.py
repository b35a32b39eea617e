"""The goals: ratios between figures, and whether they are met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .arms import OUR_FILES, OURS
from .data import KINDS, QUERIES, Spec
from .findings import Figure
from .suites.facts_as_files import SIZES as FACTS
from .suites.recall import SIZES

__all__ = ["BARS", "Bar", "Key", "Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Key:
    """Which figure: its suite, measure, case and arm. `use_p95` takes its 95th percentile in place of the median."""

    suite: str
    measure: str
    case: str
    arm: str = OURS
    use_p95: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of ours divided by another one, or by 1, must be at most `limit`; with `at_least`, at least."""

    goal: str
    ours: Key
    other: Key | None
    limit: float
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar held against what was measured.

    Attributes:
        found: the ratio (or the figure, for a bar without another); None if it was not measured.
        met: None if it was not measured.
        threads: where the figures were measured with several numbers of threads.
    """

    bar: Bar
    found: float | None
    met: bool | None
    threads: int | None = None


def judge(bars: Iterable[Bar], figures: Sequence[Figure]) -> list[Verdict]:
    """A verdict for each bar; one for each number of threads, where there are several."""
    by_key: dict[tuple[Key, int | None], Figure] = {}
    threads: dict[Key, list[int | None]] = {}
    for figure in figures:
        key = Key(figure.suite, figure.measure, figure.case, figure.arm)
        by_key[key, figure.threads] = figure
        threads.setdefault(key, []).append(figure.threads)

    def value(key: Key, count: int | None) -> float | None:
        figure = by_key.get((Key(key.suite, key.measure, key.case, key.arm), count))
        return None if figure is None else figure.p95 if key.use_p95 else figure.value

    verdicts = []
    for bar in bars:
        plain = Key(bar.ours.suite, bar.ours.measure, bar.ours.case, bar.ours.arm)
        for count in threads.get(plain, [None]):
            ours = value(bar.ours, count)
            other = 1.0 if bar.other is None else value(bar.other, count)
            if ours is None or not other:
                verdicts.append(Verdict(bar, None, None, count))
            else:
                found = ours / other
                met = found >= bar.limit if bar.at_least else found <= bar.limit
                verdicts.append(Verdict(bar, found, met, count))
    return verdicts


# The bars.

_OLD = "nanomem-0.8"


def _case(n: int, dim: int) -> str:
    return str(Spec(n, dim))


def _peer(suite: str, measure: str, case: str, arm: str, limit: float, *, at_least: bool = False) -> Bar:
    sign = "≥" if at_least else "≤"
    goal = f"{suite}: {measure}, {case} {sign} {limit:g} × {arm}"
    return Bar(goal, Key(suite, measure, case), Key(suite, measure, case, arm), limit, at_least)


def _search_bars() -> list[Bar]:
    large, medium = _case(100_000, 768), _case(100_000, 384)
    plain = Key("search", "plain", medium)
    return [
        _peer("search", "search", large, "faiss", 0.40),
        _peer("search", "search", large, _OLD, 0.30),
        _peer("search", "search", _case(10_000, 384), "faiss", 0.6),
        _peer("search", "search", _case(10_000, 768), "faiss", 0.6),
        _peer("search", "search", _case(1_000, 384), _OLD, 0.3),
        Bar(f"search: in 10,000 chains, {medium} ≤ 1.2 × plain", Key("search", "in chains", medium), plain, 1.2),
        Bar(f"search: filter of 1 %, {medium} ≤ 1.2 × plain", Key("search", "filter of 1 %", medium), plain, 1.2),
        Bar(f"search: hybrid, {medium} ≤ 3 × plain", Key("search", "hybrid", medium), plain, 3.0),
    ]


def _recall_bars() -> list[Bar]:
    bars = []
    for measure in ("recall@10 of what is stored", "answers in the order of brute force"):
        for n, dim in SIZES:
            for kind in KINDS:
                case = str(Spec(n, dim, kind))
                goal = f"recall: {measure}, {case}, {QUERIES} of {QUERIES}"
                bars.append(Bar(goal, Key("recall", measure, case), None, 1.0, at_least=True))
    return bars


def _open_bars() -> list[Bar]:
    small, large = Key("open", "open", _case(1_000, 384)), Key("open", "open", _case(100_000, 384))
    first = "open and first search"
    return [
        Bar(f"open: {large.case} ≤ 1.5 × {small.case}", large, small, 1.5),
        Bar(f"open: {large.case} ≤ 10 ms", large, None, 10.0),
        _peer("open", first, _case(100_000, 384), _OLD, 0.25),
        _peer("open", first, _case(100_000, 768), _OLD, 0.25),
    ]


def _memory_bars() -> list[Bar]:
    bars = []
    for dim in (384, 768):
        case = _case(100_000, dim)
        old = Key("memory", "disk: the store", case, _OLD)
        bars += [
            Bar(f"memory: anonymous, {case} ≤ 250 B/record", Key("memory", "memory: anonymous", case), None, 250.0),
            _peer("memory", "disk: the store", case, _OLD, 1.0),
            Bar(f"memory: disk: all, {case} ≤ 1.6 × the store of {_OLD}", Key("memory", "disk: all", case), old, 1.6),
        ]
    return bars


def _write_bars() -> list[Bar]:
    bulk, large = "20,000 records, 1,000 a call", _case(100_000, 384)
    least, most = (Key("growth", "add", f"{n:,} records") for n in (1_000, 1_000_000))
    delete = Bar(f"delete: {large} ≤ 2 × add", Key("delete", "delete", large), Key("delete", "add", large), 2.0)
    return [
        *(_peer("growth", "add", f"{n:,} records", "sqlite", 1.2) for n in (1_000, 10_000, 100_000, 1_000_000)),
        Bar(f"growth: add, {most.case} ≤ 1.5 × {least.case}", most, least, 1.5),
        _peer("write", "add_many", bulk, "sqlite-vec", 3.0, at_least=True),
        _peer("write", "add_many", bulk, _OLD, 10.0, at_least=True),
        delete,
    ]


def _process_bars() -> list[Bar]:
    together = Key("concurrency", "commits", "4 + 4")
    reading = Key("concurrency", "search", "4 + 4", use_p95=True)
    alone = Key("concurrency", "search", "4 of a kind", use_p95=True)
    new, python = "a new process", "python"
    libraries = Key("startup", "import numpy, pydantic", new, python)
    click = Key("startup", "import click", new, python)
    return [
        Bar(
            "concurrency: commits of 4 writers beside 4 readers ≥ 2 × one writer alone",
            together,
            Key("concurrency", "commits", "alone"),
            2.0,
            at_least=True,
        ),
        Bar("concurrency: p95 of 4 readers beside 4 writers ≤ 3 × without the writers", reading, alone, 3.0),
        Bar("startup: import Vault ≤ 1.3 × numpy and pydantic", Key("startup", "import Vault", new), libraries, 1.3),
        Bar("startup: --help ≤ 2 × import click", Key("startup", "--help", new), click, 2.0),
        _peer("startup", "search, 10,000 records", new, _OLD, 1.5),
    ]


def _file_bars() -> list[Bar]:
    def key(measure: str, case: str) -> Key:
        return Key("facts-as-files", measure, case, OUR_FILES)

    def at_most(measure: str, case: str, limit: float, unit: str) -> Bar:
        return Bar(f"facts-as-files: {measure}, {case} ≤ {limit:g}{unit}", key(measure, case), None, limit)

    many, crowd = f"{FACTS[-1]:,} facts", "8 processes"
    synced = [(f"{measure}: files forced to disk", f"{n:,} facts") for measure in ("create", "update") for n in FACTS]
    return [
        *(at_most(measure, case, 3.0, " a call") for measure, case in synced),
        at_most("list after a create", many, 50.0, " ms"),
        at_most("open and get", many, 500.0, " ms"),
        at_most("page of 20", many, 10.0, " ms"),
        at_most("page of 20, looking for edits", many, 50.0, " ms"),
        at_most("creates that failed", crowd, 0.0, ""),
        Bar(
            f"facts-as-files: 99th percentile of a create, {crowd} ≤ 10 × the median of one alone",
            key("99th percentile of a create", crowd),
            key("a create beside others", "1 process"),
            10.0,
        ),
    ]


BARS: tuple[Bar, ...] = (
    *_search_bars(),
    *_recall_bars(),
    *_open_bars(),
    *_memory_bars(),
    *_write_bars(),
    *_process_bars(),
    *_file_bars(),
)
