"""How long one durable record takes, and how many a second come in together."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from ..bench import Bench, Running

__all__ = ["run"]


def run(bench: Bench) -> None:
    spec = bench.spec(10_000, 384)
    with bench.running(bench.able("add"), spec, writes=True) as running:
        bench.say(f"one durable record at a time: {spec}")
        for (each, _), seconds in bench.turns(running, "add").items():
            bench.add_times("durable add", each.arm, spec, seconds)
    _bulk(bench)


def _bulk(bench: Bench) -> None:
    count = bench.effort.records(bench.effort.middle)
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    with bench.running(bench.arms, bench.spec(10_000, 384), writes=True) as running:

        def fill(each: Running) -> None:
            bench.say(f"{count:,} records at once: {each.arm}")
            added, closed = each.process.call("add_many", count=count)
            rates["add_many", each.arm].append(count / closed)
            rates["add_many, before closing", each.arm].append(count / added)

        for _ in range(bench.effort.fills):
            bench.each(running, fill)
    for (measure, arm), found in rates.items():
        bench.add(measure, arm, f"{count:,} records, 1,000 a call", median(found), "records/s", n=count)
