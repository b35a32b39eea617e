"""A small store on disk for the tests of the kit: one file, one checked line a commit. Correct, and slow."""

import json
import os
import threading
import zlib
from contextlib import contextmanager
from pathlib import Path

from nanomem_core.fileio.atomic import disk_errors
from nanomem_core.fileio.locks import Lock
from nanomem_core.interfaces import Storage
from nanomem_core.records import Record, Scope


class LogStorage(Storage):
    name = "log"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "log"
        self.cached = None
        self.lock = threading.Lock()

    def scopes(self):
        return [scope for scope, (_, records) in self.read()[0].items() if records]

    def head(self, scope):
        return self.contents(scope)[0]

    def get(self, scope, id):
        return self.contents(scope)[1].get(id)

    def scan(self, scope, kind=None):
        records = self.contents(scope)[1].values()
        return (record for record in records if kind is None or record.kind == kind)

    def erase(self, scope):
        with self.locked():
            self.rewrite({other: held for other, held in self.read()[0].items() if other != scope})

    def compact(self):
        with self.locked():
            before = self.path.stat().st_size if self.path.exists() else 0
            self.rewrite(self.read()[0])
            return before - self.path.stat().st_size

    def epoch(self, scope):
        self.read()
        return self.cached and self.cached[0]

    def close(self):
        self._closed = True

    @contextmanager
    def transaction(self, scope):
        with self.locked():
            yield LogTransaction(self, scope, *self.contents(scope))

    @contextmanager
    def locked(self):
        self._check_open()
        with self.lock, disk_errors("the log could not be used"), Lock(self.folder / "lock"):
            yield

    def contents(self, scope):
        return self.read()[0].get(scope, (0, {}))

    def read(self):
        """What each scope holds, and how many bytes of the file are sound."""
        self._check_open()
        with disk_errors("the log could not be used"):
            try:
                info = self.path.stat()
            except FileNotFoundError:
                return {}, 0
            stamp = (info.st_ino, info.st_size, info.st_mtime_ns)
            if self.cached is None or self.cached[0] != stamp:
                self.cached = (stamp, self.replayed(self.path.read_bytes()))
            return self.cached[1]

    def replayed(self, content):
        held, sound = {}, 0
        for line in content.splitlines(keepends=True):
            if not line.endswith(b"\n") or line[:9] != b"%08x " % zlib.crc32(line[9:-1]):
                break
            self.replay(json.loads(line[9:-1]), held)
            sound += len(line)
        return held, sound

    def replay(self, entry, held):
        scope = Scope(*entry["scope"])
        records = dict(held.get(scope, (0, {}))[1])
        for id in entry["deletes"]:
            del records[id]
        for data in entry["puts"]:
            records[data["id"]] = Record.from_dict(data)
        held[scope] = (entry["head"], records)

    def append(self, scope, head, puts, deletes):
        _, sound = self.read()
        created = not self.path.exists()
        with self.opened(self.path) as fd:
            os.ftruncate(fd, sound)
            os.lseek(fd, sound, os.SEEK_SET)
            self.write(fd, self.entry(scope, head, puts, deletes))
            self.sync(fd)
        if created:
            self.sync_folder()

    def rewrite(self, held):
        temporary = self.folder / "log.new"
        with self.opened(temporary, os.O_TRUNC) as fd:
            for scope, (head, records) in held.items():
                self.write(fd, self.entry(scope, head, records.values(), ()))
            self.sync(fd)
        os.replace(temporary, self.path)
        self.sync_folder()

    def entry(self, scope, head, puts, deletes):
        data = {"scope": [scope.user, scope.agent], "head": head, "deletes": list(deletes)}
        body = json.dumps(data | {"puts": [record.to_dict() for record in puts]}).encode()
        return b"%08x " % zlib.crc32(body) + body + b"\n"

    def write(self, fd, data):
        while data:
            data = data[os.write(fd, data) :]

    def sync(self, fd):
        os.fsync(fd)

    def sync_folder(self):
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextmanager
    def opened(self, path, flags=0):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)


class LogTransaction:
    def __init__(self, storage, scope, head, records):
        self.storage, self.scope, self.head, self.records = storage, scope, head, records

    def get(self, id):
        return self.records.get(id)

    def tip(self, chain):
        return max((r.revision for r in self.records.values() if r.chain == chain), default=0)

    def apply(self, plan):
        plan.check_scope(self.scope)
        self.storage.append(self.scope, plan.head, [put.record for put in plan.puts], plan.deletes)
