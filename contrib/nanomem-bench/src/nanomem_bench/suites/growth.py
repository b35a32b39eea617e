"""How the time of each operation grows with the store, up to a million records."""

from __future__ import annotations

from ..arms import OURS
from ..bench import Bench, Running
from ..data import Spec

__all__ = ["run"]

_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_OPERATIONS = ("add", "get", "history", "changes", "search", "delete")
_CALLS = 50


def run(bench: Bench) -> None:
    sizes = dict.fromkeys(bench.effort.records(n, bench.effort.growth_top) for n in _SIZES)
    specs = [Spec(n, 384, chains=n // 10) for n in sizes]
    with bench.running([name for name in bench.arms if name in (OURS, "sqlite")], specs, writes=True) as running:
        bench.say(", ".join(f"{spec.n:,}" for spec in specs))
        for (each, operation), seconds in bench.turns(running, *_OPERATIONS, calls=_CALLS).items():
            bench.add_times(operation, each.arm, f"{each.spec.n:,} records", seconds, n=each.spec.n)
        opening: dict[Running, list[float]] = {each: [] for each in running}

        def reopen(each: Running) -> None:
            each.process.call("close")
            opening[each].append(each.process.call("open"))

        for _ in range(bench.effort.opens):
            bench.each(running, reopen)
        for each, seconds in opening.items():
            bench.add_times("open", each.arm, f"{each.spec.n:,} records", seconds, n=each.spec.n)
