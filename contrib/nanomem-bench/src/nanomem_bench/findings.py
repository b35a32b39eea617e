"""How much a run measures, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

__all__ = ["FULL", "QUICK", "Described", "Effort", "Failure", "Figure", "Findings"]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes:
        threads: numbers of threads that searches are compared with; the last one is used for everything else.
        top: records of the largest store; `growth_top`: the same in the suite `growth`.
        rounds: turns that each arm gets; `seconds` and `calls` end a turn.
        opens: how often a store is opened, and a process started.
        fills: how often a new store is filled.
        middle: records where their number matters little.
        span: seconds that processes work at the same time.
        scale: what every number of records is multiplied by.
    """

    threads: tuple[int, ...]
    top: int
    growth_top: int
    rounds: int
    seconds: float
    calls: int
    opens: int
    fills: int
    middle: int
    span: float
    scale: float = 1.0

    def records(self, n: int, top: int | None = None) -> int:
        """`n`, as far as this effort goes; at least 50."""
        return max(50, round(min(n, self.top if top is None else top) * self.scale))


FULL = Effort((1, 2), 100_000, 1_000_000, rounds=4, seconds=0.4, calls=200, opens=12, fills=3, middle=20_000, span=4.0)
QUICK = Effort((2,), 10_000, 10_000, rounds=2, seconds=0.1, calls=50, opens=4, fills=2, middle=2_000, span=0.5)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        measure: what was measured; `case`: of what, mostly a `Spec` in words; `n`: how many records it was.
        value: the median where there are several samples, whose 95th percentile is `p95`.
        threads: that the arm could use, where it was limited.
    """

    suite: str
    measure: str
    arm: str
    case: str
    value: float
    unit: str
    n: int
    p95: float | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """An arm that could not do what the others did, and its error."""

    suite: str
    arm: str
    message: str


@dataclass(frozen=True, slots=True)
class Described:
    """An arm that can be measured; see `Arm` for the fields."""

    version: str
    settings: str
    exact: bool
    shared: bool
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a run found.

    Attributes:
        missing: arms that were asked for and are not installed.
    """

    effort: Effort
    arms: Mapping[str, Described]
    missing: Sequence[str]
    failures: Sequence[Failure]
    figures: Sequence[Figure]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON types."""
        return {
            "effort": asdict(self.effort),
            "arms": {name: asdict(arm) for name, arm in self.arms.items()},
            "missing": list(self.missing),
            "failures": [asdict(failure) for failure in self.failures],
            "figures": [asdict(figure) for figure in self.figures],
        }

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """What `as_dict` made, also after a way through JSON.

        Raises:
            KeyError, TypeError: it is something else, or of another release.
        """
        effort = Effort(**tree["effort"] | {"threads": tuple(tree["effort"]["threads"])})
        arms = {name: Described(**arm | {"operations": tuple(arm["operations"])}) for name, arm in tree["arms"].items()}
        failures = [Failure(**failure) for failure in tree["failures"]]
        return cls(effort, arms, tree["missing"], failures, [Figure(**figure) for figure in tree["figures"]])
