"""What facts cost as files that people can edit, beside the same facts in other stores: each operation from 100 to
10,000 facts, and several processes that write for one user."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from ..bench import Bench, Running
from ..data import Spec
from ..measure import p95
from ..process import ArmError, ArmProcess

__all__ = ["SIZES", "WRITERS", "run"]

SIZES = (100, 1_000, 10_000)
WRITERS = (1, 2, 4, 8)
_WIDTH = 8
"""Of the vectors of the data, which no arm here uses."""

_OPERATIONS = {
    "create": ("add", None),
    "update": ("update", None),
    "delete": ("delete", None),
    "get": ("get", None),
    "list": ("list_all", None),
    "list after a create": ("list_all", "add"),
    "page of 20": ("page", None),
    "page of 20, looking for edits": ("checked_page", None),
}
"""Measure → the operation, and what is done before each call and not counted."""

_OPENING = {
    "open and get": ("get", False),
    "open and list": ("list_all", False),
    "open and list, nothing derived": ("list_all", True),
}
"""Measure → the first operation after opening, and whether what is derived is deleted before."""

_OPENS, _FRESH_OPENS = 5, 3
"""How often a store is opened at most; reading every file takes long."""

_SHARE = 0.5
"""Of the time of a turn: there are many operations and sizes."""


def run(bench: Bench) -> None:
    specs = [Spec(bench.effort.records(n, bench.effort.middle), _WIDTH) for n in SIZES]
    for spec in dict.fromkeys(specs):
        with bench.running(bench.fact_arms, spec, writes=True) as running:
            bench.say(_case(spec))
            _operations(bench, running, spec)
            _opening(bench, running, spec)
    for name in bench.fact_arms:
        bench.on_copy(name, specs[1], partial(_writers, bench, name, specs[1]))


def _case(spec: Spec) -> str:
    return f"{spec.n:,} facts"


def _operations(bench: Bench, running: list[Running], spec: Spec) -> None:
    rows: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for number in range(1 + bench.effort.rounds):
        for measure in _OPERATIONS:

            def turn(each: Running, measure: str = measure, is_first: bool = number == 0) -> None:
                found = _turn(bench, each, measure, is_first)
                if not is_first:
                    rows[each.arm, measure] += found

            bench.each(running, turn)
    for (arm, measure), found in rows.items():
        if not found:
            continue
        bench.add_times(measure, arm, _case(spec), [row["seconds"] for row in found], n=spec.n)
        bench.add_times(f"{measure}: CPU", arm, _case(spec), [row["cpu"] for row in found], n=spec.n)
        syncs = [row["syncs"] for row in found]
        if any(syncs):
            name = f"{measure}: files forced to disk"
            bench.add(name, arm, _case(spec), fmean(syncs), "fsync/call", n=spec.n, p95=p95(syncs))


def _turn(bench: Bench, each: Running, measure: str, is_first: bool) -> list[dict[str, float]]:
    """What each call took; nothing where the arm can't do it."""
    operation, after = _OPERATIONS[measure]
    if operation not in bench.fact_arms[each.arm].operations:
        return []
    effort = bench.effort
    # A store must not run out of facts.
    spare = each.spec.n // (4 * (1 + effort.rounds))
    limit = max(1, min(effort.calls, spare)) if operation == "delete" else effort.calls
    seconds, limit = (0.0, 1) if is_first else (_SHARE * effort.seconds, limit)
    found: list[dict[str, float]] = each.process.call(
        "measure", operation=operation, seconds=seconds, limit=limit, after=after
    )
    return found


def _opening(bench: Bench, running: list[Running], spec: Spec) -> None:
    for measure, (operation, fresh) in _OPENING.items():
        times: dict[str, list[float]] = defaultdict(list)

        def reopen(
            each: Running, operation: str = operation, fresh: bool = fresh, times: dict[str, list[float]] = times
        ) -> None:
            times[each.arm].append(each.process.call("reopen", operation=operation, fresh=fresh))

        # The first one is not counted.
        for _ in range(1 + min(_FRESH_OPENS if fresh else _OPENS, bench.effort.opens)):
            bench.each(running, reopen)
        for arm, seconds in times.items():
            bench.add_times(measure, arm, _case(spec), seconds[1:], n=spec.n)


def _writers(bench: Bench, name: str, spec: Spec, folder: Path) -> None:
    for number, writers in enumerate(WRITERS):
        case = "1 process" if writers == 1 else f"{writers} processes"
        bench.say(f"{name}: {case} writing for one user")
        found = _compete(bench, name, spec, folder, number, writers)
        seconds = [second for row in found for second in row["seconds"]]
        rate = sum(len(row["seconds"]) / bench.effort.span for row in found)
        bench.add("creates beside others", name, case, rate, "creates/s", n=spec.n)
        bench.add_times("a create beside others", name, case, seconds, n=spec.n)
        bench.add("99th percentile of a create", name, case, 1e3 * float(np.percentile(seconds, 99)), "ms", n=spec.n)
        bench.add("creates that failed", name, case, sum(row["failures"] for row in found), "", n=spec.n)
        for row in found:
            if row["error"]:
                bench.note(ArmError(name, f"{case}: {row['error']}"))


def _compete(bench: Bench, name: str, spec: Spec, folder: Path, number: int, writers: int) -> list[dict[str, Any]]:
    """What each of so many processes needed for each create, in the time that all of them worked."""
    with ExitStack() as stack:
        setup = replace(bench.setup(name, spec, folder, 1), confined=False)
        # Each writer's facts have numbers of their own, also from one phase to the next.
        processes = [
            stack.enter_context(ArmProcess(replace(setup, first=(number * WRITERS[-1] + place) * 10_000_000)))
            for place in range(writers)
        ]
        for process in processes:
            process.call("open")
            process.call("repeat", operation="add", seconds=0, limit=1)
        for process in processes:
            process.ask("compete", operation="add", seconds=bench.effort.span)
        found = [process.answer() for process in processes]
        for process in processes:
            process.call("close")
    return found
