"""Stores with one fault each."""

import json
import os
import threading
from contextlib import contextmanager, suppress

from tests.core.testing.log_storage import LogStorage, LogTransaction


class AcknowledgesBeforeWriting(LogStorage):
    """Keeps each commit in memory until the next one, like a write buffer."""

    pending = None

    def append(self, *commit):
        if self.pending:
            super().append(*self.pending)
        self.pending = commit

    def close(self):
        if self.pending and not self._closed:
            super().append(*self.pending)
        super().close()


class NeverSyncs(LogStorage):
    def sync(self, fd):
        pass


class NeverSyncsTheFolder(LogStorage):
    def sync_folder(self):
        pass


class SyncsBeforeWriting(LogStorage):
    def write(self, fd, data):
        os.fsync(fd)
        super().write(fd, data)

    def sync(self, fd):
        pass


class WritesACommitInParts(LogStorage):
    """Each record is a line of its own, so a crash can keep the first and lose the second."""

    def append(self, scope, head, puts, deletes):
        for put in puts:
            super().append(scope, head, [put], ())
        super().append(scope, head, (), deletes)


class ForgetsTheChecksum(LogStorage):
    def replayed(self, content):
        held, sound = {}, 0
        for line in content.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            self.replay(json.loads(line[9:-1]), held)
            sound += len(line)
        return held, sound


class KeepsTheTornTail(LogStorage):
    """Appends after the torn line of a crash, so the next commit is glued to it."""

    def append(self, scope, head, puts, deletes):
        with self.opened(self.path, os.O_APPEND) as fd:
            self.write(fd, self.entry(scope, head, puts, deletes))
            self.sync(fd)
        self.sync_folder()


class RewritesInPlace(LogStorage):
    def rewrite(self, held):
        with self.opened(self.path, os.O_TRUNC) as fd:
            for scope, (head, records) in held.items():
                self.write(fd, self.entry(scope, head, records.values(), ()))
            self.sync(fd)


class RenamesBeforeSyncing(LogStorage):
    def rewrite(self, held):
        temporary = self.folder / "log.new"
        with self.opened(temporary, os.O_TRUNC) as fd:
            for scope, (head, records) in held.items():
                self.write(fd, self.entry(scope, head, records.values(), ()))
        os.replace(temporary, self.path)
        self.sync_folder()


class WritesOnlyOnce(LogStorage):
    """Takes a short write for a whole one."""

    def write(self, fd, data):
        os.write(fd, data)


class HidesErrors(LogStorage):
    """Says that all went well, whatever the disk says."""

    def append(self, *commit):
        with suppress(OSError):
            super().append(*commit)


class LeavesAnErrorOfTheSystem(LogStorage):
    def _check_open(self):
        super()._check_open()
        os.close(os.open(self.folder / "probe", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))


class LosesUpdates(LogStorage):
    """Ignores which head an update was computed from."""

    def commit(self, scope, changes, expect_head=None):
        return super().commit(scope, changes)


class LocksNothing(LogStorage):
    """Two writers at a time read the same head, and then both append."""

    def __init__(self, folder):
        super().__init__(folder)
        self.pair = threading.Barrier(2, timeout=1)

    @contextmanager
    def transaction(self, scope):
        transaction = LogTransaction(self, scope, *self.contents(scope))
        with suppress(threading.BrokenBarrierError):
            self.pair.wait()
        yield transaction


class MatchesScopesByPrefix(LogStorage):
    def contents(self, scope):
        head, records = super().contents(scope)
        for other, (_, more) in self.read()[0].items():
            if other.user.startswith(scope.user) and other.agent == scope.agent:
                records = more | records
        return head, records


class IgnoresCase(LogStorage):
    def entry(self, scope, head, puts, deletes):
        return super().entry(type(scope)(scope.user.lower(), scope.agent), head, puts, deletes)

    def contents(self, scope):
        return super().contents(type(scope)(scope.user.lower(), scope.agent))


class CountsHeadsPerHandle(LogStorage):
    own = 0

    def head(self, scope):
        return self.own

    def append(self, *commit):
        super().append(*commit)
        self.own += 1


class NeverLooksAgain(LogStorage):
    """Reads the file once, so the commits of other handles stay unseen."""

    first = None

    def read(self):
        self._check_open()
        if self.first is None or self.lock.locked():
            self.first = super().read()
        return self.first


class ScansById(LogStorage):
    def scan(self, scope, kind=None):
        return iter(sorted(super().scan(scope, kind), key=lambda record: record.id))


class ChangesNewlines(LogStorage):
    def replay(self, entry, held):
        for data in entry["puts"]:
            data["text"] = data["text"].replace("\r\n", "\n")
        super().replay(entry, held)


class RoundsTimes(LogStorage):
    def replay(self, entry, held):
        for data in entry["puts"]:
            data["valid_from"] = round(data["valid_from"], 3)
        super().replay(entry, held)


class KeepsWhatIsErased(LogStorage):
    def erase(self, scope):
        with self.locked():
            self.append(scope, 0, [], list(self.contents(scope)[1]))


class NeverCompacts(LogStorage):
    def compact(self):
        return 0


class CountsDeletedRevisions(LogStorage):
    """Remembers the highest number a chain ever had."""

    def __init__(self, folder):
        super().__init__(folder)
        self.highest = {}

    @contextmanager
    def transaction(self, scope):
        with super().transaction(scope) as transaction:
            tip = transaction.tip
            transaction.tip = lambda chain: max(self.highest.get(chain, 0), tip(chain))
            yield transaction

    def append(self, scope, head, puts, deletes):
        super().append(scope, head, puts, deletes)
        for put in puts:
            self.highest[put.chain] = max(self.highest.get(put.chain, 0), put.revision)


class AppliesWhatWasRefused(LogStorage):
    """Writes the changes one by one, and stops at the first that is refused."""

    def commit(self, scope, changes, expect_head=None):
        done = []
        for change in changes:
            commit = super().commit(scope, [change], expect_head)
            done.extend(commit.records)
        return type(commit)(scope, commit.head, tuple(done))


class ForgetsToUpdateColumns(LogStorage):
    first = None

    def columns(self, scope):
        self.first = self.first or super().columns(scope)
        return self.first


class StaysOpen(LogStorage):
    def close(self):
        pass


class TakesAnyPlan(LogStorage):
    @contextmanager
    def transaction(self, scope):
        with super().transaction(scope) as transaction:
            transaction.apply = lambda plan: self.append(scope, plan.head, [put.record for put in plan.puts], ())
            yield transaction


class LetsOthersRead(LogStorage):
    def sync(self, fd):
        super().sync(fd)
        os.fchmod(fd, 0o644)
