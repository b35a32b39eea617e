"""One scope in memory: its records as its files have them, followed while others write."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from nanomem_core.changes import Put
from nanomem_core.errors import CorruptionError
from nanomem_core.fileio import atomic
from nanomem_core.fileio.journal import Append, Entry, Journal, Remove, Replace, Write
from nanomem_core.records import KINDS, Kind, Record, Scope

from .datafile import Bad, DataFile, Signature, elements, id_in, signature
from .layout import FILES, Layout, migrated, quarantine
from .lines import Line, encode

__all__ = ["ScopeState"]


class ScopeState:
    """The records of a scope. Safe for threads by `mutex`; what writes is called under the scope's lock.

    Args:
        cache_ttl: seconds after which the files are read again though `os.stat` shows no change; None for never.

    Attributes:
        edits: how often files were found changed by another program.
    """

    def __init__(self, layout: Layout, scope: Scope, cache_ttl: float | None = None) -> None:
        self.layout = layout
        self.scope = scope
        self.mutex = threading.RLock()
        self.journal = Journal(layout.folder(scope), layout.root)
        self.files = {kind: DataFile(layout.data(scope, kind), kind) for kind in FILES}
        self.edits = 0
        self._older = {path: kind for kind in FILES for path in layout.older(scope, kind)}
        self._older_seen: dict[str, Signature | None] = {}
        self._pending: dict[str, bytes] = {}
        self._removed = False
        self._tips: dict[str, int] | None = None
        self._places = 0
        self._cache_ttl = cache_ttl
        self._read_at = 0.0

    # Reading.

    @property
    def head(self) -> int:
        return self.journal.head

    @property
    def unfinished(self) -> bool:
        """True if older files wait for their records to be taken over."""
        return bool(self._pending)

    def find(self, id: str) -> Line | None:
        return next((line for file in self.files.values() if (line := file.lines.get(id)) is not None), None)

    def lines(self, kind: str | None = None) -> list[Line]:
        """The lines, of one kind or all, in the order in which their ids were first written."""
        files = [file for file in self.files.values() if kind is None or file.kind == kind]
        found = list(itertools.chain.from_iterable(file.lines.values() for file in files))
        found.sort(key=lambda line: line.place)
        return found

    def count(self) -> int:
        return sum(len(file.lines) for file in self.files.values())

    def bad(self) -> list[Bad]:
        return [bad for file in self.files.values() for bad in file.bad]

    def tip(self, chain: str) -> int:
        """Highest revision in a chain, 0 for none."""
        if self._tips is None:
            self._tips = {}
            for file in self.files.values():
                for line in file.lines.values():
                    self._raise_tip(line.record)
        return self._tips.get(chain, 0)

    def _raise_tip(self, record: Record) -> None:
        chain = record.chain
        if chain is not None and self._tips is not None:
            self._tips[chain] = max(record.revision, self._tips.get(chain, 0))

    def refresh(self, follow: Callable[[], list[Entry] | None] | None = None) -> None:
        """Take over what others wrote: commits from the journal, and the files that `os.stat` shows to be changed.

        Raises:
            StorageError: the journal or a file can't be read.
        """
        entries = (follow or self.journal.follow)()
        stale = self._cache_ttl is not None and time.monotonic() - self._read_at > self._cache_ttl
        if entries is None or stale:
            self._load(self._paths(), edited=entries is not None)
            return
        for entry in entries:
            self._apply(entry.writes)
        changed = {kind for kind, file in self.files.items() if self._is_changed(file)}
        changed |= {kind for path, kind in self._older.items() if self._signature(path) != self._older_seen.get(path)}
        if changed:
            self._load(self._paths(changed), edited=True)

    def _paths(self, kinds: Container[Kind] = KINDS) -> list[str]:
        older = [path for path, kind in self._older.items() if kind in kinds]
        return [*(file.path for kind, file in self.files.items() if kind in kinds), *older]

    def _is_changed(self, file: DataFile) -> bool:
        now = self._signature(file.path)
        if now == file.seen:
            return False
        if file.seen is None and (0 if now is None else now[1]) == file.size:
            # We, or the journal, wrote it since.
            file.seen = now
            return False
        return True

    def _signature(self, path: str) -> Signature | None:
        return signature(os.path.join(self.layout.root, path))

    def _load(self, paths: Sequence[str], *, edited: bool) -> None:
        """Read those of the files anew, and all that the journal says to be ahead of its files."""
        seen = {path: self._signature(path) for path in paths}
        at = (self.journal.origin, self.journal.size)
        with atomic.disk_errors(f"{self.layout.root}: the files of {self.scope} can't be read"):
            contents = self.journal.load(lambda: {*paths, *self.journal.ahead()})
        # What came by the journal meanwhile is no edit.
        edited = edited and at == (self.journal.origin, self.journal.size)
        wanted = {*paths, *self.journal.ahead()}
        files = [file for file in self.files.values() if file.path in wanted]
        before = {id: line for file in files for id, line in file.lines.items()}
        for file, known in [(file, file.clear()) for file in files]:
            file.read(contents.get(file.path, b""), self.scope, known, self._taken(file))
            file.seen = seen.get(file.path)
        for path in self._older:
            if path in seen:
                self._older_seen[path] = seen[path]
                self._pending.pop(path, None)
                if path in contents:
                    self._pending[path] = contents[path]
        for path in list(self._pending):
            if self.files[self._older[path]] in files:
                self._take_over(path)
        self._place()
        self._tips = None
        self._read_at = time.monotonic()
        if edited:
            after = {id: line for file in files for id, line in file.lines.items()}
            self.edits += before != after
            self._removed = self._removed or any(self.find(id) is None for id in before)

    def _taken(self, file: DataFile) -> set[str]:
        return {id for other in self.files.values() if other is not file for id in other.lines}

    def _take_over(self, path: str) -> None:
        """Add the records of an older file to those of ours, which go first; forget it if it is another user's."""
        kind = self._older[path]
        content, target = self._pending[path], self.files[kind]
        other = DataFile(path, kind)
        if path.endswith(".json"):
            for number, item in enumerate(elements(content), 1):
                raw = (
                    content
                    if isinstance(item, ValueError)
                    else json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass")
                )
                other.take(item, raw, self.scope, Bad(path, number, 0, raw, ""), ())
        else:
            other.read(content, self.scope, {})
        if not other.lines and any("belongs to" in bad.reason for bad in other.bad):
            del self._pending[path]
            return
        target.tidy = False
        target.bad += other.bad
        for id, line in other.lines.items():
            if self.find(id) is None:
                target.lines[id] = Line(line.raw, line.record, 0, False)

    def _place(self) -> None:
        """Number the lines that tell no place, after all that do, in the order of the files."""
        lines = [line for file in self.files.values() for line in file.lines.values()]
        self._places = max((line.place for line in lines), default=0)
        for file in self.files.values():
            for id, line in file.lines.items():
                if not line.place:
                    self._places += 1
                    file.lines[id] = Line(line.raw, line.record, self._places, False)

    # Taking over commits.

    def _apply(self, writes: Sequence[Write], fresh: Iterable[Line] = ()) -> None:
        """Bring the files from before a commit to after it; `fresh` are lines that need not be parsed."""
        made = {line.raw: line for line in fresh}
        by_path = {file.path: file for file in self.files.values()}
        changed = [(by_path[write.path], write) for write in writes if write.path in by_path]
        # An id that moves leaves its old file before it is found in the new one.
        known = {file.path: file.clear() for file, write in changed if not isinstance(write, Append)}
        for file, write in changed:
            if isinstance(write, Append):
                if write.offset != file.size:
                    raise CorruptionError(
                        str(self.layout.absolute(file.path)), file.size, f"a commit was written at {write.offset}"
                    )
                before = len(file.lines)
                file.read(write.data, self.scope, made)
                for line in itertools.islice(reversed(file.lines.values()), len(file.lines) - before):
                    self._raise_tip(line.record)
                    self._places = max(self._places, line.place)
            elif isinstance(write, Replace):
                file.read(write.data, self.scope, known[file.path] | made)
                self._places = max(self._places, *(line.place for line in file.lines.values()), 0)
            file.seen = None
        if known:
            self._tips = None
        for write in writes:
            if isinstance(write, Remove) and write.path in self._older:
                self._pending.pop(write.path, None)
                self._older_seen[write.path] = None

    # Writing; all under the scope's lock.

    def recover(self) -> None:
        """Finish what others began."""
        self.refresh(self.journal.recover)
        if not self.head and self.journal.entries:
            self._forget()

    def absorb(self) -> None:
        """Make a commit of what other programs did to the files; bytes that are no record go to the quarantine."""
        untidy = [file for file in self.files.values() if not file.tidy]
        if not untidy and not self._removed:
            return
        writes: list[Write] = []
        fresh: list[Line] = []
        changed = self._removed or bool(self._pending)
        for file in untidy:
            changed = changed or not all(line.sound for line in file.lines.values())
            writes += self._rewritten(file, {}, (), fresh)
            if file.bad:
                writes.append(self._set_aside(file))
        for path, content in self._pending.items():
            writes += [Replace(self._free(migrated(path)), content), Remove(path)]
        self._commit(self.head + changed, writes, fresh)
        self._removed = False

    def commit(self, head: int, puts: Sequence[Put], deletes: Sequence[str]) -> None:
        """Make a plan durable; after `absorb`, so that all files are tidy."""
        gone: dict[Kind, set[str]] = {}
        changed: dict[Kind, dict[str, Line]] = {}
        place = self._places
        for id in deletes:
            old = self.find(id)
            if old is not None:
                gone.setdefault(old.record.kind, set()).add(id)
        for put in puts:
            record, old = put.record, self.find(put.record.id)
            base = None
            if old is None:
                place += 1
            elif old.record.kind == record.kind:
                base = json.loads(old.raw)
            else:
                gone.setdefault(old.record.kind, set()).add(record.id)
            line = encode(record, self.scope, place if old is None else old.place, base)
            changed.setdefault(record.kind, {})[record.id] = line
        writes: list[Write] = []
        fresh: list[Line] = [line for lines in changed.values() for line in lines.values()]
        for kind, file in self.files.items():
            lines, dropped = changed.get(kind, {}), gone.get(kind, set())
            replaced = dropped | (lines.keys() & file.lines.keys())
            if replaced:
                writes += self._rewritten(file, lines, dropped, fresh)
                writes += self._purged_quarantine(file, replaced)
            elif lines:
                data = b"".join(line.raw + b"\n" for line in lines.values())
                writes.append(Append(file.path, file.size, data))
        self._commit(head, writes, fresh)

    def _commit(self, head: int, writes: Sequence[Write], fresh: Iterable[Line]) -> None:
        self.journal.commit(head, writes)
        self._apply(writes, fresh)
        for file in self.files.values():
            self._is_changed(file)

    def _rewritten(
        self, file: DataFile, lines: dict[str, Line], dropped: Iterable[str], fresh: list[Line]
    ) -> Iterator[Write]:
        """Write the whole file: what is sound as it is, the rest in our form, and `lines` in place of their elders."""
        kept = {id: line for id, line in file.lines.items() if id not in dropped}
        for id, line in kept.items():
            if not line.sound:
                base = json.loads(line.raw)
                kept[id] = encode(line.record, self.scope, line.place, base if isinstance(base, dict) else None)
                fresh.append(kept[id])
        kept |= lines
        if kept:
            yield Replace(file.path, b"".join(line.raw + b"\n" for line in kept.values()))
        elif self._signature(file.path) is not None:
            yield Remove(file.path)

    # What can't be read.

    def _set_aside(self, file: DataFile) -> Write:
        path = quarantine(file.path)
        held = self._quarantined(file)
        for bad in file.bad:
            piece = {"file": bad.path, "line": bad.line, "reason": bad.reason, "id": id_in(bad.raw)}
            held.append(piece | {"bytes": bad.raw.decode("latin-1")})
        return Replace(path, _packed(held))

    def _quarantined(self, file: DataFile) -> list[dict[str, object]]:
        content = atomic.read(self.layout.absolute(quarantine(file.path))) or b""
        return [json.loads(line) for line in content.splitlines() if line.strip()]

    def _purged_quarantine(self, file: DataFile, ids: set[str]) -> Iterator[Write]:
        """Drop what is, or could be, of a record that is deleted or written anew."""
        path = quarantine(file.path)
        if self._signature(path) is None:
            return
        held = self._quarantined(file)
        kept = [piece for piece in held if piece["id"] is not None and piece["id"] not in ids]
        if not kept:
            yield Remove(path)
        elif len(kept) < len(held):
            yield Replace(path, _packed(kept))

    def _free(self, path: str) -> str:
        names = itertools.chain([path], (f"{path}-{number}" for number in itertools.count(2)))
        return next(name for name in names if self._signature(name) is None)

    # The end.

    def migrated_files(self) -> list[str]:
        """What is left of older files after their records were taken over."""
        found = []
        for path in self._older:
            folder, _, name = migrated(path).rpartition("/")
            with contextlib.suppress(FileNotFoundError):
                names = os.listdir(os.path.join(self.layout.root, folder))
                found += [f"{folder}/{each}" for each in names if each == name or each.startswith(name + "-")]
        return found

    def settle(self) -> int:
        """Empty the journal, and remove what was taken over from older files; returns the bytes regained."""
        paths = self.migrated_files()
        sizes = [signature(self.layout.absolute(path)) for path in paths] + [signature(self.journal.path)]
        if paths:
            self.journal.commit(self.head, [Remove(path) for path in paths])
        self.journal.settle()
        atomic.remove_leftovers(self.journal.path, *(self.layout.absolute(path) for path in self._paths()))
        after = signature(self.journal.path)
        return sum(found[1] for found in sizes if found is not None) - (0 if after is None else after[1])

    def erase(self) -> None:
        """Remove every file of the scope."""
        paths = [*self._paths(), *self.migrated_files(), *(quarantine(file.path) for file in self.files.values())]
        targets = {path: self.layout.absolute(path) for path in paths}
        present = [path for path, target in targets.items() if signature(target) is not None]
        # A file that bears an older name of this scope may be another user's.
        present = [path for path in present if path not in self._older or path in self._pending]
        if present or self.journal.origin:
            self._commit(0, [Remove(path) for path in present], ())
            atomic.remove_leftovers(self.journal.path, *targets.values())
            self._forget()
        self._load(self._paths(), edited=False)

    def _forget(self) -> None:
        """Remove the journal of a scope that was erased."""
        self.journal.settle()
        folder = os.path.dirname(self.journal.path)
        atomic.remove(self.journal.path)
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        self.journal.follow()


def _packed(pieces: Iterable[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(piece, ensure_ascii=False).encode() + b"\n" for piece in pieces)
