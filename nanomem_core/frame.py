"""What one read sees: a scope's columns at one head, cut to the asked times and filter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from .chains import UNKNOWN, ChainView, Standing, holding, read_chains, standing, visible
from .columns import Columns, kind_code
from .errors import ConflictError
from .filters import Filter
from .insight import ChangeRow, find_changes
from .records import KINDS, Record, normalize_entity
from .results import Entry, make_entry
from .view import View

__all__ = ["Frame"]


@dataclass(eq=False)
class Frame:
    """A read's view of one scope. Not to be changed; it is made for every question, and a frozen one takes longer.

    Attributes:
        kind: the kind of records looked at, None for all.
        as_of: only what was true by then; None sets no limit.
        known_at: only what the memory had been told by then; None sets no limit.
        now: the present; what ends later has not ended.
        holding: only what holds at the asked time, neither superseded nor ended.
    """

    columns: Columns
    view: View
    now: float
    kind: str | None = "fact"
    filter: Filter | None = None
    entity: str | None = None
    as_of: float | None = None
    known_at: float | None = None
    holding: bool = False

    @cached_property
    def visible(self) -> npt.NDArray[np.bool_]:
        """Mask of the rows that exist at the asked times. Standing is judged among these, whatever the filter."""
        return visible(self.columns, self.kind, self.as_of, self.known_at)

    @cached_property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """Mask of the visible rows that pass the filter, belong to the asked entity and, if so asked, hold."""
        mask = self.visible
        if self.holding:
            mask = holding(self.columns, mask, self.at, self.ends)
        if self.entity is not None:
            mask = mask & self.of_entity(self.entity)
        if self.filter is not None:
            mask = mask & self.view.filter_mask(self.columns, self.filter)
        return mask

    @cached_property
    def ends(self) -> npt.NDArray[np.float64]:
        """When each row ended, as known at `known_at`; +inf where it did not."""
        return self.columns.ends(self.known_at)

    @property
    def at(self) -> float:
        """The time that standing is judged at."""
        return self.now if self.as_of is None else self.as_of

    def of_entity(self, entity: str) -> npt.NDArray[np.bool_]:
        """Mask of the rows whose chain is of `entity`, for whichever user and project."""
        mask = np.zeros(len(self.columns), np.bool_)
        codes = self.view.chains_of_entity(self.columns, normalize_entity(entity))
        mask[self.view.rows_of_chains(self.columns, codes)] = True
        return mask

    def other_kinds(self) -> dict[str, int]:
        """How many records there are of each kind that is not looked at, in the same scope, times and filter."""
        if self.kind is None:
            return {}
        codes = self.columns.kind[replace(self, kind=None).allowed]
        counts = {kind: int(np.count_nonzero(codes == kind_code(kind))) for kind in KINDS}
        return {kind: number for kind, number in counts.items() if number and kind not in (self.kind, "purged")}

    def chains(self, rows: Iterable[int]) -> dict[int, ChainView]:
        """The visible chains that `rows` belong to."""
        codes = self.columns.chain[np.fromiter(rows, np.intp)].tolist()
        return read_chains(self.columns, codes, self.visible, partial(self.view.rows_of_chains, self.columns))

    def changes(self, since: float, until: float | None) -> list[ChangeRow]:
        """See `find_changes`; those of `allowed` rows."""
        window = since, math.inf if until is None else until
        candidates = np.union1d(
            self.view.rows_between(self.columns, "valid_from", *window),
            self.view.rows_between(self.columns, "valid_to", *window),
        )
        members = partial(self.view.rows_of_chains, self.columns)
        found = find_changes(self.columns, self.visible, since, until, self.ends, candidates, members)
        return [change for change in found if self.allowed[change.row]]

    def standing(self, row: int, chains: Mapping[int, ChainView]) -> Standing:
        """Where `row` stands at the asked times, given the `chains` of its rows."""
        return standing(self.columns, row, chains.get(int(self.columns.chain[row])), self.at, self.ends)

    def records(self, rows: Iterable[int]) -> dict[int, Record]:
        """The records of `rows`, in their order; left out where they can't be read, or don't belong here any more."""
        return dict(self.view.hits(self.columns.source, list(rows), self._belongs))

    def _belongs(self, row: int, record: Record) -> bool:
        """False for a newer version of a record (see `View.read`) that would not be found in this frame."""
        columns = self.columns
        code = int(columns.chain[row])
        return (
            record.valid_from == columns.valid_from[row]
            and kind_code(record.kind) == columns.kind[row]
            and record.chain == (columns.chains[code] if code >= 0 else None)
            and (self.filter is None or not self.allowed[row] or self.filter.matches(record))
        )

    def entries(self, rows: Iterable[int], chains: Mapping[int, ChainView] | None = None) -> dict[int, Entry]:
        """The entries of `rows`, in their order; `chains` are their chains, where they are known."""
        rows = list(rows)
        chains = self.chains(rows) if chains is None else chains
        if not chains and self.ends[rows].min(initial=math.inf) == math.inf:
            return {row: make_entry(record, UNKNOWN) for row, record in self.records(rows).items()}
        return {row: make_entry(record, self.standing(row, chains)) for row, record in self.records(rows).items()}

    def row(self, id: str) -> int | None:
        """The row of a live record, visible or not; None if the scope has no such record.

        Raises:
            ConflictError: the record was written since this frame was made.
        """
        row = self.columns.source.row(id)
        if row is not None and row >= len(self.columns):
            raise ConflictError(f"id {id!r} was written just now; read again and retry", id=id)
        return row
