"""Adding, correcting, ending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..changes import Change, Delete, Put, Vectors, check_matrices
from ..errors import InputError
from ..records import Kind, Record, Scope, clean_metadata, clean_text, new_ids, normalize_entity
from ..times import TimeLike, parse_time
from .tagging import Tagging

__all__ = ["Writing"]

_ITEM_KEYS = ("text", "metadata", "source", "timestamp", "revision", "id", "entity", "valid_to", "kind", "vectors")
_KNOWN_KEYS = frozenset(_ITEM_KEYS)


class Writing(Tagging):
    """The part of `Memory` that writes."""

    def add(
        self,
        text: str,
        metadata: Mapping[str, Any] | None = None,
        source: str = "user_input",
        timestamp: TimeLike | None = None,
        revision: int | None = None,
        id: str | None = None,
        *,
        entity: str | None = None,
        valid_to: TimeLike | None = None,
        kind: Kind = "fact",
        user: str | None = None,
        agent: str | None = None,
    ) -> str:
        """Remember `text`; durable when this returns. Returns its id, or an empty text where there was none to store.

        Args:
            metadata: a JSON object, stored with the record. ``entity`` in it declares the attribute, like `entity`;
                ``user_id`` and ``project`` in it keep chains apart.
            timestamp: when it became true; now by default.
            revision: its number in its chain; the next one by default.
            id: its id; a fresh one by default. An id that is taken raises ConflictError.
            entity: the attribute that `text` gives a value of, such as ``employer``.
            valid_to: when it ended, or will end, without a successor.
        """
        item = {
            "text": text,
            "metadata": metadata,
            "source": source,
            "timestamp": timestamp,
            "revision": revision,
            "id": id,
            "entity": entity,
            "valid_to": valid_to,
            "kind": kind,
        }
        return self.add_many([item], user=user, agent=agent)[0]

    def add_many(
        self,
        items: Iterable[str | Mapping[str, Any]],
        *,
        user: str | None = None,
        agent: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[str]:
        """Remember many texts in one commit; returns their ids in order, an empty text for an empty one.

        An item is a text, or a mapping with the arguments of `add`, and optionally `vectors`: its embedding, shape
        (dim,) or (m, dim), which is then not computed. `progress` is told how many are embedded, and of how many.
        """
        scope = self._scope(user, agent)
        now = self._clock()
        records: dict[int, Record] = {}
        given: dict[int, Any] = {}
        ids: list[str] = []
        items = list(items)
        fresh = new_ids(len(items))
        for number, item in enumerate(items):
            fields = _item_fields(item, number)
            record = _make_record(now, fields, fresh)
            if record is None:
                ids.append("")
                continue
            ids.append(record.id)
            records[number] = record
            vectors = fields.get("vectors")
            if vectors is not None:
                given[number] = vectors
        if records:
            checked = self._checked(given)
            last = self._tag_new(scope, records)
            puts = [Put(record, 0, checked.get(number)) for number, record in records.items()]
            self._commit(scope, puts, progress=progress)
            for user_id, entity in last.items():
                self._last_entity[scope, user_id] = entity
        return ids

    def _checked(self, given: Mapping[int, Any]) -> dict[int, Vectors]:
        """The vectors that some items bring, by the number of the item."""
        if not given:
            return {}
        numbers = list(given)
        matrices = check_matrices(
            list(given.values()), self.embedder.dim, lambda place: f"item {numbers[place]}: vectors"
        )
        return dict(zip(numbers, matrices, strict=True))

    def update(
        self,
        id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        *,
        entity: str | None = None,
        expect: int | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> bool:
        """Correct a record in place: a typing error, more metadata. Returns False if there is no such record.

        A value that *changed* is a new `add`, which keeps the old one in the chain. An update keeps the time, the
        place in the chain and the id; `metadata` is merged over what is there; `entity`, or ``user_id`` or ``project``
        in `metadata`, moves it to another chain. `expect` demands that the record still has that version, else
        ConflictError.
        """
        scope = self._scope(user, agent)
        merged = clean_metadata(metadata)
        named = merged.pop("entity", None) if entity is None else entity
        merged.pop("entity", None)
        if text is not None and not text.strip():
            raise InputError("text: expected a text to store; found an empty one (use delete to remove a record)")

        def change(record: Record) -> Record:
            chain = record.chain
            record = replace(record, metadata={**record.metadata, **merged})
            if text is not None:
                record = replace(record, text=clean_text(text).strip())
            if source is not None:
                record = replace(record, source=clean_text(source))
            if named is not None:
                record = replace(record, entity=normalize_entity(named), declared=True)
            return record if record.chain == chain else replace(record, revision=0)

        return self._rewrite(scope, id, change, expect)

    def retract(
        self,
        id: str | None = None,
        *,
        entity: str | None = None,
        at: TimeLike | None = None,
        reason: str | None = None,
        filter: Mapping[str, Any] | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> str | None:
        """State that a fact ended without a successor at `at` (now by default). It stays in the history.

        Give the `id`, or the `entity` whose current value ended. `restore` takes it back. Returns the id, or None if
        there was nothing to retract.
        """
        scope = self._scope(user, agent)
        now = self._clock()
        end = now if at is None else parse_time(at, "at")
        if (id is None) == (entity is None):
            raise InputError("retract: give either id or entity")
        if id is None:
            current = self.current(entity=entity, filter=filter, user=user, agent=agent)
            if not current:
                return None
            if len(current) > 1:
                raise InputError(
                    f"retract: {len(current)} chains have the entity {entity!r}; give the id, or a filter on user_id "
                    "or project"
                )
            id = str(current[0]["id"])

        def change(record: Record) -> Record:
            if end < record.valid_from:
                raise InputError(f"at: {id!r} became true at {record.valid_from}, which is after {end}")
            metadata = dict(record.metadata) if reason is None else {**record.metadata, "retracted_because": reason}
            return replace(record, valid_to=end, closed_at=now, metadata=metadata)

        return id if self._rewrite(scope, id, change, None) else None

    def restore(self, id: str, *, user: str | None = None, agent: str | None = None) -> bool:
        """Take back a `retract`. Returns False if there is no such record."""

        def change(record: Record) -> Record:
            metadata = {key: value for key, value in record.metadata.items() if key != "retracted_because"}
            return replace(record, valid_to=None, closed_at=None, metadata=metadata)

        return self._rewrite(self._scope(user, agent), id, change, None)

    def commit(
        self,
        changes: Sequence[Change],
        *,
        expect_head: int | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> None:
        """Write prepared changes as one commit, after the hooks have seen them; durable when this returns.

        A record that is written again with its text unchanged, and with an `expect`, keeps the vectors that are stored.

        Raises:
            ConflictError: a precondition, or `expect_head`, does not hold; nothing was written.
        """
        scope = self._scope(user, agent)
        self._commit(scope, [self._keeping_vectors(scope, change) for change in changes], expect_head)

    def _keeping_vectors(self, scope: Scope, change: Change) -> Change:
        if isinstance(change, Delete) or change.vectors is not None or not change.expect:
            return change
        stored = self.storage.get(scope, change.record.id)
        if stored is None or stored.version != change.expect or stored.text != change.record.text:
            return change
        return replace(change, vectors=self._kept_vectors(scope, stored))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Writes and deletions of this thread inside the block become one commit (a scope) at its end.

        Until then nothing of them can be read, by this thread neither: an `update` sees the record as it was before.
        If the block is left by an exception, nothing is written. `purge`, `prune` and `erase` are refused inside.

        Raises:
            ConflictError: at the end; somebody else wrote to a scope meanwhile, and a deletion had been computed from
                what it held before, or two calls wrote one record.
        """
        self._check_open()
        if getattr(self._batch, "pending", None) is not None:
            raise InputError("batch: this thread is inside a batch already")
        pending = self._batch.pending = {}
        try:
            yield
        finally:
            self._batch.pending = None
        for scope, part in pending.items():
            self._commit(scope, part.changes, part.expect_head)


