"""Deleting, forgetting, purging, compacting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .. import retention
from ..changes import Change, Delete, Put
from ..columns import Rows
from ..errors import InputError
from ..frame import Frame
from ..index.sidecar import VectorSidecar, keep_only
from ..interfaces import Storage
from ..pipeline.chunking import passages
from ..records import Kind, Record, Scope
from ..results import SearchResults
from ..times import DAY
from .base import retried
from .writing import Writing

__all__ = ["FORGET_FLOOR", "Removing", "compact_storage"]

FORGET_FLOOR = 0.42
"""Least cosine for `Memory.forget`: a question that fits nothing well must not erase what fits it least badly."""


class Removing(Writing):
    """The part of `Memory` that removes."""

    def delete(
        self,
        id: str | Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        text_exact: str | None = None,
        text_contains: str | None = None,
        where: Mapping[str, Any] | None = None,
        source: str | None = None,
        *,
        kind: Kind | None = "fact",
        user: str | None = None,
        agent: str | None = None,
    ) -> int:
        """Remove the records that meet *all* the given criteria; returns how many.

        They vanish from every answer, and the value before the newest is current again; the rest of their chain stays.
        The bytes go with the next `compact`; `purge` removes a fact with its history, at once.

        Without a criterion nothing is removed. An empty `where`, `text_contains` or `source` is refused, since it
        would match everything; an empty `id`, `ids` or `text_exact` matches nothing.
        """
        wanted = _id_set(id, ids)
        _refuse_empty("where", where)
        if wanted is None and text_exact is None and text_contains is None and where is None and source is None:
            return 0
        if wanted is not None and text_exact is None and text_contains is None and where is None and source is None:
            return self._delete_ids(self._scope(user, agent), wanted)

        def choose(frame: Frame) -> Rows:
            return retention.matching_rows(frame, wanted, text_exact, text_contains, source)

        any_kind = None if wanted is not None else kind
        return len(self._remove(choose, kind=any_kind, filter=where, user=user, agent=agent))

    def _delete_ids(self, scope: Scope, ids: Collection[str]) -> int:
        def attempt() -> int:
            found = [self.storage.get(scope, id) for id in ids]
            gone = [Delete(r.id, expect=r.version) for r in found if r is not None and r.kind != "purged"]
            if gone:
                self._commit(scope, gone)
            return len(gone)

        return retried(attempt)

    def forget(
        self,
        query: str,
        top_k: int = 1,
        min_score: float = FORGET_FLOOR,
        *,
        filter: Mapping[str, Any] | None = None,
        entity: str | None = None,
        dry_run: bool = False,
        user: str | None = None,
        agent: str | None = None,
    ) -> SearchResults:
        """Delete what `query` describes best; returns the hits that were deleted (with `dry_run`: would be).

        Only hits with a cosine of at least `min_score` count, and only those very records are removed.
        """
        _refuse_empty("filter", filter)
        frame = self._frame(user=user, agent=agent, filter=filter, entity=entity)
        found = self._search(
            frame, query, top_k=top_k, min_score=min_score, mode="vector", decompose=False, by_chain=False
        )
        if found and not dry_run:
            self.delete(ids=[hit["id"] for hit in found], user=user, agent=agent)
        return found

    def forget_superseded(
        self,
        keep: int = 1,
        older_than_days: float | None = None,
        min_revisions: int = 2,
        dry_run: bool = False,
        *,
        filter: Mapping[str, Any] | None = None,
        entity: str | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> dict[str, Any]:
        """Delete all but the newest `keep` values of each chain; records outside chains are never touched.

        Returns ``groups`` (chains cut), ``deleted``, ``kept`` (values left in those chains), ``ids`` and ``dry_run``;
        a dry run gives the numbers of the real one.
        """
        _refuse_empty("filter", filter)
        counts = {"groups": 0, "kept": 0}
        before = self._cutoff(older_than_days)

        def choose(frame: Frame) -> Rows:
            rows, counts["groups"], counts["kept"] = retention.superseded_rows(frame, keep, before, min_revisions)
            return rows

        ids = self._remove(choose, filter=filter, entity=entity, user=user, agent=agent, dry_run=dry_run)
        return {**counts, "deleted": len(ids), "ids": ids, "dry_run": dry_run}

    def prune(
        self,
        target_freed_bytes: int | None = None,
        older_than_days: float | None = None,
        keep_current: bool = True,
        *,
        filter: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        user: str | None = None,
        agent: str | None = None,
    ) -> int:
        """Delete facts by age, then the oldest until their texts make up `target_freed_bytes`; compact the store.

        `keep_current` spares the newest value of each chain. Returns the bytes regained on disk; with `dry_run` the
        bytes of text that would go.
        """
        if target_freed_bytes is None and older_than_days is None:
            raise InputError("prune: give target_freed_bytes, older_than_days, or both")
        _refuse_empty("filter", filter)
        self._refuse_in_batch("prune")
        before = self._cutoff(older_than_days)
        size = 0

        def choose(frame: Frame) -> Rows:
            nonlocal size
            rows = retention.expired_rows(frame, before, target_freed_bytes, keep_current)
            size = retention.text_bytes(frame, rows)
            return rows

        ids = self._remove(choose, filter=filter, user=user, agent=agent, dry_run=dry_run)
        if dry_run:
            return size
        return self.compact() if ids else 0

    def purge(self, id: str | Sequence[str], *, user: str | None = None, agent: str | None = None) -> list[str]:
        """Erase a fact with its whole chain, and what was derived from it, leaving no byte of the text in any file.

        What stays is an empty marker under each id, so that `history` can say "purged". Returns the erased ids;
        purging again finds nothing and returns an empty list. Also purged: records whose ``derived_from`` metadata
        names one of the erased ids (episodes and summaries made from it).
        """
        scope = self._scope(user, agent)
        self._refuse_in_batch("purge")
        erased: list[str] = []

        def changes(frame: Frame) -> list[Change]:
            source, columns = frame.columns.source, frame.columns
            rows = [row for one in _id_set(id, None) or () if (row := frame.row(one)) is not None]
            rows = [row for row in rows if frame.visible[row]]
            chains = frame.chains(rows)
            rows += [row for chain in chains.values() for row in chain.rows.tolist()]
            ids = set(source.ids(np.array(sorted(set(rows)), np.intp))) if rows else set()
            everything = frame.records(np.flatnonzero(columns.where(None)).tolist()).values() if ids else ()
            ids |= {record.id for record in retention.derived_from(everything, ids)}
            erased[:] = sorted(ids)
            now = self._clock()
            return [
                Put(Record(one, "", kind="purged", valid_from=now, recorded_at=now, source="purge")) for one in erased
            ]

        self._update(scope, changes, kind=None)
        if erased:
            self.compact()
        return erased

    def erase(self, *, user: str | None = None, agent: str | None = None) -> None:
        """Erase a whole scope, leaving no byte of its content in any file."""
        scope = self._scope(user, agent)
        self._refuse_in_batch("erase")
        self.storage.erase(scope)
        with self._lock:
            self._views.pop(scope, None)
            self._last_entity = {key: entity for key, entity in self._last_entity.items() if key[0] != scope}
        _forget_vectors(self.storage, self._sidecar)

    def compact(self) -> int:
        """Regain the space of what was deleted, in all scopes; returns the bytes regained. Readers aren't blocked."""
        self._check_open()
        regained = self.storage.compact()
        with self._lock:
            self._views.clear()
        _forget_vectors(self.storage, self._sidecar)
        return regained

    def _cutoff(self, older_than_days: float | None) -> float | None:
        if older_than_days is None:
            return None
        if older_than_days < 0:
            raise InputError(f"older_than_days: expected a number from 0; found {older_than_days}")
        return self._clock() - older_than_days * DAY


