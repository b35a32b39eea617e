"""How long a search takes, and what chains, filters and words add to it."""

from __future__ import annotations

from nanomem_core.cli.show import count

from ..arms import OURS
from ..bench import Bench, Running
from ..data import Spec
from .recall import check

__all__ = ["run"]

SIZES = ((1_000, 384), (10_000, 384), (10_000, 768), (100_000, 384), (100_000, 768))


def run(bench: Bench) -> None:
    for spec in bench.specs(SIZES):
        for threads in bench.effort.threads:
            _compare(bench, spec, threads)
    for threads in bench.effort.threads:
        _variants(bench, threads)


def _compare(bench: Bench, spec: Spec, threads: int) -> None:
    with bench.running(bench.able("search"), spec, threads=threads) as running:
        bench.say(f"{spec}, {count(threads, 'thread')}")
        for (each, _), seconds in bench.turns(running, "search").items():
            bench.add_times("search", each.arm, spec, seconds, threads=threads)
        if threads == bench.effort.threads[0]:
            check(bench, running)


def _variants(bench: Bench, threads: int) -> None:
    plain, chained = bench.spec(100_000, 384), bench.spec(100_000, 384, in_chains=True)
    with bench.running(bench.able("search_filtered", "volatility"), [plain, chained], threads=threads) as running:
        bench.say(f"with chains, filter and words: {plain}, {count(threads, 'thread')}")

        def first_hybrid(each: Running) -> None:
            if each.arm == OURS and each.spec == plain:
                [seconds] = each.process.call("repeat", operation="search_hybrid", seconds=0, limit=1)
                bench.add("first hybrid answer", each.arm, plain, 1e3 * seconds, "ms", threads=threads)

        bench.each(running, first_hybrid)
        names = {"search": "plain", "search_filtered": "filter of 1 %", "search_hybrid": "hybrid"}
        for (each, operation), seconds in bench.turns(running, *names).items():
            if each.spec == plain:
                bench.add_times(names[operation], each.arm, plain, seconds, threads=threads)
            elif operation == "search":
                bench.add_times("in chains", each.arm, plain, seconds, threads=threads)
