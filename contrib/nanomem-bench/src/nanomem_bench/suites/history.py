"""Questions about what changed."""

from __future__ import annotations

from ..bench import Bench

__all__ = ["run"]

_NAMES = {
    "history": "history of a record",
    "history_asked": "history found by a question",
    "changes": "the last ten changes",
    "volatility": "volatility of all chains",
}


def run(bench: Bench) -> None:
    for n in (10_000, 100_000):
        spec = bench.spec(n, 384, in_chains=True)
        with bench.running(bench.able("volatility"), spec) as running:
            bench.say(str(spec))
            for (each, operation), seconds in bench.turns(running, *_NAMES).items():
                bench.add_times(_NAMES[operation], each.arm, spec, seconds)
