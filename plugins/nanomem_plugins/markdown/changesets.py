"""A change set of DeerMem's contract: what it means, and the one commit that it becomes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nanomem_core.changes import Change, Delete, Put, plan_commit
from nanomem_core.errors import ConflictError, InputError
from nanomem_core.records import Record

from .eviction import Policy, evicted
from .facts import Fact, check_id, normalise
from .instants import time_value
from .layout import document_path, is_plain_id
from .manifest import VERSION
from .mapping import candidate, changed_records, fact_of, new_record
from .shown import is_shown, read_facts, shown_fact, shown_facts
from .sidecars import audit_writes, read_usage
from .summaries import patched, sections_of

if TYPE_CHECKING:
    from .storage import MarkdownTransaction

__all__ = [
    "ChangeSet",
    "FactCommit",
    "checked_fact",
    "parse_change_set",
    "unconditional",
]

MAX_CONTENT = 1 << 20
"""Characters of a fact that is written through the contract."""

ENDED_BECAUSE = "retracted_because"
"""The metadata key in which `Memory.retract` keeps its reason, and which `Memory.restore` takes away."""


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What is to be done.

    Attributes:
        upserts: facts by id; one without an id has a fresh one.
        upsert_revisions: the revision that must be stored, None for absence; an id without one is free.
        delete_revisions: the revision that must be stored, for the ids that have one.
    """

    upserts: dict[str, Mapping[str, Any]]
    upsert_revisions: dict[str, int | None]
    deletes: list[str]
    delete_revisions: dict[str, int]
    summaries: Mapping[str, Any]

    @property
    def can_rebase(self) -> bool:
        """True if the preconditions of the facts say all that it depends on."""
        named = set(self.upserts) <= set(self.upsert_revisions) and set(self.deletes) <= set(self.delete_revisions)
        return named and bool(self.upserts or self.deletes) and not self.summaries

    def without(self, ids: list[str]) -> ChangeSet:
        """The same with these ids to delete."""
        return replace(self, deletes=ids)


def checked_fact(fact: object) -> Fact:
    """A copy of `fact` with an id, if it is one.

    Raises:
        InputError: it has the wrong form; the message names the key.
    """
    if not isinstance(fact, Mapping):
        raise InputError(f"fact: expected a mapping; found {type(fact).__name__}")
    content = fact.get("content")
    if isinstance(content, str) and len(content) > MAX_CONTENT:
        raise InputError(f"content: at most {MAX_CONTENT} characters; found {len(content)}")
    given = dict(fact)
    # The scope is checked where it is known.
    whole = normalise({key: value for key, value in given.items() if key != "scope"}, {}, 0.0)
    return given | {"id": whole["id"]}


def unconditional(facts: Iterable[object]) -> ChangeSet:
    """A change set without preconditions."""
    given = [checked_fact(fact) for fact in facts]
    _refuse_doubles([fact["id"] for fact in given])
    return ChangeSet({fact["id"]: fact for fact in given}, {}, [], {}, {})


def parse_change_set(given: Mapping[str, Any]) -> ChangeSet:
    """Read a change set.

    Raises:
        InputError: it has the wrong form, or an id stands in it twice.
    """
    known = ("upserts", "deletes", "upsertRevisions", "deleteRevisions", "summaries")
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise InputError(f"change_set: expected a mapping with some of {', '.join(known)}; found {given!r:.80}")
    facts = [checked_fact(fact) for fact in _list(given, "upserts")]
    deletes = [check_id(id) for id in _list(given, "deletes")]
    _refuse_doubles([*(fact["id"] for fact in facts), *deletes])
    revisions = _revisions(given, "upsertRevisions", {fact["id"] for fact in facts})
    upsert_revisions = {fact["id"]: revisions.get(fact["id"], fact.get("revision")) for fact in facts}
    delete_revisions = {id: n for id, n in _revisions(given, "deleteRevisions", set(deletes)).items() if n is not None}
    summaries = given.get("summaries") or {}
    patched({}, summaries, 0.0)
    return ChangeSet({fact["id"]: fact for fact in facts}, upsert_revisions, deletes, delete_revisions, summaries)


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    found = given.get(name)
    if not isinstance(found, list | tuple | None):
        raise InputError(f"{name}: expected a list; found {type(found).__name__}")
    return list(found or ())