def _item_fields(item: object, number: int) -> Mapping[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    if not (type(item) is dict or isinstance(item, Mapping)) or "text" not in item:
        raise InputError(f"item {number}: expected a text, or a mapping with `text`; found {item!r:.80}")
    if not _KNOWN_KEYS.issuperset(item):
        unknown = next(key for key in item if key not in _KNOWN_KEYS)
        raise InputError(f"item {number}: unknown key {unknown!r}; known are {', '.join(_ITEM_KEYS)}")
    return item


def _make_record(now: float, fields: Mapping[str, Any], fresh: Iterator[str]) -> Record | None:
    """The record of an item; None if its text is empty. One that brings no id gets one of `fresh`."""
    text = fields["text"]
    if not isinstance(text, str):
        raise InputError(f"text: expected a text; found {type(text).__name__}")
    text = clean_text(text).strip()
    if not text:
        return None
    get = fields.get
    kind, source, revision = get("kind", "fact"), get("source", "user_input"), get("revision")
    id, timestamp, valid_to = get("id"), get("timestamp"), get("valid_to")
    cleaned = clean_metadata(get("metadata"))
    named = cleaned.pop("entity", None)
    declared = get("entity")
    if declared is None:
        declared = named
    if revision is not None and (not isinstance(revision, int) or revision < 1):
        raise InputError(f"revision: expected a whole number from 1; found {revision!r}")
    if kind == "purged":
        raise InputError("kind: a purged record has no text to store; use purge to make one")
    begin = now if timestamp is None else parse_time(timestamp, "timestamp")
    end = None if valid_to is None else parse_time(valid_to, "valid_to")
    if end is not None and end < begin:
        raise InputError(f"valid_to: expected a time from the timestamp {begin} on; found {end}")
    return Record(
        next(fresh) if id is None else id,
        text,
        kind,
        None if declared is None else normalize_entity(declared),
        declared is not None,
        revision or 0,
        0,
        begin,
        end,
        now,
        None if end is None else now,
        clean_text(source),
        cleaned,
    )
