"""Columns made of a few words, for tests of the functions that work on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nanomem_core.columns import Columns, MemoryColumns, Rows
from nanomem_core.records import Record, Scope

__all__ = ["columns_of", "members_in", "record"]


def record(id: str, entity: str | None = None, at: float = 0.0, revision: int = 1, **fields: Any) -> Record:
    """A declared record that was told at the time at which it became true."""
    defaults = {"recorded_at": at, "declared": entity is not None, "version": 1}
    return Record(id, f"text of {id}", entity=entity, valid_from=at, revision=revision, **defaults | fields)


def columns_of(*records: Record) -> Columns:
    """One row for each of `records`, in order."""
    held = {record.id: record for record in records}
    return MemoryColumns(Scope(), 1, records, held.get).columns()


def members_in(columns: Columns) -> Callable[[list[int]], Rows]:
    """All rows of some chains, found by a look at every row."""
    return lambda codes: np.flatnonzero(np.isin(columns.chain, codes))
