"""What the chains tell without a question: what changed in a window, how often facts change, which may be stale."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from .chains import ChainView, chain_rows, read_chains
from .columns import Columns, Rows

__all__ = ["ChangeRow", "find_changes", "split_chain", "staleness_rows", "volatility_rows"]


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One thing that happened in a window.

    Attributes:
        at: when it happened, unix seconds.
        row: the record that came, or the one that ended.
        change: ``added`` (the first value, or a record outside a chain), ``changed`` (it replaced `previous`),
            ``ended`` (it was retracted).
        previous: row of the value it replaced, or None.
    """

    at: float
    row: int
    change: str
    previous: int | None


def find_changes(
    columns: Columns,
    where: npt.NDArray[np.bool_],
    since: float,
    until: float | None,
    ends: npt.NDArray[np.float64],
    candidates: Rows,
    members: Callable[[list[int]], Rows],
) -> list[ChangeRow]:
    """What happened in ``(since, until]``, the oldest first; events of one time in the order of writing.

    Args:
        where: mask of all visible rows: predecessors may lie before the window.
        candidates: rows, each once, that are all that began or ended in the window, and may be others.
        members: gives all rows of some chains, ascending.
    """
    last = math.inf if until is None else until
    rows = candidates[where[candidates]]
    began = rows[(columns.valid_from[rows] > since) & (columns.valid_from[rows] <= last)]
    ended = rows[(ends[rows] > since) & (ends[rows] <= last) & (ends[rows] < math.inf)]
    chains = read_chains(columns, {*columns.chain[began].tolist(), *columns.chain[ended].tolist()}, where, members)
    previous: dict[int, int] = {}
    following: dict[int, int] = {}
    for chain in chains.values():
        own = chain.rows.tolist()
        previous.update(zip(own[1:], own, strict=False))
        following.update(pairwise(own))
    found = [
        ChangeRow(float(columns.valid_from[row]), row, "changed" if row in previous else "added", previous.get(row))
        for row in began.tolist()
    ]
    found += [
        ChangeRow(float(ends[row]), row, "ended", None)
        for row in ended.tolist()
        # A value whose successor came first was replaced then; its end is no event any more.
        if row not in following or ends[row] < columns.valid_from[following[row]]
    ]
    return sorted(found, key=lambda change: (change.at, change.row))


def split_chain(key: str) -> tuple[str, str | None, str | None]:
    """Entity, user id and project of a chain key."""
    entity, *rest = key.split("\x1f")
    user, project = rest or ("", "")
    return entity, user or None, project or None


def volatility_rows(
    columns: Columns, where: npt.NDArray[np.bool_], min_revisions: int, now: float
) -> list[dict[str, Any]]:
    """One mapping a chain with at least `min_revisions` values, the longest unconfirmed first; times in seconds."""
    rows = [_volatility(columns, chain, now) for chain in chain_rows(columns, where)]
    kept = [row for row in rows if row["n_revisions"] >= min_revisions]
    return sorted(kept, key=lambda row: (-row["age"], row["key"]))


def _volatility(columns: Columns, chain: ChainView, now: float) -> dict[str, Any]:
    from statistics import mean, median  # with fractions and decimals, which most programs never need

    key = columns.chains[chain.code]
    entity, user, project = split_chain(key)
    times = columns.valid_from[chain.rows]
    intervals = np.diff(times).tolist()
    return {
        "key": key,
        "user_id": user,
        "project": project,
        "entity": entity,
        "declared": chain.declared,
        "n_revisions": len(times),
        "first_ts": float(times[0]),
        "last_ts": float(times[-1]),
        "age": now - float(times[-1]),
        "intervals": intervals,
        "mean_interval": mean(intervals) if intervals else None,
        "median_interval": median(intervals) if intervals else None,
    }


def staleness_rows(
    volatility: list[dict[str, Any]], shrink: float, assume_memoryless: bool, min_revisions: int
) -> list[dict[str, Any]]:
    """Add to each volatility row an estimate of how often the fact changes; the likeliest to be stale first.

    `rate` (changes a second) is the posterior mean of a Gamma-Poisson model: a chain's own intervals, shrunk towards
    the mean interval of all chains of the same entity name (else of all chains) with the weight of `shrink`
    intervals. `p_superseded` is 1 - exp(-rate * age), given only if `assume_memoryless`: it is right just for facts
    that change at a constant rate, which few do.
    """
    from statistics import mean

    pooled: dict[str | None, list[float]] = defaultdict(list)
    for row in volatility:
        pooled[row["entity"]] += row["intervals"]
        pooled[None] += row["intervals"]
    result = []
    for row in volatility:
        if row["n_revisions"] < min_revisions:
            continue
        intervals = row["intervals"]
        prior = pooled[row["entity"]] or pooled[None]
        rate = None
        if prior and (time := sum(intervals) + shrink * mean(prior)) > 0:
            rate = (len(intervals) + shrink) / time
        risk = None if rate is None else rate * max(row["age"], 0.0)
        result.append(
            row
            | {
                "rate": rate,
                "p_superseded": 1 - math.exp(-risk) if assume_memoryless and risk is not None else None,
                "model": "constant rate, shrunk towards chains of the same entity",
                "confidence": "prior" if len(intervals) <= 1 else "weak" if len(intervals) <= 3 else "observed",
            }
        )
    return sorted(result, key=lambda row: (-(row["rate"] or 0.0) * row["age"], row["key"]))
