"""How much memory and disk a record takes.

Memory is the difference between two processes, one with a small and one with a large store, after 100 searches each: so
what the product needs without any record counts for nothing.
"""

from __future__ import annotations

from ..bench import Bench, Running
from ..data import Spec

__all__ = ["run"]

_SEARCHES = 100
_SECONDS = 30.0


def run(bench: Bench) -> None:
    for dim in (384, 768):
        small, large = bench.spec(1_000, dim), bench.spec(100_000, dim)
        for name in bench.able("search"):
            bench.say(f"memory and disk: {name}, {large}")
            _measure(bench, name, small, large)


def _measure(bench: Bench, name: str, small: Spec, large: Spec) -> None:
    found: dict[Spec, dict[str, int]] = {}

    def use(each: Running) -> None:
        each.process.call("repeat", operation="search", seconds=_SECONDS, limit=_SEARCHES)
        memory = each.process.call("memory")
        if memory is not None:
            found[each.spec] = memory
        if each.spec == large:
            store, derived = each.process.call("disk")
            bench.add("disk: the store", name, large, store / large.n, "B/record")
            bench.add("disk: derived files", name, large, derived / large.n, "B/record")
            bench.add("disk: all", name, large, (store + derived) / large.n, "B/record")

    with bench.running([name], list(dict.fromkeys((small, large)))) as running:
        bench.each(running, use)
    if len(found) == 2:  # the sizes differ, and the system tells
        for kind in ("anonymous", "mapped"):
            difference = (found[large][kind] - found[small][kind]) / (large.n - small.n)
            bench.add(f"memory: {kind}", name, large, difference, "B/record")
