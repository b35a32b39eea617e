"""Adding, correcting, ending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..changes import Put, Vectors, check_matrices
from ..errors import InputError
from ..records import Kind, Record, Scope, clean_metadata, clean_text, new_id, normalize_entity
from ..times import TimeLike, parse_time
from .reading import Reading

__all__ = ["PERSONAL_SOURCES", "Writing"]

PERSONAL_SOURCES = frozenset(
    {"api", "chat", "chat_session", "cli", "mcp", "mcp_client", "proxy", "proxy_chat", "rest_api", "user_input"}
)
"""Sources whose statements a tagger may put into a chain. Documents speak of other people's attributes."""

_ITEM_KEYS = ("text", "metadata", "source", "timestamp", "revision", "id", "entity", "valid_to", "kind", "vectors")
_KNOWN_KEYS = frozenset(_ITEM_KEYS)


class Writing(Reading):
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
        previous: dict[str, str] = {}
        records: dict[int, Record] = {}
        given: dict[int, Any] = {}
        ids: list[str] = []
        for number, item in enumerate(items):
            fields = _item_fields(item, number)
            vectors = fields.pop("vectors", None)
            record = self._make_record(scope, now, previous, **fields)
            ids.append("" if record is None else record.id)
            if record is not None:
                records[number] = record
                if vectors is not None:
                    given[number] = vectors
        if records:
            checked = self._checked(given)
            puts = [Put(record, expect=0, vectors=checked.get(number)) for number, record in records.items()]
            self._commit(scope, puts, progress=progress)
            for user_id, entity in previous.items():
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

    def _make_record(
        self,
        scope: Scope,
        now: float,
        previous: dict[str, str],
        text: str,
        metadata: Mapping[str, Any] | None = None,
        source: str = "user_input",
        timestamp: TimeLike | None = None,
        revision: int | None = None,
        id: str | None = None,
        entity: str | None = None,
        valid_to: TimeLike | None = None,
        kind: Kind = "fact",
    ) -> Record | None:
        if not isinstance(text, str):
            raise InputError(f"text: expected a text; found {type(text).__name__}")
        text = clean_text(text).strip()
        if not text:
            return None
        cleaned = clean_metadata(metadata)
        named = cleaned.pop("entity", None)
        declared = entity if entity is not None else named
        if revision is not None and (not isinstance(revision, int) or revision < 1):
            raise InputError(f"revision: expected a whole number from 1; found {revision!r}")
        if kind == "purged":
            raise InputError("kind: a purged record has no text to store; use purge to make one")
        begin = now if timestamp is None else parse_time(timestamp, "timestamp")
        end = None if valid_to is None else parse_time(valid_to, "valid_to")
        if end is not None and end < begin:
            raise InputError(f"valid_to: expected a time from the timestamp {begin} on; found {end}")
        name: str | None = None
        if declared is not None:
            name = normalize_entity(declared)
        elif revision is None and kind == "fact" and source in PERSONAL_SOURCES:
            user_id = str(cleaned.get("user_id", ""))
            name = self._tag(text, previous.get(user_id) or self._last_entity.get((scope, user_id)))
            if name is not None:
                previous[user_id] = name
        return Record(
            id=new_id() if id is None else id,
            text=text,
            kind=kind,
            entity=name,
            declared=declared is not None,
            revision=revision or 0,
            valid_from=begin,
            valid_to=end,
            recorded_at=now,
            closed_at=None if end is None else now,
            source=clean_text(source),
            metadata=cleaned,
        )

    def _tag(self, text: str, previous: str | None) -> str | None:
        for tagger in self.taggers:
            entity = tagger.tag(text, previous=previous)
            if entity is not None:
                return normalize_entity(entity)
        return None

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


def _item_fields(item: object, number: int) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    if not isinstance(item, Mapping) or "text" not in item:
        raise InputError(f"item {number}: expected a text, or a mapping with `text`; found {item!r:.80}")
    if not item.keys() <= _KNOWN_KEYS:
        unknown = next(key for key in item if key not in _KNOWN_KEYS)
        raise InputError(f"item {number}: unknown key {unknown!r}; known are {', '.join(_ITEM_KEYS)}")
    return dict(item)
