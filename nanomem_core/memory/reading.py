"""Looking up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..chains import UNKNOWN, Standing, chain_rows
from ..errors import InputError, NotFoundError
from ..frame import Frame
from ..insight import split_chain, staleness_rows, volatility_rows
from ..pipeline.search import Mode
from ..results import Entry, make_entry, staleness_label
from ..times import TimeLike, parse_time
from .searching import Searching

__all__ = ["Reading"]

_PURGED = Standing(None, None, "purged")


class Reading(Searching):
    """The reading half of `Memory`."""

    # Reading.

    def get(self, id: str, *, user: str | None = None, agent: str | None = None) -> Entry | None:
        """The record with that id and its standing today, or None."""
        scope = self._scope(user, agent)
        record = self.storage.get(scope, id)
        if record is None or record.kind == "purged":
            return None
        if record.chain is None and record.valid_to is None:
            return make_entry(record, UNKNOWN)
        frame, row = self._frame_of(id, user=user, agent=agent, kind=record.kind)
        return None if row is None else make_entry(record, frame.standing(row, frame.chains([row])))

    def exists(self, id: str, *, user: str | None = None, agent: str | None = None) -> bool:
        """True if there is a record with that id."""
        record = self.storage.get(self._scope(user, agent), id)
        return record is not None and record.kind != "purged"

    def history(
        self,
        query: str | None = None,
        max_len: int | None = None,
        min_score: float = 0.0,
        *,
        id: str | None = None,
        entity: str | None = None,
        filter: Mapping[str, Any] | None = None,
        mode: Mode | None = None,
        as_of: TimeLike | None = None,
        known_at: TimeLike | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> list[Entry]:
        """Every value that one fact has had, the oldest first; one entry means that it never changed.

        Which fact: that of the record `id`, or the chain of `entity`, or the one that `query` finds. `filter` and
        `min_score` help to find the fact and never drop one of its values; two users' or projects' chains never mix.
        `max_len` keeps the newest values. A purged `id` gives one entry with the status ``purged`` and no text.

        Raises:
            NotFoundError: there is no record with that `id`.
            InputError: not exactly one way to name the fact, or `entity` names the chains of several users.
        """
        options: dict[str, Any] = {"as_of": as_of, "known_at": known_at, "user": user, "agent": agent}
        kind: str = "fact"
        if id is None:
            id = self._find_fact(self._frame(entity=entity, filter=filter, **options), query, entity, min_score, mode)
            if id is None:
                return []
        else:
            if query is not None or entity is not None:
                raise InputError("history: give one of query, id and entity")
            record = self.storage.get(self._scope(user, agent), id)
            if record is None:
                raise NotFoundError(f"scope {self._scope(user, agent)}: there is no record with the id {id!r}", id=id)
            if record.kind == "purged":
                return [make_entry(record, _PURGED)]
            kind = record.kind
        frame, anchor = self._frame_of(id, kind=kind, **options)
        if anchor is None or not frame.visible[anchor]:
            return []
        chains = frame.chains([anchor])
        rows = [anchor] if not chains else next(iter(chains.values())).rows.tolist()
        if max_len is not None:
            rows = rows[-max_len:] if max_len > 0 else []
        return list(frame.entries(rows).values())

    def _find_fact(
        self, frame: Frame, query: str | None, entity: str | None, min_score: float, mode: Mode | None
    ) -> str | None:
        """The id of a value of the fact that is asked for, or None."""
        if query is not None and query.strip():
            found = self._search(frame, query, top_k=1, mode=mode, min_score=min_score, decompose=False)
            return str(found[0]["id"]) if found else None
        if entity is None:
            raise InputError("history: give one of query, id and entity")
        chains = chain_rows(frame.columns, frame.allowed)
        if len(chains) > 1:
            names = [" / ".join(filter(None, split_chain(frame.columns.chains[c.code])[1:])) or "-" for c in chains]
            raise InputError(
                f"history: {len(chains)} chains have the entity {entity!r} (user_id / project: "
                f"{', '.join(names[:5])}); add a filter on user_id or project"
            )
        return frame.columns.source.ids(chains[0].rows[-1:])[0] if chains else None

    def changes(
        self,
        since: TimeLike,
        until: TimeLike | None = None,
        limit: int | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        entity: str | None = None,
        known_at: TimeLike | None = None,
        kind: str | None = "fact",
        user: str | None = None,
        agent: str | None = None,
    ) -> list[Entry]:
        """What became true, or ended, in ``(since, until]``, the oldest first; needs no question and no embedder.

        Each entry adds ``change`` (``added``, ``changed`` or ``ended``), ``at``, and for ``changed`` the value that it
        replaced: ``previous_id`` and ``previous_text``. `limit` keeps the oldest.
        """
        start = parse_time(since, "since")
        end = None if until is None else parse_time(until, "until")
        if end is not None and end < start:
            raise InputError(f"until: expected a time after since; found {until!r}, which is before {since!r}")
        frame = self._frame(user=user, agent=agent, kind=kind, filter=filter, entity=entity, known_at=known_at)
        found = frame.changes(start, end)
        if limit is not None:
            found = found[: max(limit, 0)]
        entries = frame.entries(dict.fromkeys(change.row for change in found))
        replaced = frame.records(dict.fromkeys(c.previous for c in found if c.previous is not None))
        result = []
        for change in found:
            if change.row not in entries:
                continue
            entry = Entry(entries[change.row], change=change.change, at=change.at)
            before = None if change.previous is None else replaced.get(change.previous)
            entry["previous_id"] = None if before is None else before.id
            entry["previous_text"] = None if before is None else before.text
            result.append(entry)
        return result

    def volatility(
        self,
        min_revisions: int = 2,
        now: TimeLike | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        entity: str | None = None,
        as_of: TimeLike | None = None,
        known_at: TimeLike | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> list[dict[str, Any]]:
        """How often each fact changes: one mapping a chain, the one that stands unconfirmed for longest first.

        Keys: ``key, user_id, project, entity, declared, n_revisions, first_ts, last_ts, age, intervals, mean_interval,
        median_interval``; times and intervals in seconds, the means None where there is one value only.
        """
        frame = self._frame(user=user, agent=agent, filter=filter, entity=entity, as_of=as_of, known_at=known_at)
        moment = frame.at if now is None else parse_time(now, "now")
        return volatility_rows(frame.columns, frame.allowed, min_revisions, moment)

    def staleness(
        self,
        now: TimeLike | None = None,
        shrink: float = 1.0,
        min_revisions: int = 2,
        assume_memoryless: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """`volatility` with an estimate of the rate of change, the likeliest to be outdated first.

        Adds ``rate`` (changes a second), ``p_superseded`` (None unless `assume_memoryless`), ``model`` and
        ``confidence`` (``prior``, ``weak`` or ``observed``). `shrink` is the weight of the prior, in intervals.
        `options` are those of `volatility`.
        """
        if shrink < 0:
            raise InputError(f"shrink: expected a number from 0; found {shrink}")
        return staleness_rows(self.volatility(1, now, **options), shrink, assume_memoryless, min_revisions)

    def staleness_label(self, entry: Mapping[str, Any]) -> str:
        """A warning for a value that no longer holds, told from today; an empty text for any other."""
        return staleness_label(entry, self._clock())

    def current(
        self,
        *,
        filter: Mapping[str, Any] | None = None,
        entity: str | None = None,
        as_of: TimeLike | None = None,
        known_at: TimeLike | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> list[Entry]:
        """The value of each chain that holds at the asked time; chains whose last value ended are left out."""
        frame = self._frame(user=user, agent=agent, filter=filter, entity=entity, as_of=as_of, known_at=known_at)
        rows = [int(chain.rows[-1]) for chain in chain_rows(frame.columns, frame.visible)]
        entries = frame.entries(row for row in rows if frame.allowed[row])
        return [entry for entry in entries.values() if entry["status"] == "current"]

    def entities(
        self, *, filter: Mapping[str, Any] | None = None, user: str | None = None, agent: str | None = None
    ) -> list[dict[str, Any]]:
        """Every chain: ``entity, user_id, project, declared, n_revisions, last_ts``, and ``text``, its newest value."""
        frame = self._frame(user=user, agent=agent, filter=filter)
        chains = chain_rows(frame.columns, frame.allowed)
        newest = frame.records(int(chain.rows[-1]) for chain in chains)
        result = []
        for chain in chains:
            row = int(chain.rows[-1])
            entity, user_id, project = split_chain(frame.columns.chains[chain.code])
            result.append(
                {
                    "entity": entity,
                    "user_id": user_id,
                    "project": project,
                    "declared": chain.declared,
                    "n_revisions": len(chain.rows),
                    "last_ts": float(frame.columns.valid_from[row]),
                    "text": newest[row].text if row in newest else None,
                }
            )
        return sorted(result, key=lambda item: (item["entity"], item["user_id"] or "", item["project"] or ""))

    def records(
        self,
        *,
        filter: Mapping[str, Any] | None = None,
        entity: str | None = None,
        kind: str | None = "fact",
        as_of: TimeLike | None = None,
        known_at: TimeLike | None = None,
        limit: int | None = None,
        offset: int = 0,
        user: str | None = None,
        agent: str | None = None,
    ) -> list[Entry]:
        """The records in the order of writing, a page of `limit` from the `offset`-th on."""
        frame = self._frame(
            user=user, agent=agent, kind=kind, filter=filter, entity=entity, as_of=as_of, known_at=known_at
        )
        rows = np.flatnonzero(frame.allowed)[max(offset, 0) :]
        return list(frame.entries((rows if limit is None else rows[: max(limit, 0)]).tolist()).values())

    def stats(self) -> dict[str, Any]:
        """Facts about the memory and its store, as JSON types."""
        frame = self._frame(kind=None)
        facts = frame.columns.where("fact")
        chains = np.unique(frame.columns.chain[facts])
        return {
            **self.storage.stats(),
            "scope": {"user": self.scope.user, "agent": self.scope.agent},
            "total_documents": int(facts.sum()),
            "chains": int((chains >= 0).sum()),
            "head": frame.columns.head,
            "embedder": self.embedder.id,
            "embed_dim": self.embedder.dim,
            "mode": self.mode,
        }

    def inspect(
        self, *, filter: Mapping[str, Any] | None = None, user: str | None = None, agent: str | None = None
    ) -> dict[str, Any]:
        """What the scope holds: ``total_documents``, ``kinds``, ``sources`` and ``metadata_summary``, with counts.

        Metadata that tells where in a file a record stands is left out of the summary.
        """
        frame = self._frame(user=user, agent=agent, kind=None, filter=filter)
        kinds: dict[str, int] = {}
        sources: dict[str, int] = {}
        metadata: dict[str, dict[str, int]] = {}
        records = frame.records(np.flatnonzero(frame.allowed).tolist()).values()
        for record in records:
            kinds[record.kind] = kinds.get(record.kind, 0) + 1
            sources[record.source] = sources.get(record.source, 0) + 1
            for key, value in record.metadata.items():
                if key not in _PLACE_KEYS:
                    counts = metadata.setdefault(key, {})
                    counts[str(value)] = counts.get(str(value), 0) + 1
        return {
            "total_documents": len(records),
            "kinds": kinds,
            "sources": sources,
            "metadata_summary": metadata,
        }


_PLACE_KEYS = frozenset({"start_line", "end_line", "file_sha256"})
