"""How long it takes to open a store, and to the first answer, where the interpreter runs and the files were read
before."""

from __future__ import annotations

from collections import defaultdict

from ..bench import Bench, Running

__all__ = ["run"]

SIZES = ((1_000, 384), (100_000, 384), (100_000, 768))


def run(bench: Bench) -> None:
    for spec in bench.specs(SIZES):
        times: dict[tuple[str, str], list[float]] = defaultdict(list)
        with bench.running(bench.able("search"), spec) as running:
            bench.say(str(spec))

            def warm(each: Running) -> None:
                each.process.call("repeat", operation="search", seconds=0, limit=1)

            def again(each: Running, times: dict[tuple[str, str], list[float]] = times) -> None:
                each.process.call("close")
                opening = each.process.call("open")
                [answer] = each.process.call("repeat", operation="search", seconds=0, limit=1)
                times[each.arm, "open"].append(opening)
                times[each.arm, "first search"].append(answer)
                times[each.arm, "open and first search"].append(opening + answer)

            bench.each(running, warm)
            for _ in range(bench.effort.opens):
                bench.each(running, again)
        for (arm, measure), seconds in times.items():
            bench.add_times(measure, arm, spec, seconds)
