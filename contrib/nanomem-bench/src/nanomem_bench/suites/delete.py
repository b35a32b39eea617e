"""How long it takes to remove one record from a large store."""

from __future__ import annotations

from ..bench import Bench

__all__ = ["run"]

_CALLS = 20
"""Some products write the whole file anew for each."""


def run(bench: Bench) -> None:
    spec = bench.spec(100_000, 384)
    with bench.running(bench.able("add", "delete"), spec, writes=True) as running:
        bench.say(str(spec))
        for (each, operation), seconds in bench.turns(running, "add", "delete", calls=_CALLS).items():
            bench.add_times(operation, each.arm, spec, seconds)