def _refuse_doubles(ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        twice = next(id for id in ids if ids.count(id) > 1)
        raise InputError(f"change_set: the id {twice!r} stands in it twice")


def _revisions(given: Mapping[str, Any], name: str, ids: set[str]) -> dict[str, int | None]:
    found = given.get(name) or {}
    if not isinstance(found, Mapping) or not set(found) <= ids:
        raise InputError(f"{name}: expected a revision for some of the ids that are named; found {found!r:.80}")
    for id, revision in found.items():
        if revision is not None and (isinstance(revision, bool) or not isinstance(revision, int) or revision < 1):
            raise InputError(f"{name}: {id}: expected a whole number from 1, or None; found {revision!r}")
    return dict(found)


class FactCommit:
    """One commit of facts and summaries, under the user's lock.

    Args:
        max_facts: how many facts there may be after a commit that adds some; `policy` says which are evicted.
    """

    def __init__(self, transaction: MarkdownTransaction, max_facts: int | None, policy: Policy) -> None:
        self._transaction = transaction
        self._user, self._state = transaction.user, transaction.state
        self._max_facts = max_facts
        self._policy = policy
        self._now = time.time()
        self._facts: dict[str, Put] = {}
        self._old_values: list[Put] = []
        self._deletes: dict[str, Delete] = {}
        self._updated: dict[str, float] = {}
        self._tips: dict[str, int] = {}
        self._adds = False

    def run(self, changes: ChangeSet) -> dict[str, Any]:
        """Check every precondition, write what differs, and return the delta.

        Raises:
            ConflictError: a fact is not as it was expected; nothing was written.
            InputError: a fact has the wrong form; nothing was written.
        """
        user, state = self._user, self._state
        for id, fact in changes.upserts.items():
            self._upsert(id, fact, changes)
        deleted = [id for id in changes.deletes if self._delete(id, changes.delete_revisions.get(id))]
        evictions = self._evict() if self._adds else {}
        before = sections_of(user.manifest()) if changes.summaries else None
        sections = None if before is None else patched(before, changes.summaries, self._now)
        commit: list[Change] = [*self._old_values, *self._facts.values(), *self._deletes.values()]
        if commit or sections != before:
            plan = plan_commit(self._transaction, state.scope, commit)
            audit = audit_writes(state, user.read, evictions, self._deletes, self._policy, self._now)
            self._transaction.apply(plan, sections if sections != before else None, audit, self._updated)
        manifest = user.manifest()
        written = [state.held[id] for id in self._facts if id not in evictions]
        return {
            "complete": False,
            "version": VERSION,
            "revision": manifest.revision,
            "lastUpdated": manifest.updated_at,
            "upsertedFacts": read_facts(state, written),
            "deletedFactIds": deleted,
            **({"evictedFactIds": list(evictions)} if evictions else {}),
        }

    def _stored(self, id: str) -> tuple[Record | None, Fact | None]:
        """What is there under an id, and the fact if it is one."""
        record = self._transaction.get(id)
        if record is None or shown_fact(self._state, id) is None:
            return record, None
        return record, fact_of(record, self._state.owner)

    def _upsert(self, id: str, given: Mapping[str, Any], changes: ChangeSet) -> None:
        record, stored = self._stored(id)
        if id in changes.upsert_revisions:
            _check_revision(id, changes.upsert_revisions[id], stored)
        owner = self._state.owner
        fact = normalise(given, {"userId": owner.user, "agentName": owner.agent}, self._now, stored)
        if fact is stored:
            return
        self._adds |= stored is None
        if record is None or record.kind == "purged":
            self._check_new_id(id)
            self._facts[id] = Put(new_record(fact), expect=0)
            self._updated[id] = time_value(fact["updatedAt"])
            return
        if stored is None:
            if record.valid_to is None:
                raise ConflictError(
                    f"id {id!r}: expected none; found a record that is no fact of today. Take another id",
                    id=id,
                    expected=0,
                    found=record.version,
                )
            # It was evicted, or had ended: now it holds again.
            record = replace(record, valid_to=None, closed_at=None)
        old, new = changed_records(record, fact, self._now, self._tip)
        if old is not None:
            self._old_values.append(Put(old, expect=0))
            self._tips[new.chain or ""] = new.revision
        self._facts[id] = Put(new, expect=record.version)

    def _check_new_id(self, id: str) -> None:
        """Refuse an id that no file which DeerMem finds can have on every disk."""
        if not is_plain_id(id):
            raise InputError(
                f"id: expected at most 100 characters, and no name that Windows reserves; found {id!r:.120}"
            )
        path = document_path(self._state.folder, "facts", id)
        there = self._state.folded.get(path.lower(), id)
        if there != id:
            raise InputError(
                f"id {id!r}: {there!r} has a file whose name some disks take for the same; take another id"
            )

    def _tip(self, chain: str) -> int:
        return max(self._tips.get(chain, 0), self._transaction.tip(chain))

    def _delete(self, id: str, expected: int | None) -> bool:
        record, stored = self._stored(id)
        if expected is not None:
            _check_revision(id, expected, stored)
        if record is None or stored is None:
            return False
        self._deletes[id] = Delete(id, expect=record.version)
        # An older value would come back as the present one.
        for held in self._state.members(record.chain) if record.chain is not None else ():
            if held.record.kind == "fact" and not is_shown(self._state, held):
                self._deletes[held.record.id] = Delete(held.record.id)
        return True

    def _evict(self) -> dict[str, dict[str, float]]:
        """Let what is too much end, so that it lies in the history; returns the scores by id."""
        if self._max_facts is None:
            return {}
        records = {held.record.id: held.record for held in shown_facts(self._state)}
        records |= {id: put.record for id, put in self._facts.items()}
        usage = read_usage(self._state, self._user.read)
        candidates = [candidate(record, usage.get(id)) for id, record in records.items() if id not in self._deletes]
        gone = {one.id: parts for one, parts in evicted(candidates, self._max_facts, self._policy, self._now)}
        for id in gone:
            record = records[id]
            end = max(self._now, record.valid_from)
            why = f"evicted: there is room for {self._max_facts} facts ({self._policy})"
            ended = replace(record, valid_to=end, closed_at=end, metadata={**record.metadata, ENDED_BECAUSE: why})
            self._facts[id] = Put(ended, expect=self._facts[id].expect if id in self._facts else record.version)
        return gone


def _check_revision(id: str, expected: int | None, stored: Fact | None) -> None:
    found = 0 if stored is None else stored["revision"]
    if (expected or 0) == found:
        return
    wanted = "no such fact" if expected is None else f"revision {expected}"
    there = "none" if stored is None else f"revision {found}"
    raise ConflictError(
        f"id {id!r}: expected {wanted}; found {there}. Read again and retry", id=id, expected=expected or 0, found=found
    )
