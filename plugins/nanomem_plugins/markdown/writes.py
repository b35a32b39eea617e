"""Which files a commit writes: documents in their places, and the small files beside them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nanomem_core.errors import CorruptionError, InputError
from nanomem_core.fileio.journal import Remove, Replace, Write
from nanomem_core.records import Record

from .document import Document, digest, parse_document, render_document
from .edits import taken_up
from .held import Held
from .layout import Place, document_path, is_plain_id, place_of
from .manifest import FILE, parse_manifest
from .state import AgentState, Read

__all__ = ["Note", "adoption", "document_writes", "erasure"]

Note = dict[str, Any]
"""What the journal says of a commit beside the files, so that whoever follows it need not parse them: in ``records``
for each id what `Held.to_dict` gives, or None for a file that somebody removed."""


def document_writes(
    state: AgentState,
    read: Read,
    puts: Iterable[Record],
    deletes: Iterable[str],
    now: float,
    updated: Mapping[str, float] | None = None,
) -> tuple[list[Write], Note]:
    """The writes and the note of a commit that has `puts` and `deletes`; their order is that of the puts.

    A value of a declared chain that is no longer the newest moves to ``history``, and back when it is the newest again.

    Args:
        updated: when records say they were last written, by id; by default a new one as it was told, others `now`.

    Raises:
        CorruptionError: a file that can't be read stands where a record would go.
    """
    composer = _Composer(state, read, now, updated or {})
    return composer.compose({record.id: record for record in puts}, list(deletes), {})


def adoption(state: AgentState, read: Read, now: float) -> tuple[list[Write], Note]:
    """The writes and the note of a commit that takes up what is pending. The edited files are not written."""
    taken, kept = taken_up(state.pending, state.held, state.tip, now)
    gone = [id for id, held in taken.items() if held is None]
    if len(gone) == len(taken) == len(state.held) and read(state.state_path) is None:
        # Somebody removed the agent, folder and all. What was computed before must not bring it back.
        manifest = parse_manifest(read(FILE), FILE).next(now)
        return [*_beside(state), Replace(FILE, manifest.encode())], {"records": dict.fromkeys(gone)}
    return _Composer(state, read, now, {}).compose(kept, gone, taken)


def erasure(state: AgentState) -> list[Write]:
    """The removal of every file of an agent that this store or DeerMem could have written."""
    paths = dict.fromkeys([*(held.path for held in state.held.values()), *_readable(state)])
    return [*map(Remove, paths), *_beside(state)]


def _beside(state: AgentState) -> list[Remove]:
    """The removal of what lies beside the records, so that the numbers of the scope begin anew."""
    return [Remove(path) for path in (state.edits_path, state.audit_path, state.usage_path, state.state_path)]


def _readable(state: AgentState) -> list[str]:
    """Files that hold, or held, a record of the agent although they can't be read now."""
    return [path for path, bad in state.bad.items() if bad.id is not None]


