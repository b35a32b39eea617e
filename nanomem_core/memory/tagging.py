"""Guessing the entities of statements: of new ones, and of stored ones once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..chains import chain_rows
from ..changes import Change, Put
from ..frame import Frame
from ..insight import split_chain
from ..interfaces import Generator, Tagger
from ..pipeline.tagging import tag_texts
from ..records import Record, Scope
from .prompting import Prompting

__all__ = ["PERSONAL_SOURCES", "TagChange", "TagPlan", "Tagging"]

PERSONAL_SOURCES = frozenset(
    {"api", "chat", "chat_session", "cli", "mcp", "mcp_client", "proxy", "proxy_chat", "rest_api", "user_input"}
)
"""Sources whose statements a tagger may put into a chain. Documents speak of other people's attributes."""


@dataclass(frozen=True, slots=True)
class TagChange:
    """A record that taggers now give another entity.

    Attributes:
        before: the entity that it has, None outside a chain.
        after: the entity that it should have.
        version: of the record that the taggers saw.
    """

    id: str
    text: str
    before: str | None
    after: str
    version: int


@dataclass(frozen=True, slots=True)
class TagPlan:
    """What `Memory.tag` proposes.

    Attributes:
        changes: in the order in which the records were told.
        looked_at: statements that the taggers were asked about.
        untold: those of which no tagger could tell anything; they keep the entity that they have.
    """

    scope: Scope
    changes: tuple[TagChange, ...]
    looked_at: int
    untold: int

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON types."""
        return asdict(self)


class Tagging(Prompting):
    """The part of `Memory` that asks taggers."""

    def tag(
        self,
        *,
        taggers: Sequence[Tagger | str | Mapping[str, Any]] | None = None,
        generator: Generator | None = None,
        filter: Mapping[str, Any] | None = None,
        entity: str | None = None,
        dry_run: bool = True,
        user: str | None = None,
        agent: str | None = None,
    ) -> TagPlan:
        """Ask the taggers once more about statements that are stored; returns what they would change.

        Looked at are facts that the user stated and no caller declared, in the order in which they were told. The
        entities of other facts are known to the taggers, those of the facts looked at are not. A declared entity never
        changes, and a fact that no tagger is sure of keeps what it has. Unless `dry_run`, `apply_tags` follows.

        Args:
            taggers: in place of the memory's own.
            generator: the model, for taggers that ask one; by default the one that the memory has.
            filter, entity: which facts.

        Raises:
            GeneratorError: the model of a tagger failed; nothing was changed.
        """
        frame = self._frame(user=user, agent=agent, filter=filter, entity=entity)
        rows = np.flatnonzero(frame.allowed & ~frame.columns.declared)
        told = frame.records(rows[np.argsort(frame.columns.recorded_at[rows], kind="stable")].tolist())
        told = {row: record for row, record in told.items() if record.source in PERSONAL_SOURCES}
        after: dict[int, str | None] = {}
        with ExitStack() as stack:
            asked = self.taggers if taggers is None else [self.build("tagger", each, stack) for each in taggers]
            for user_id, mine in _by_user(told).items():
                found = tag_texts(
                    asked,
                    [told[row].text for row in mine],
                    known=partial(_known_entities, frame, user_id, tuple(told)),
                    generator=lambda: self.generator if generator is None else generator,
                    strict=True,
                )
                after.update(zip(mine, found, strict=True))
        changes = (
            TagChange(record.id, record.text, record.entity, new, record.version)
            for row, record in told.items()
            if (new := after[row]) is not None and new != record.entity
        )
        plan = TagPlan(frame.columns.scope, tuple(changes), len(told), sum(new is None for new in after.values()))
        if not dry_run:
            self.apply_tags(plan)
        return plan

    def apply_tags(self, plan: TagPlan) -> int:
        """Write what `tag` proposed, as one commit; returns how many records were changed.

        They keep their ids, texts and times, so each takes its place by time in the history of its new entity; what
        they had before is kept as ``retagged_from`` in their metadata. A record that was written since the taggers saw
        it stays as it is.
        """
        changes: list[Change] = []

        def compute(frame: Frame) -> list[Change]:
            changes.clear()
            for change in plan.changes:
                record = self.storage.get(plan.scope, change.id)
                if record is None or record.version != change.version or record.declared:
                    continue
                metadata = {**record.metadata, "retagged_from": record.entity}
                retagged = replace(record, entity=change.after, revision=0, metadata=metadata)
                changes.append(Put(retagged, expect=record.version, vectors=self._kept_vectors(plan.scope, record)))
            return changes

        self._update(plan.scope, compute)
        return len(changes)

    def _tag_new(self, scope: Scope, records: dict[int, Record]) -> dict[str, str]:
        """Give those of `records` that may have one the entity that the taggers find, in place; returns the last entity
        of each ``user_id``."""
        if not self.taggers:
            return {}
        open_records = {
            number: record
            for number, record in records.items()
            if record.entity is None
            and record.revision == 0
            and record.kind == "fact"
            and record.source in PERSONAL_SOURCES
        }
        last: dict[str, str] = {}
        for user_id, mine in _by_user(open_records).items():
            found = tag_texts(
                self.taggers,
                [records[number].text for number in mine],
                previous=self._last_entity.get((scope, user_id)),
                known=partial(self._known, scope, user_id),
                generator=lambda: self.generator,
            )
            for number, entity in zip(mine, found, strict=True):
                if entity is not None:
                    records[number] = replace(records[number], entity=entity)
                    last[user_id] = entity
        return last

    def _known(self, scope: Scope, user_id: str) -> dict[str, str]:
        return _known_entities(self._frame(user=scope.user, agent=scope.agent), user_id)


def _known_entities(frame: Frame, user_id: str, without: Sequence[int] = ()) -> dict[str, str]:
    """The entities of one ``user_id`` with their newest statement, the one that changed last first.

    The rows in `without` don't count.
    """
    columns = frame.columns
    mask = frame.visible.copy()
    mask[list(without)] = False
    newest: dict[int, str] = {}
    for chain in chain_rows(columns, mask):
        entity, owner, _ = split_chain(columns.chains[chain.code])
        if (owner or "") == user_id:
            newest[int(chain.rows[-1])] = entity
    order = sorted(newest, key=lambda row: (-columns.valid_from[row], -row))
    known: dict[str, str] = {}
    for row, record in frame.records(order).items():
        known.setdefault(newest[row], record.text)
    return known


def _by_user(records: Mapping[int, Record]) -> dict[str, list[int]]:
    """The keys of `records` by the ``user_id`` in their metadata."""
    groups: dict[str, list[int]] = {}
    for key, record in records.items():
        user_id = record.metadata.get("user_id")
        groups.setdefault("" if user_id is None else str(user_id), []).append(key)
    return groups
