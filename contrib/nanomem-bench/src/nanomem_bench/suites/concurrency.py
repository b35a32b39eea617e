"""Several processes on one store: do writers share the cost of the disk, do readers wait for them, and how long does a
writer wait for a compaction?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from nanomem_core.cli.show import count

from ..bench import Bench
from ..data import Spec
from ..process import ArmProcess

__all__ = ["run"]

_MANY = 4
_EVER = 1_000_000_000
_REMOVED = 100
_BEFORE = 0.2
"""Share of the time of a writer that is over when a compaction begins beside it."""


def run(bench: Bench) -> None:
    spec = bench.spec(10_000, 384)
    for name in bench.able("search", "add"):
        if bench.arms[name].shared:
            bench.on_copy(name, spec, partial(_together, bench, name, spec))
    large = bench.spec(100_000, 384)
    for name in bench.able("add", "delete", "compact"):
        bench.on_copy(name, large, partial(_compacting, bench, name, large))


def _compacting(bench: Bench, name: str, spec: Spec, folder: Path) -> None:
    """The longest of a writer's commits, alone and while another process compacts the store."""
    bench.say(f"{name}: a writer beside a compaction: {spec}")
    span = bench.effort.span
    with ExitStack() as stack:
        setup = replace(bench.setup(name, spec, folder, 1), confined=False)
        writer, compactor = (stack.enter_context(ArmProcess(setup)) for _ in range(2))
        for process in (writer, compactor):
            process.call("open")
        compactor.call("repeat", operation="delete", seconds=span, limit=min(_REMOVED, spec.n // 4))
        writer.call("repeat", operation="add", seconds=0, limit=1)
        alone = writer.call("repeat", operation="add", seconds=span, limit=_EVER)
        writer.ask("repeat", operation="add", seconds=span, limit=_EVER)
        time.sleep(_BEFORE * span)
        (seconds,) = compactor.call("repeat", operation="compact", seconds=0, limit=1)
        beside = writer.answer()
        for process in (writer, compactor):
            process.call("close")
    bench.add("compaction", name, spec, 1e3 * seconds, "ms", n=spec.n)
    bench.add("longest commit", name, "alone", 1e3 * max(alone), "ms", n=spec.n)
    bench.add("longest commit", name, "beside a compaction", 1e3 * max(beside), "ms", n=spec.n)


def _together(bench: Bench, name: str, spec: Spec, folder: Path) -> None:
    phases = (("alone", 1, 0), ("alone", 0, 1), (f"{_MANY} of a kind", 0, _MANY), (f"{_MANY} + {_MANY}", _MANY, _MANY))
    for number, (case, writers, readers) in enumerate(phases):
        bench.say(f"{name}: {count(writers, 'writer')} and {count(readers, 'reader')}")
        added, searched = _phase(bench, name, spec, folder, number, writers, readers)
        if writers:
            # Each writer's own rate, added up: the time that a process takes to start does not count.
            rate = sum(len(seconds) / sum(seconds) for seconds in added)
            bench.add("commits", name, case, rate, "commits/s", n=spec.n)
        if readers:
            bench.add_times("search", name, case, [s for seconds in searched for s in seconds], n=spec.n)


def _phase(
    bench: Bench, name: str, spec: Spec, folder: Path, number: int, writers: int, readers: int
) -> tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]:
    """What each writer and each reader needed for each call, in the time that all of them worked."""
    with ExitStack() as stack:
        setup = replace(bench.setup(name, spec, folder, 1), confined=False)
        # Each writer's records have numbers of their own, also from one phase to the next.
        processes = [
            stack.enter_context(ArmProcess(replace(setup, first=(number * 2 * _MANY + place) * 10_000_000)))
            for place in range(writers + readers)
        ]
        operations = ["add"] * writers + ["search"] * readers
        for process in processes:
            process.ask("open")
        for process, operation in zip(processes, operations, strict=True):
            process.answer()
            process.call("repeat", operation=operation, seconds=0, limit=1)
        for process, operation in zip(processes, operations, strict=True):
            process.ask("repeat", operation=operation, seconds=bench.effort.span, limit=_EVER)
        samples = [process.answer() for process in processes]
        for process in processes:
            process.call("close")
    return samples[:writers], samples[writers:]