class _Composer:
    def __init__(self, state: AgentState, read: Read, now: float, updated: Mapping[str, float]) -> None:
        self.state = state
        self.read = read
        self.now = now
        self.updated = updated
        self.writes: dict[str, Write] = {}
        self.records: dict[str, dict[str, Any] | None] = {}
        self.folded: dict[str, str] = {}
        self.last_birth = max(state.last_birth, time.time_ns() // 1000 - 1)

    def compose(
        self, puts: dict[str, Record], deletes: list[str], taken: dict[str, Held | None]
    ) -> tuple[list[Write], Note]:
        """Writes for the documents of `puts`, the removal of `deletes`, and whatever moves for it."""
        state = self.state
        after = dict(puts)
        after.update((id, held.record) for id, held in taken.items() if held is not None)
        births = {id: state.held[id].birth if id in state.held else self._birth() for id in puts}
        births |= {id: held.birth for id, held in taken.items() if held is not None}
        newest = self._newest(after, {*deletes}, births)
        for id in deletes:
            # What a person removed is not removed once more: it may be back by now.
            if id in state.held and id not in taken:
                self.writes[state.held[id].path] = Remove(state.held[id].path)
                self._remove_bad(id)
        for id, record in puts.items():
            self._put(record, births[id], newest)
        for id in newest.members:
            if id not in after:
                self._move(id, newest)
        for id, held in taken.items():
            # An edited file stays where it is until it is written next.
            if held is not None:
                self.writes.pop(held.path, None)
            self.records[id] = None if held is None else held.to_dict()
        self._side_files(puts, deletes, taken)
        return list(self.writes.values()), {"records": self.records}

    def _birth(self) -> int:
        self.last_birth += 1
        return self.last_birth

    def _newest(self, after: dict[str, Record], deletes: set[str], births: dict[str, int]) -> _Newest:
        held = self.state.held
        chains = {record.chain for record in after.values()}
        chains |= {held[id].record.chain for id in (*after, *deletes) if id in held}
        result = _Newest({}, set())
        for chain in chains - {None}:
            members = {one.record.id: one.record for one in self.state.members(str(chain))}
            members = {id: record for id, record in members.items() if id not in deletes and id not in after}
            members |= {id: record for id, record in after.items() if record.chain == chain}
            facts = [record for record in members.values() if record.kind == "fact"]
            if any(record.declared for record in facts):

                def order(record: Record) -> tuple[float, int, int]:
                    birth = births.get(record.id)
                    return record.valid_from, record.revision, held[record.id].birth if birth is None else birth

                newest = max(facts, key=order).id
                result.superseded |= {record.id for record in facts if record.id != newest}
            result.members |= dict.fromkeys(members)
        return result

    def _place(self, record: Record, newest: _Newest) -> Place:
        if record.kind != "fact" or not is_plain_id(record.id) or not record.text.strip():
            return "records"
        return "history" if record.id in newest.superseded or _is_over(record) else "facts"

    def _put(self, record: Record, birth: int, newest: _Newest) -> None:
        state = self.state
        old = state.held.get(record.id)
        content = None if old is None else self.read(old.path)
        like = None
        if old is not None and content is not None and digest(content) == old.digest:
            like = _parsed(content, state)
        elif record.kind != "purged" and self._is_bad(record.id):
            raise self._refusal(record.id)
        place = self._place(record, newest)
        written = record.recorded_at if old is None and record.version <= 1 else self.now
        data = render_document(record, birth, state.owner, self.updated.get(record.id, written), like)
        path = self._path(record.id, place, old)
        document = self._checked(data, record, path)
        if document is None:
            path = self._path(record.id, "records", None)
            document = parse_document(data, state.owner)
        if path in state.bad and record.kind != "purged":
            raise self._refusal(record.id)
        if old is not None and old.path != path:
            self.writes[old.path] = Remove(old.path)
        self._remove_bad(record.id)
        self.writes[path] = Replace(path, data)
        held = Held(document.record, document.birth, path, digest(data), updated=document.updated_at)
        self.records[record.id] = held.to_dict()
        self.folded[path.lower()] = record.id

    def _checked(self, data: bytes, record: Record, path: str) -> Document | None:
        """The document as it will be read; None if DeerMem would refuse it where it is to lie."""
        stem = record.id if place_of(path, self.state.folder) == "facts" else None
        try:
            return parse_document(data, self.state.owner, stem)
        except InputError:
            return None

    def _path(self, id: str, place: Place, old: Held | None) -> str:
        folder = self.state.folder
        if old is not None and place_of(old.path, folder) == place:
            return old.path
        path = document_path(folder, place, id)
        # A disk may take two names for one that differ in case.
        if place == "facts" and {self.state.folded.get(path.lower(), id), self.folded.get(path.lower(), id)} != {id}:
            return document_path(folder, "records", id)
        return path

    def _move(self, id: str, newest: _Newest) -> None:
        held = self.state.held[id]
        place = self._place(held.record, newest)
        path = self._path(id, place, held)
        if path == held.path or path in self.state.bad:
            return
        content = self.read(held.path)
        if content is None or digest(content) != held.digest or not held.own:
            return  # somebody is at work on it; the next commit moves it
        if self._checked(content, held.record, path) is None:
            return
        self.writes[held.path] = Remove(held.path)
        self.writes[path] = Replace(path, content)
        self.records[id] = replace(held, path=path).to_dict()

    def _is_bad(self, id: str) -> bool:
        return any(bad.id == id for bad in self.state.bad.values())

    def _remove_bad(self, id: str) -> None:
        for path, bad in self.state.bad.items():
            if bad.id == id:
                self.writes[path] = Remove(path)

    def _refusal(self, id: str) -> CorruptionError:
        path, reason = next(
            (path, bad.reason)
            for path, bad in self.state.bad.items()
            if bad.id == id or path == document_path(self.state.folder, "facts", id)
        )
        return CorruptionError(
            path, None, f"the file can't be read ({reason}); correct it, or delete the record, before it is written"
        )

    def _side_files(self, puts: dict[str, Record], deletes: list[str], taken: dict[str, Held | None]) -> None:
        state = self.state
        edits = {id: edit for id, edit in state.edits.items() if id not in puts and id not in deletes}
        for id, held in taken.items():
            if held is None:
                continue
            known = state.held.get(id)
            if known is None or held.own:
                edits.pop(id, None)
            if known is not None:
                edits[id] = held.to_dict()
        if edits != state.edits:
            if edits:
                self.writes[state.edits_path] = Replace(state.edits_path, _json(edits))
            else:
                self.writes[state.edits_path] = Remove(state.edits_path)
        epoch = state.epoch or os.urandom(8).hex()
        self.writes[state.state_path] = Replace(state.state_path, _json({"head": state.head + 1, "epoch": epoch}))


@dataclass(slots=True)
class _Newest:
    """Of the chains that a commit touches: their records, and those that a declared chain has a newer value of."""

    members: dict[str, None]
    superseded: set[str]


def _is_over(record: Record) -> bool:
    """True if the record had ended when the end was told: nobody should take it for a fact of today."""
    told = record.recorded_at if record.closed_at is None else record.closed_at
    return record.valid_to is not None and record.valid_to <= told


def _parsed(content: bytes, state: AgentState) -> Document | None:
    try:
        return parse_document(content, state.owner)
    except InputError:
        return None


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"