def compact_storage(storage: Storage) -> int:
    """`Memory.compact` for a store that no memory has open, since it needs no embedder."""
    regained = storage.compact()
    _forget_vectors(storage)
    return regained


def _forget_vectors(storage: Storage, sidecar: VectorSidecar | None = None) -> None:
    """Forget the vectors of all texts that a store without vectors of its own no longer holds; the rest cost too much
    to compute again.

    Args:
        sidecar: that of the memory, if it has needed one so far. It isn't made for this: an embedder may have to ask
            its server for its dimension, and what must go has to go though that server is down.
    """
    if storage.keeps_vectors:
        return
    records = (record for scope in storage.scopes() for record in storage.scan(scope))
    texts = (part for record in records for part in passages(record.text))
    folder = storage.derived()
    if sidecar is not None:
        sidecar.keep(texts)
    elif folder is not None:
        keep_only(folder, texts)


def _refuse_empty(name: str, filter: Mapping[str, Any] | None) -> None:
    if filter is not None and not filter:
        raise InputError(f"{name}: an empty filter would match every record; leave the argument out instead")


def _id_set(id: str | Sequence[str] | None, ids: Sequence[str] | None) -> set[str] | None:
    """The ids asked for by either argument, None if neither was given; both given: what they share."""
    one = None if id is None else {id} if isinstance(id, str) else set(id)
    many = None if ids is None else set(ids)
    if one is None or many is None:
        return many if one is None else one
    return one & many
