"""What one agent's files say: its records as they are after the last commit, and edits that no commit has taken up.

A state is filled from a cache or from the files, follows the journal commit by commit, and is compared with the files
by their stat data. What differs without an entry of the journal was changed by a person or another program.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanomem_core.changes import Commit
from nanomem_core.errors import InputError
from nanomem_core.fileio import atomic
from nanomem_core.fileio.journal import Entry, Journal, Replace
from nanomem_core.records import Record, Scope

from .document import Owner, digest, parse_document
from .edits import taken_up
from .files import Signature, find_files, is_recent
from .held import Bad, Held, Sweep
from .layout import document_path, is_plain_id, place_of

if TYPE_CHECKING:
    from .shown import Shown

__all__ = ["AgentState", "Read"]

_LOG = 64
"""Commits that are kept so that columns can follow them."""

Read = Callable[[str], bytes | None]


class AgentState:
    """See the module. Not safe for threads.

    Attributes:
        head: number of the last commit of the scope.
        epoch: changes when the scope is erased and begins anew.
        breaks: how often commits may have been missed, or their numbers began anew, so that no columns can follow.
        held: the records of the last commit by id, in order of birth.
        pending: what a sweep found and no commit has taken up yet; None for a file that is gone.
        preview: what readers are shown of it: the records as the commit will have them, and None for those that go.
        edits: what commits know of files that were edited by hand: path, digest, birth and record by id.
        bad: files that could not be read, by path.
        verified: ids whose files this process has seen as they are held.
        exact: False where commits may have been missed, so that a difference need not be an edit.
        swept, offered: when the last look at the files was, and the last one whose edits were to be made a commit.
        shown: changes whenever `pending` does.
        unsure: True if only a look under the lock can tell whether there is an edit.
        dirty: records changed since the cache was written.
        paths, signatures: of each file that holds a record, its id and what `held` has as its signature.
        shown_facts: records in the form of DeerMem, by id, as far as that was asked for.
    """

    def __init__(self, scope: Scope, folder: str, owner: Owner) -> None:
        self.scope = scope
        self.folder = folder
        self.owner = owner
        self.head = 0
        self.epoch = ""
        self.breaks = 0
        self.held: dict[str, Held] = {}
        self.pending: dict[str, Held | None] = {}
        self.preview: dict[str, Held | None] = {}
        self.edits: dict[str, dict[str, Any]] = {}
        self.bad: dict[str, Bad] = {}
        self.exact = False
        self.swept = self.offered = float("-inf")
        self.shown = 0
        self.unsure = False
        self.dirty = 0
        self.log: deque[Commit] = deque(maxlen=_LOG)
        self.paths: dict[str, str] = {}
        self.signatures: dict[str, Signature | None] = {}
        self.folded: dict[str, str] = {}
        self.chains: dict[str, dict[str, None]] = {}
        self.last_birth = 0
        self.verified: set[str] = set()
        self.shown_facts: dict[str, Shown] = {}

    # Reading.

    def get(self, id: str) -> Record | None:
        found = self.preview[id] if id in self.preview else self.held.get(id)
        return None if found is None else found.record

    def records(self) -> list[Record]:
        """All records in order of birth, edits that are not yet taken up included."""
        if not self.preview:
            return [held.record for held in self.held.values()]
        shown = {id: self.preview.get(id, held) for id, held in self.held.items()}
        added = [id for id in self.preview if id not in shown]
        shown |= {id: self.preview[id] for id in sorted(added, key=lambda id: self._birth(id))}
        return [held.record for held in shown.values() if held is not None]

    def _birth(self, id: str) -> tuple[int, str]:
        held = self.preview[id]
        return (0 if held is None else held.birth, id)

    def tip(self, chain: str) -> int:
        """Highest revision number in a chain, 0 for none."""
        return max((self.held[id].record.revision for id in self.chains.get(chain, ())), default=0)

    def members(self, chain: str) -> list[Held]:
        return [self.held[id] for id in self.chains.get(chain, ())]

    def expected_path(self, id: str) -> str | None:
        """The file that a record lies in, or that somebody would put a fact of that id into."""
        held = self.held.get(id)
        if held is not None:
            return held.path
        return document_path(self.folder, "facts", id) if is_plain_id(id) else None

    @property
    def state_path(self) -> str:
        return f"{self.folder}/.nanomem/state.json"

    @property
    def edits_path(self) -> str:
        return f"{self.folder}/.nanomem/edits.json"

    @property
    def cache_name(self) -> str:
        name = f"{self.scope.user}\0{self.scope.agent}".encode()
        return f"facts-{hashlib.blake2b(name, digest_size=16).hexdigest()}.json"

    @property
    def audit_path(self) -> str:
        return f"{self.folder}/.nanomem/evictions.jsonl"

    @property
    def usage_path(self) -> str:
        return f"{self.folder}/.nanomem/usage.json"

    def owns(self, path: str) -> bool:
        return path.startswith(self.folder + "/")

    # Changing what is held.

    def put(self, held: Held) -> None:
        id, record = held.record.id, held.record
        old = self.held.get(id)
        if old is not None:
            self._unlink(old)
        self.verified.discard(id)
        self.held[id] = held
        self.paths[held.path] = id
        self.signatures[held.path] = held.signature
        self.folded[held.path.lower()] = id
        self.last_birth = max(self.last_birth, held.birth)
        if record.chain is not None:
            self.chains.setdefault(record.chain, {})[id] = None

    def drop(self, id: str) -> None:
        old = self.held.pop(id, None)
        self.shown_facts.pop(id, None)
        if old is not None:
            self._unlink(old)

    def _unlink(self, old: Held) -> None:
        id, chain = old.record.id, old.record.chain
        if self.paths.get(old.path) == id:
            del self.paths[old.path], self.signatures[old.path]
        if self.folded.get(old.path.lower()) == id:
            del self.folded[old.path.lower()]
        if chain is not None:
            members = self.chains[chain]
            del members[id]
            if not members:
                del self.chains[chain]

    def sort(self) -> None:
        """Bring what was put in any order into the order of birth."""
        self.held = dict(sorted(self.held.items(), key=lambda item: (item[1].birth, item[0])))

    # Documents.

    def understand(self, path: str, data: bytes, signature: Signature | None) -> Held:
        """The record in a file.

        Raises:
            InputError: it holds none of this agent.
        """
        stem = path.rpartition("/")[2].removesuffix(".md") if place_of(path, self.folder) == "facts" else None
        mark = digest(data)
        document = parse_document(data, self.owner, stem)
        record = document.record
        edit = self.edits.get(record.id)
        if edit is not None and edit["digest"] == mark:
            taken = Record.from_dict(edit["record"])
            return Held(taken, edit["birth"], path, mark, signature, updated=document.updated_at)
        return Held(record, document.birth, path, mark, signature, document.sealed, document.updated_at)

    def read_side_files(self, read: Read) -> None:
        """Take over head, epoch and edits from their files."""
        state = _object(read(self.state_path))
        head, epoch = state.get("head"), state.get("epoch")
        self.head = head if isinstance(head, int) and head >= 0 else 0
        self.epoch = epoch if isinstance(epoch, str) else ""
        self.edits = {id: edit for id, edit in _object(read(self.edits_path)).items() if _is_edit(edit)}

    # Commits.

    def follow(self, entry: Entry) -> None:
        """Take over a commit from its entry in the journal."""
        writes = {write.path: write for write in entry.writes if self.owns(write.path)}
        data = {path: write.data if isinstance(write, Replace) else None for path, write in writes.items()}
        if self.edits_path in data:
            self.edits = {id: e for id, e in _object(data[self.edits_path]).items() if _is_edit(e)}
        if self.state_path in data:
            state = _object(data[self.state_path])
            self.head, self.epoch = state.get("head", 0), state.get("epoch", "")
            if data[self.state_path] is None:
                self._break()  # its numbers come again
        before: dict[str, Record] = {}
        gone: dict[str, None] = {}
        put: list[Held] = []
        for path, content in data.items():
            self.bad.pop(path, None)
            if content is None and path in self.paths:
                gone[self.paths[path]] = None
        for id, written in (entry.note or {}).get("records", {}).items():
            if written is None:
                gone[id] = None
            else:
                put.append(Held.from_dict(written))
        for held in put:
            gone.pop(held.record.id, None)
        were_pending = len(self.pending)
        for id in (*gone, *(held.record.id for held in put)):
            self.pending.pop(id, None)
            if id in self.held:
                before[id] = self.held[id].record
        for id in gone:
            self.drop(id)
        for held in put:
            self.put(held)
        if len(self.pending) != were_pending:
            self._foresee()
        self.dirty += len(put) + len(gone)
        records = tuple(held.record for held in put if before.get(held.record.id) != held.record)
        self.log.append(Commit(self.scope, self.head, records, tuple(id for id in gone if id in before)))

    # The files.

    def sweep(self, root: Path, journal: Journal | None, undone: Mapping[str, bytes | None]) -> Sweep:
        """Compare the state with the files; changes nothing but what is known of them.

        Args:
            journal: whose commits may not have reached the files yet; None under the lock, when all have.
            undone: what files hold that somebody else's unfinished commit has changed; None for no file.
        """
        ahead, in_flight = ({}, set[str]()) if journal is None else (journal.ahead(), journal.in_flight())
        files: dict[str, Signature | str | None] = dict(find_files(root, self.folder))
        for path in (*undone, *(path for path, exists in ahead.items() if exists)):
            if path.endswith(".md") and place_of(path, self.folder) is not None:
                files.setdefault(path, None)
        pending = {held.path: held for held in self.pending.values() if held is not None}
        result, bad, vanished = Sweep(), dict[str, Bad](), list[str]()
        now = time.time_ns()
        for path, signature in self._unsettled(files):
            id = self.paths.get(path, "")
            known, edited = self.held.get(id), pending.get(path)
            last = known if edited is None else edited
            # Where commits may have been missed, the journal can hold a newer one that has not reached the file.
            in_journal = path in ahead and path not in undone
            if last is not None and last.signature == signature is not None and (self.exact or not in_journal):
                if edited is not None:
                    result.found[path] = edited
                continue
            if isinstance(signature, str):
                bad[path] = Bad(None, signature, id or None)
                continue
            if path in self.bad and self.bad[path].signature == signature is not None:
                bad[path] = self.bad[path]
                continue
            data = on_disk = atomic.read(root / path) if path not in undone else undone[path]
            if in_journal and journal is not None:
                written = journal.read(path)
                if known is None or not self.exact:
                    data = written
                elif id not in self.verified and data != written:
                    # Either the commit has not reached the file yet, or somebody changed it since.
                    if path not in in_flight:
                        result.unsure.add(path)
                    continue
            if data is None:
                vanished.append(path)
                continue
            is_there = path not in undone and data == on_disk
            sure = None if signature is None or not is_there or is_recent(signature, now) else signature
            mark = digest(data)
            if known is not None and mark == known.digest:
                self.held[id] = replace(known, signature=sure)
                self.signatures[path] = sure
                if is_there:
                    self.verified.add(id)
            elif edited is not None and mark == edited.digest:
                result.found[path] = replace(edited, signature=sure)
            else:
                try:
                    at = None if signature is None else signature[0] / 1e9
                    result.found[path] = replace(self.understand(path, data, sure), edited_at=at)
                except InputError as error:
                    bad[path] = Bad(sure, str(error), id or None)
        for path in vanished:
            del files[path]
        self._settle_doubles(result, bad, files)
        self.bad = bad
        kept = {entry.id for entry in bad.values()}
        found = {held.record.id for held in result.found.values()}
        if len(self.paths) < len(self.held) or not self.paths.keys() <= files.keys():
            result.gone = [
                id for id, held in self.held.items() if held.path not in files and id not in found and id not in kept
            ]
        return result

    def _unsettled(self, files: Mapping[str, Signature | str | None]) -> list[tuple[str, Signature | str | None]]:
        """Those of `files` that are not plainly as they are held: of many files, hardly any."""
        if self.pending or not self.exact:
            return list(files.items())
        known = self.signatures
        return [
            (path, signature) for path, signature in files.items() if signature is None or known.get(path) != signature
        ]

    def _settle_doubles(self, result: Sweep, bad: dict[str, Bad], files: Container[str]) -> None:
        """Of several files with one id the known one counts, or the first."""
        if not result.found:
            return
        owners: dict[str, str] = {
            id: held.path for id, held in self.held.items() if held.path in files and held.path not in bad
        }
        for path in sorted(result.found):
            held = result.found[path]
            first = owners.setdefault(held.record.id, path)
            if first != path:
                bad[path] = Bad(held.signature, f"id: {first} has the id {held.record.id!r} too; give it another")
                del result.found[path]

    def take(self, swept: Sweep, written: Set[str] = frozenset()) -> None:
        """Take over what a sweep found: what is no edit at once, the rest as pending.

        Args:
            written: files that commits have written which were followed since.
        """
        pending: dict[str, Held | None] = {}
        for path, held in swept.found.items():
            id = held.record.id
            known = self.held.get(id)
            if path in written or (known is not None and known.path in written):
                continue
            moved = known is not None and known.digest == held.digest
            if moved or (not self.exact and (held.own or known is None)):
                record = known.record if known is not None and moved else held.record
                self.put(replace(held, record=record))
                self.dirty += 1
            else:
                pending[id] = held
        for id in swept.gone:
            if id not in self.held or self.held[id].path in written:
                continue
            if self.exact:
                pending[id] = None
            else:
                self.drop(id)
                self.dirty += 1
        if not self.exact:
            self.sort()
            self.exact = True
        if pending != self.pending:
            self.pending = pending
            self._foresee()
        self.unsure = not swept.unsure <= written
        self.swept = time.monotonic()

    def doubt(self) -> None:
        """Commits may have been missed, so whatever was taken for an edit may be one of them."""
        self.exact = False
        self._break()
        self.pending = {}
        self._foresee()

    def _break(self) -> None:
        self.breaks += 1
        self.log.clear()

    def _foresee(self) -> None:
        """Work out anew what readers are shown of `pending`."""
        taken, kept = taken_up(self.pending, self.held, self.tip, time.time())
        birth = max(self.last_birth + 1, time.time_ns() // 1000)
        self.preview = {id: Held(record, birth + number, "", "") for number, (id, record) in enumerate(kept.items())}
        self.preview |= taken
        self.shown += 1


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        found = None if data is None else json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_edit(edit: object) -> bool:
    if not isinstance(edit, dict) or not {"digest", "birth", "record"} <= edit.keys():
        return False
    try:
        Record.from_dict(edit["record"])
    except (InputError, TypeError):
        return False
    return True
