"""Which facts go when there are more than a scope may hold.

Both policies keep what a person stated before what was inferred, the higher score before the lower, and of equal
scores the newest fact. Source of the scores: DeerMem's ``confidence`` and ``hybrid-v1`` policies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from nanomem_core.errors import InputError

__all__ = ["POLICIES", "Candidate", "Policy", "Usage", "evicted"]

Policy = Literal["confidence", "hybrid-v1"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

_DAY = 86_400.0
CONFIRMATION_HALF_LIFE = 90 * _DAY
ACCESS_HALF_LIFE = 30 * _DAY
CONFIDENCE_WEIGHT, CONFIRMATION_WEIGHT, ACCESS_WEIGHT = 0.65, 0.25, 0.10
_FULL_HEAT = 8
"""Recent accesses from which a fact counts as fully used."""
_MOST_RESERVED, _RESERVED_SHARE = 10, 0.10
"""Places that ``hybrid-v1`` keeps for corrections."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How often a fact was found: each search adds one to `heat`, which halves every 30 days.

    Attributes:
        at: the time that `heat` was counted at, unix seconds.
    """

    heat: float = 0.0
    at: float = 0.0

    def heat_at(self, now: float) -> float:
        return self.heat * _decay(now - self.at, ACCESS_HALF_LIFE)

    def accessed(self, now: float) -> Usage:
        return Usage(self.heat_at(now) + 1.0, now)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a policy needs to know of a fact.

    Attributes:
        personal: a person stated it; it was not inferred.
        created_at, confirmed_at: unix seconds; None if it was never confirmed.
    """

    id: str
    confidence: float
    category: str
    personal: bool
    created_at: float
    confirmed_at: float | None = None
    usage: Usage = Usage()


def evicted(
    candidates: Sequence[Candidate], limit: int, policy: Policy, now: float
) -> list[tuple[Candidate, dict[str, float]]]:
    """What must go so that `limit` stay, the least first, with the parts of the score that decided.

    Raises:
        InputError: an unknown policy.
    """
    if policy not in _SCORES:
        raise InputError(f"eviction: expected one of {', '.join(POLICIES)}; found {policy!r}")
    surplus = len(candidates) - limit
    if surplus <= 0:
        return []
    parts = {candidate.id: _SCORES[policy](candidate, now) for candidate in candidates}
    best_first = sorted(candidates, key=lambda c: (not c.personal, -sum(parts[c.id].values()), -c.created_at, c.id))
    kept: set[str] = set()
    if policy == "hybrid-v1":
        places = min(_MOST_RESERVED, math.ceil(limit * _RESERVED_SHARE))
        kept = {c.id for c in [c for c in best_first if c.category == "correction"][:places]}
    least_first = [candidate for candidate in reversed(best_first) if candidate.id not in kept]
    return [(candidate, parts[candidate.id]) for candidate in least_first[:surplus]]


def _confidence_score(candidate: Candidate, now: float) -> dict[str, float]:
    return {"confidence": candidate.confidence}


def _hybrid_score(candidate: Candidate, now: float) -> dict[str, float]:
    """0.65 of confidence, 0.25 of how lately it was confirmed (half of that for its creation), 0.10 of how often it was
    found lately, on a logarithmic scale."""
    if candidate.confirmed_at is not None:
        confirmation = _decay(now - candidate.confirmed_at, CONFIRMATION_HALF_LIFE)
    else:
        confirmation = _decay(now - candidate.created_at, CONFIRMATION_HALF_LIFE) / 2
    access = min(1.0, math.log1p(candidate.usage.heat_at(now)) / math.log1p(_FULL_HEAT))
    return {
        "confidence": CONFIDENCE_WEIGHT * candidate.confidence,
        "confirmation": CONFIRMATION_WEIGHT * confirmation,
        "access": ACCESS_WEIGHT * access,
    }


_SCORES: Mapping[Policy, Callable[[Candidate, float], dict[str, float]]] = {
    "confidence": _confidence_score,
    "hybrid-v1": _hybrid_score,
}


def _decay(age: float, half_life: float) -> float:
    return float(2.0 ** (-max(age, 0.0) / half_life))
