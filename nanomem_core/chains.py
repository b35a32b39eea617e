"""Revision chains: which value stands, which was replaced, and when. Pure functions over `Columns`.

A chain is the set of records with one chain key (entity, and ``user_id`` and ``project`` of the metadata). Its order is
**(valid_from, revision)**: the time a value became true decides, and of two values of one time the later arrival. So
a back-dated record takes its place in the past and never becomes current, whatever its revision number is.

Nothing here is stored. "Superseded" is computed from what is visible at the asked times, so it is right for every
`as_of` and `known_at`, and deleting the newest value makes the one before it current again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from .columns import Columns, Rows

__all__ = ["UNKNOWN", "ChainView", "Standing", "Status", "chain_rows", "holding", "read_chains", "standing", "visible"]

Status = Literal["current", "superseded", "ended", "unknown", "purged"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a value stands at the asked time.

    Attributes:
        superseded: True if it no longer holds, False if it does, None outside a chain: nothing is known then.
        superseded_at: when it stopped holding: start of the immediate successor, or its own end if that came first.
        status: ``ended`` means that it stopped holding without a successor at that moment.
    """

    superseded: bool | None
    superseded_at: float | None
    status: Status


UNKNOWN = Standing(None, None, "unknown")
"""That of every value outside a chain that has no end."""


@dataclass(frozen=True, slots=True)
class ChainView:
    """One chain at the asked times.

    Attributes:
        rows: its visible rows, the oldest value first.
        declared: True if the caller named the entity in at least one of them.
    """

    code: int
    rows: Rows
    declared: bool


def visible(
    columns: Columns, kind: str | None = "fact", as_of: float | None = None, known_at: float | None = None
) -> npt.NDArray[np.bool_]:
    """Mask of the rows that were true by `as_of` and had been told by `known_at`; None sets no limit."""
    mask = columns.where(kind, known_at)
    return mask if as_of is None else mask & (columns.valid_from <= as_of)


def holding(
    columns: Columns, where: npt.NDArray[np.bool_], at: float, ends: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Mask of the rows in `where` that no `standing` at the time `at` calls superseded or ended."""
    mask = where & (ends > at)
    rows, codes = _in_chain_order(columns, np.flatnonzero((columns.chain >= 0) & where))
    mask[rows[:-1][codes[1:] == codes[:-1]]] = False
    return mask


def read_chains(
    columns: Columns, codes: Iterable[int], where: npt.NDArray[np.bool_], members: Callable[[list[int]], Rows]
) -> dict[int, ChainView]:
    """The chains `codes` (-1 is passed over) with their rows in `where`, each in chain order.

    `members` gives all rows of some chains, ascending.
    """
    asked = sorted({code for code in codes if code >= 0})
    if not asked:
        return {}
    rows = members(asked)
    return {view.code: view for view in _grouped(columns, rows[where[rows]])}


def chain_rows(columns: Columns, where: npt.NDArray[np.bool_]) -> list[ChainView]:
    """Every chain with a row in `where`, ordered by the first row written."""
    return _grouped(columns, np.flatnonzero((columns.chain >= 0) & where))


def _in_chain_order(columns: Columns, rows: Rows) -> tuple[Rows, npt.NDArray[np.int32]]:
    """`rows` chain by chain, each in chain order; and the chain of each."""
    codes = columns.chain[rows]
    order = np.lexsort((rows, columns.revision[rows], columns.valid_from[rows], codes))
    return rows[order], codes[order]


def _grouped(columns: Columns, rows: Rows) -> list[ChainView]:
    if not len(rows):
        return []
    rows, codes = _in_chain_order(columns, rows)
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    views = [
        ChainView(int(columns.chain[group[0]]), group, bool(columns.declared[group].any()))
        for group in np.split(rows, starts[1:])
    ]
    return sorted(views, key=lambda view: int(view.rows.min()))


def standing(
    columns: Columns,
    row: int,
    chain: ChainView | None,
    at: float,
    ends: npt.NDArray[np.float64] | None = None,
) -> Standing:
    """Where `row` stands at the time `at`.

    Args:
        chain: the row's chain as visible at the asked times, None outside a chain.
        at: the time asked about; an end after it has not come yet.
        ends: `Columns.ends` at the asked `known_at`; by default what is known today.
    """
    ends = columns.valid_to if ends is None else ends
    end = float(ends[row])
    successor = float("inf")
    if chain is not None:
        place = int(np.flatnonzero(chain.rows == row)[0])
        if place + 1 < len(chain.rows):
            successor = float(columns.valid_from[chain.rows[place + 1]])
    if end <= at and end < successor:
        return Standing(True, end, "ended")
    if successor < float("inf"):
        return Standing(True, successor, "superseded")
    if chain is None:
        return UNKNOWN
    return Standing(False, None, "current")
