"""Which records a clean-up would remove. Pure functions from a frame to rows; `Memory` carries them out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from .chains import chain_rows
from .columns import Rows
from .errors import InputError
from .frame import Frame
from .records import Record

__all__ = ["comes_from", "derived_from", "expired_rows", "matching_rows", "superseded_rows", "text_bytes"]


def matching_rows(
    frame: Frame,
    ids: Collection[str] | None,
    text_exact: str | None,
    text_contains: str | None,
    source: str | None,
) -> Rows:
    """Rows of `frame` (its filter included) that meet all the given criteria; None sets none.

    Raises:
        InputError: an empty `text_contains` or `source`, which would match everything.
        ConflictError: one of `ids` was written since `frame` was made.
    """
    for name, value in (("text_contains", text_contains), ("source", source)):
        if value is not None and not value.strip():
            raise InputError(f"{name}: an empty text would match every record; leave the argument out instead")
    rows = np.flatnonzero(frame.allowed)
    if ids is not None:
        found = map(frame.row, ids)
        rows = np.intersect1d(rows, np.array([row for row in found if row is not None], np.intp))
    if text_exact is None and text_contains is None and source is None:
        return rows
    needle = None if text_contains is None else text_contains.casefold()
    kept = [
        row
        for row, record in frame.records(rows.tolist()).items()
        if (text_exact is None or record.text == text_exact)
        and (needle is None or needle in record.text.casefold())
        and (source is None or comes_from(record, source))
    ]
    return np.array(kept, np.intp)


def comes_from(record: Record, source: str) -> bool:
    """True if `source` is the record's source, the file it was read from (path or name), or the part before a ``:``."""
    metadata = record.metadata
    names = (record.source, metadata.get("file_path"), metadata.get("filename"))
    return source in names or record.source.startswith(f"{source}:")


def superseded_rows(frame: Frame, keep: int, before: float | None, min_revisions: int) -> tuple[Rows, int, int]:
    """Rows that are not among the newest `keep` of their chain, with the numbers of chains cut and of rows kept there.

    `before` spares what became true at or after that time; chains with fewer than `min_revisions` values are spared.
    """
    if keep < 1:
        raise InputError(f"keep: expected at least 1, so that the current value stays; found {keep}")
    doomed: list[int] = []
    groups = kept = 0
    for chain in chain_rows(frame.columns, frame.visible):
        if len(chain.rows) < min_revisions:
            continue
        old = [row for row in chain.rows[:-keep].tolist() if frame.allowed[row]]
        if before is not None:
            old = [row for row in old if frame.columns.valid_from[row] < before]
        if old:
            groups += 1
            kept += len(chain.rows) - len(old)
            doomed += old
    return np.array(sorted(doomed), np.intp), groups, kept


def expired_rows(frame: Frame, before: float | None, target_bytes: int | None, keep_current: bool) -> Rows:
    """Rows older than `before`; then, if they hold fewer than `target_bytes`, the oldest others until they do.

    With `keep_current` the newest value of each chain is spared.
    """
    columns = frame.columns
    mask = frame.allowed.copy()
    if keep_current:
        mask[[chain.rows[-1] for chain in chain_rows(columns, frame.visible)]] = False
    rows = np.flatnonzero(mask)
    rows = rows[np.lexsort((rows, columns.valid_from[rows]))]
    expired = 0 if before is None else int(np.searchsorted(columns.valid_from[rows], before))
    if target_bytes is None:
        return rows[:expired]
    freed = text_bytes(frame, rows[:expired])
    while freed < target_bytes and expired < len(rows):
        freed += text_bytes(frame, rows[expired : expired + 1])
        expired += 1
    return rows[:expired]


def text_bytes(frame: Frame, rows: Rows) -> int:
    """Bytes of the texts of `rows`, in UTF-8."""
    return sum(len(record.text.encode()) for record in frame.records(rows.tolist()).values())


def derived_from(records: Iterable[Record], ids: Collection[str]) -> list[Record]:
    """The records whose ``derived_from`` metadata names one of `ids`, directly or through others of `records`."""
    pool = list(records)
    known = set(ids)
    found: list[Record] = []
    while True:
        more = [r for r in pool if r.id not in known and not known.isdisjoint(_origins(r.metadata.get("derived_from")))]
        if not more:
            return found
        found += more
        known.update(record.id for record in more)


def _origins(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(item) for item in value] if isinstance(value, list) else []
