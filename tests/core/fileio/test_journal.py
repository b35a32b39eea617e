"""A journal makes one commit of several files durable, whatever happens on the way."""

from __future__ import annotations

import errno
import hashlib
import importlib
import itertools
import json
import multiprocessing
import os
import random
import struct
import sys
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanomem_core.errors import CorruptionError, FormatError, InputError, StorageError
from nanomem_core.fileio import boots
from nanomem_core.fileio.journal import Append, Journal, Remove, Replace
from nanomem_core.fileio.journal_format import ENTRY, Header
from nanomem_core.fileio.locks import Lock
from nanomem_core.fileio.writes import digest, expected
from nanomem_core.testing import LOSSES, DiskRecorder, Fault
from nanomem_core.testing.samples import full_run

FILES = ("a/log", "a/state", "b/deep/er")
LONG = b"".join(b"line %d of what is long\n" % i for i in range(80))


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def opened(root, **options):
    return Journal(root / "j", root, **options)


def files(journal):
    return journal.load(lambda: FILES)


def on_disk(root):
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {path: data for path, data in found.items() if path in FILES}


def start_anew(monkeypatch):
    """Let the system look as if it was started anew, so that power may have been lost."""
    monkeypatch.setattr(boots, "boot_id", lambda: b"the boot after..")


def commit(journal, *writes):
    journal.recover()
    journal.commit(journal.head + 1, writes, {"number": journal.head + 1})


SCRIPT = (
    (Append("a/log", 0, b"first\n"), Replace("a/state", b"one")),
    (Append("a/log", 6, LONG),),
    (Replace("a/state", LONG[::-1]), Replace("b/deep/er", LONG)),
    (Append("b/deep/er", len(LONG), b"and more\n"), Remove("a/log")),
    (Append("a/log", 0, b"anew\n"), Replace("a/state", b"two")),
    (Remove("b/deep/er"), Append("a/log", 5, LONG)),
    (Replace("a/log", b"short"), Replace("b/deep/er", b"back")),
)


def states():
    """What the files hold after each commit of the script."""
    held: dict[str, bytes] = {}
    found = [dict(held)]
    for writes in SCRIPT:
        for write in writes:
            match write:
                case Replace(path, data):
                    held[path] = data
                case Append(path, offset, data):
                    held[path] = held.get(path, b"")[:offset] + data
                case Remove(path):
                    del held[path]
        found.append(dict(held))
    return found


STATES = states()


def play(root, journal=None, settle_after=()):
    journal = journal or opened(root)
    for number, writes in enumerate(SCRIPT, 1):
        commit(journal, *writes)
        yield number
        if number in settle_after:
            journal.settle()


def assert_recovers(root, allowed):
    """A reader sees one of the `allowed` states, a writer makes the files so, and the next commit works."""
    reader = opened(root)
    seen = files(reader)
    assert (reader.head, seen) in [(head, STATES[head]) for head in allowed]
    writer = opened(root)
    writer.recover()
    assert writer.head == reader.head
    assert on_disk(root) == seen
    commit(writer, Replace("a/state", b"after"))
    assert on_disk(root) == files(opened(root)) == seen | {"a/state": b"after"}


def test_a_commit_changes_all_its_files(root):
    journal = opened(root)
    for number in play(root, journal):
        assert on_disk(root) == STATES[number] == files(opened(root))
        assert journal.head == number
    assert [entry.note for entry in journal.entries] == [{"number": n} for n in range(1, len(SCRIPT) + 1)]


def test_a_commit_costs_one_fsync_once_the_files_are_known(root):
    journal = opened(root)
    commit(journal, Append("a/log", 0, b"0"), Replace("a/state", b""))
    with DiskRecorder(root) as disk:
        for number in range(1, 50):
            commit(journal, Append("a/log", number, b"x"), Replace("a/state", b"y" * number))
    assert sum(op.kind in ("sync", "syncdir") for op in disk.operations) == 49


def test_files_and_folders_are_for_their_owner_only(root):
    list(play(root))
    modes = {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_dir()} == {0o700}


# Crashes.


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("settle_after", [(), (1, 4, 6)], ids=["one generation", "several"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_crash_leaves_whole_commits(root, tmp_path, loss, settle_after):
    moments = []
    with DiskRecorder(root) as disk:
        moments.extend(len(disk.operations) for _ in play(root, settle_after=settle_after))
    assert_every_crash_leaves_whole_commits(disk, moments, tmp_path, loss)


def assert_every_crash_leaves_whole_commits(disk, moments, tmp_path, loss):
    """`moments` are the numbers of operations after which each commit was done."""
    numbers = itertools.count()
    tried = set()
    for length in range(len(disk.operations) + 1):
        done = sum(moment <= length for moment in moments)
        for seed in range((12 if full_run() else 3) if loss in ("cut", "sectors") else 1):
            state = disk.state(length, loss, seed)
            if (done, state.fingerprint()) in tried:
                continue
            tried.add((done, state.fingerprint()))
            folder = tmp_path / f"{next(numbers)}"
            state.write_to(folder)
            try:
                assert_recovers(folder, range(done, min(done + 2, len(STATES))))
            except BaseException as error:
                error.add_note(
                    f"after {length} operations, seed {seed}; the last: {disk.operations[length - 1]!r:.200}"
                )
                raise


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("settle_after", [(), (1, 4, 5)], ids=["one generation", "several"])
def test_a_crash_during_recovery_does_no_harm(root, tmp_path, settle_after):
    with DiskRecorder(root) as disk:
        for _ in play(root, settle_after=settle_after):
            before = len(disk.operations)
    chance = random.Random(7)
    numbers = itertools.count()
    for length in range(before if full_run() else before - 12, before + 1):
        for loss in ("all", "zeros", "sectors", "cut"):
            first = tmp_path / f"{next(numbers)}"
            disk.state(length, loss, 1).write_to(first)
            allowed = {opened_head(first)}
            with DiskRecorder(first) as again:
                opened(first).recover()
                commit_nothing(first)
            for second in sorted(chance.sample(range(len(again.operations) + 1), min(6, len(again.operations) + 1))):
                for loss_again in ("torn", "all", "zeros", "sectors"):
                    folder = tmp_path / f"{next(numbers)}"
                    again.state(second, loss_again).write_to(folder)
                    assert_recovers(folder, allowed)


def opened_head(root):
    journal = opened(root)
    journal.follow()
    return journal.head


def commit_nothing(root):
    journal = opened(root)
    journal.recover()
    journal.settle()


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_failing_disk_tells_the_truth(root, tmp_path, code, lasting):
    with DiskRecorder(root) as disk:
        list(play(root, settle_after=(3,)))
    for at in range(len(disk.operations)):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        done, failed = 0, False
        try:
            with DiskRecorder(folder, Fault(at, code, lasting=lasting)):
                for number in play(folder, settle_after=(3,)):
                    done = number
                    assert files(opened(folder)) == STATES[done]
        except OSError as error:
            failed = True
            taken_back = "could not be taken back" not in str(error)
        # What was refused does not appear afterwards, unless the error says that it may.
        assert_recovers(folder, [done] if not failed or taken_back else [done, done + 1])


def test_short_writes_are_continued(root):
    with DiskRecorder(root, short_writes=True):
        list(play(root, settle_after=(4,)))
    assert on_disk(root) == STATES[-1]
    assert_recovers(root, [len(SCRIPT)])


def test_a_commit_stands_though_its_files_can_not_be_written(root, monkeypatch):
    journal = opened(root)
    commit(journal, Replace("a/state", b"old"))

    def replace(old, new):
        raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", replace)
        commit(journal, Replace("b/deep/er", b"new"), Replace("a/state", b"new"))
        assert files(opened(root)) == {"b/deep/er": b"new", "a/state": b"new"}
        for handle in (journal, opened(root)):
            with pytest.raises(StorageError, match=r"can't be finished.*the disk is full"):
                handle.recover()
    assert on_disk(root) == {"a/state": b"old"}
    journal.recover()
    assert on_disk(root) == {"b/deep/er": b"new", "a/state": b"new"}


def test_a_failed_fsync_is_not_believed_later(root, monkeypatch):
    journal = opened(root)
    commit(journal, Replace("a/state", b"kept"))
    real, broken = os.fsync, root / "a" / "state"

    def fsync(descriptor):
        if broken.exists() and os.path.samestat(os.fstat(descriptor), broken.stat()):
            raise OSError(errno.EIO, "the disk failed")
        real(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(OSError, match="the disk failed"):
        journal.settle()
    monkeypatch.setattr("os.fsync", real)
    inode = broken.stat().st_ino
    journal.settle()
    assert journal.entries == []
    assert broken.read_bytes() == b"kept"
    assert broken.stat().st_ino != inode


# Settling that begins without the lock.


@pytest.mark.parametrize("loss", LOSSES)
def test_a_crash_leaves_whole_commits_though_files_were_forced_to_disk_ahead(root, tmp_path, loss, monkeypatch):
    monkeypatch.setattr("nanomem_core.fileio.journal._FEW", 1)
    moments, journal, ahead = [], opened(root), None
    with DiskRecorder(root) as disk:
        for number in play(root, journal):
            moments.append(len(disk.operations))
            if number in (2, 5):
                ahead = opened(root).sync_ahead()
            if number in (4, 5):
                journal.settle(ahead)
    assert_every_crash_leaves_whole_commits(disk, moments, tmp_path, loss)


def test_what_was_forced_to_disk_ahead_is_not_forced_again_unless_it_was_written_since(root):
    journal = opened(root)
    commit(journal, *(Replace(f"a/{number}", b"old") for number in range(50)))
    for number in range(20):
        commit(journal, Replace("a/0", b"%d" % number))
    with DiskRecorder(root) as disk:
        ahead = opened(root).sync_ahead()
        assert {op.path for op in disk.operations if op.kind == "sync"} >= {f"a/{number}" for number in range(50)}
        commit(journal, Replace("a/1", b"new"))
        before = len(disk.operations)
        journal.settle(ahead)
    assert {op.path for op in disk.operations[before:] if op.kind == "sync"} & {"a/0", "a/1", "a/2"} == {"a/1"}
    assert journal.entries == []


def test_what_was_forced_to_disk_of_an_earlier_generation_counts_for_nothing(root):
    journal = opened(root)
    for number in range(20):
        commit(journal, Replace("a/state", b"%d" % number))
    ahead = opened(root).sync_ahead()
    journal.settle()
    commit(journal, Replace("a/state", b"last"))
    with DiskRecorder(root) as disk:
        journal.settle(ahead)
    assert "a/state" in {op.path for op in disk.operations if op.kind == "sync"}


def test_a_failed_fsync_ahead_is_not_believed_later(root, monkeypatch):
    journal = opened(root)
    for _ in range(10):
        commit(journal, Replace("a/state", b"kept"))
    real, broken = os.fsync, root / "a" / "state"

    def fsync(descriptor):
        if os.path.samestat(os.fstat(descriptor), broken.stat()):
            raise OSError(errno.EIO, "the disk failed")
        real(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    ahead = opened(root).sync_ahead()
    assert (ahead.entries, ahead.unsure) == (0, {"a/state"})
    monkeypatch.setattr("os.fsync", real)
    inode = broken.stat().st_ino
    journal.settle(ahead)
    assert broken.read_bytes() == b"kept"
    assert broken.stat().st_ino != inode


# What people and other programs do to the files.


def test_a_later_edit_is_left_alone(root):
    list(play(root))
    (root / "a/log").write_bytes(b"edited by hand")
    (root / "b/deep/er").write_bytes(b"back, and a line more")
    journal = opened(root)
    assert files(journal)["a/log"] == b"edited by hand"
    journal.recover()
    assert on_disk(root) == STATES[-1] | {"a/log": b"edited by hand", "b/deep/er": b"back, and a line more"}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (None, b"onetwo"),
        (b"", b"onetwo"),
        (b"onet", b"onetwo"),
        (b"\0\0\0", b"onetwo"),
        (b"on\0\0wo", b"onetwo"),
        (b"one", b"onetwo"),
        (b"old", b"onetwo"),
        (b"onetwo", b"onetwo"),
        (b"onetwo three", b"onetwo three"),
        (b"oneTWO", b"oneTWO"),
        (b"older", b"older"),
    ],
)
def test_only_what_a_crash_can_leave_is_written_again(found, wanted):
    history = [(Replace("f", b"one"), digest(b"old")), (Append("f", 3, b"two"), None)]
    assert expected(history, found) == wanted


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (b"base", b"base+more"),
        (b"base+\0\0", b"base+more"),
        (b"base+\0ore", b"base+more"),
        (b"base+more", b"base+more"),
        (b"base+more and", b"base+more and"),
        (b"base+m\0re and", b"base+more and"),
        (b"base-else", b"base-else"),
        (b"bas", b"bas"),
        (None, None),
    ],
)
def test_an_append_is_written_again_where_it_is_missing(found, wanted):
    assert expected([(Append("f", 4, b"+more"), None)], found) == wanted


def test_an_append_after_a_foreign_one_forces_that_to_disk_first(root, tmp_path):
    journal = opened(root)
    commit(journal, Append("a/log", 0, b"ours\n"))
    with DiskRecorder(root) as disk:
        descriptor = os.open(root / "a/log", os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, b"theirs\n")
        os.close(descriptor)
        commit(journal, Append("a/log", 12, b"ours again\n"))
    disk.state(len(disk.operations), "all").write_to(tmp_path / "after")
    assert files(opened(tmp_path / "after")) == {"a/log": b"ours\ntheirs\nours again\n"}


def test_an_append_cuts_what_stands_behind_its_offset(root):
    journal = opened(root)
    commit(journal, Append("a/log", 0, b"whole\ntorn"))
    commit(journal, Append("a/log", 6, b"next\n"))
    assert on_disk(root) == {"a/log": b"whole\nnext\n"}


def test_an_append_behind_the_end_is_refused(root):
    journal = opened(root)
    with pytest.raises(StorageError, match="expected 9 bytes; found 0"):
        commit(journal, Append("a/log", 9, b"x"))
    assert (journal.head, on_disk(root)) == (0, {})


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/out", "a//b", ".", "", "C:x", "a\\..\\b", "a\0"])
def test_no_path_leads_out_of_the_root(root, path):
    journal = opened(root)
    for write in (Replace(path, b"x"), Append(path, 0, b"x"), Remove(path)):
        with pytest.raises((StorageError, InputError)):
            commit(journal, write)
    assert [p.name for p in root.parent.iterdir()] == ["root"]
    assert journal.head == 0


@pytest.mark.skipif(os.name == "nt", reason="making links needs privileges")
def test_no_link_is_followed(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "state").write_bytes(b"theirs")
    (root / "a").symlink_to(outside)
    journal = opened(root)
    for write in (Replace("a/state", b"x"), Append("a/state", 0, b"x"), Remove("a/state")):
        with pytest.raises(StorageError, match="link"):
            commit(journal, write)
    assert (outside / "state").read_bytes() == b"theirs"


def test_a_path_is_written_once_a_commit(root):
    with pytest.raises(InputError, match="at most one"):
        commit(opened(root), Replace("a/log", b"1"), Remove("a/log"))


# Following.


def test_a_follower_gets_what_is_new(root):
    writer, reader = opened(root), opened(root)
    assert reader.follow() is None
    assert reader.follow() == []
    commit(writer, Replace("a/state", b"1"))
    # There was no journal, so everything may be new.
    assert reader.follow() is None
    files(reader)
    commit(writer, Replace("a/state", b"2"))
    commit(writer, Append("a/log", 0, b"3"))
    fresh = reader.follow()
    assert [(entry.head, entry.note) for entry in fresh] == [(2, {"number": 2}), (3, {"number": 3})]
    assert fresh[1].writes == (Append("a/log", 0, b"3"),)
    assert reader.follow() == []


def test_who_has_seen_all_goes_on_in_the_next_generation(root):
    writer, current, behind = opened(root), opened(root), opened(root)
    commit(writer, Replace("a/state", b"1"))
    files(behind)
    commit(writer, Replace("a/state", b"2"))
    files(current)
    origin = writer.origin
    writer.settle()
    commit(writer, Replace("a/state", b"3"))
    assert [entry.head for entry in current.follow()] == [3]
    assert behind.follow() is None
    assert (behind.head, behind.origin, current.origin) == (3, origin, origin)


def test_a_journal_that_was_removed_begins_at_zero(root):
    writer, reader = opened(root), opened(root)
    commit(writer, Replace("a/state", b"1"))
    files(reader)
    origin = reader.origin
    os.unlink(writer.path)
    assert reader.follow() is None
    assert (reader.head, reader.origin) == (0, "")
    again = opened(root)
    commit(again, Replace("a/state", b"2"))
    assert reader.follow() is None
    assert reader.head == 1
    assert reader.origin not in ("", origin)


def test_a_reader_sees_the_whole_commit_before_its_files_are_written(root, monkeypatch):
    writer, reader = opened(root), opened(root)
    commit(writer, Append("a/log", 0, b"1"), Replace("a/state", b"1"))
    monkeypatch.setattr(Journal, "_apply", lambda self, write: (_ for _ in ()).throw(OSError("killed")))
    commit(writer, Append("a/log", 1, b"2"), Replace("a/state", b"2"), Replace("b/deep/er", b"2"))
    assert on_disk(root) == {"a/log": b"1", "a/state": b"1"}
    assert reader.load(lambda: ["a/log"]) == {"a/log": b"12", "a/state": b"2", "b/deep/er": b"2"}
    assert reader.ahead() == {"a/log": True, "a/state": True, "b/deep/er": True}
    monkeypatch.undo()
    opened(root).recover()
    assert on_disk(root) == files(reader)


def test_a_file_that_somebody_removes_while_the_system_runs_does_not_come_back(root):
    commit(opened(root), Replace("a/state", b"1"), Replace("b/deep/er", b"1"))
    (root / "a/state").unlink()
    assert files(opened(root)) == {"b/deep/er": b"1"}
    assert opened(root).read("a/state") is None
    opened(root).recover()
    assert on_disk(root) == {"b/deep/er": b"1"}


def test_the_first_writer_after_a_boot_writes_what_is_missing_and_settles(root, monkeypatch):
    commit(opened(root), Replace("a/state", b"1"), Replace("b/deep/er", b"1"))
    (root / "a/state").unlink()
    (root / "b/deep/er").write_bytes(b"")
    start_anew(monkeypatch)
    reader = opened(root)
    assert files(reader) == files(reader) == {"a/state": b"1", "b/deep/er": b"1"}
    opened(root).recover()
    assert on_disk(root) == {"a/state": b"1", "b/deep/er": b"1"}
    assert os.path.getsize(reader.path) == Header.size
    (root / "a/state").unlink()
    opened(root).recover()
    assert on_disk(root) == files(reader) == {"b/deep/er": b"1"}


def test_where_the_system_does_not_tell_its_boots_each_first_call_looks_at_every_file(root, monkeypatch):
    monkeypatch.setattr(boots, "boot_id", lambda: boots.UNKNOWN)
    journal = opened(root)
    for number in (1, 2):
        commit(journal, Replace("a/state", b"%d" % number))
    for _ in range(2):
        (root / "a/state").write_bytes(b"")
        assert files(opened(root)) == {"a/state": b"2"}
        opened(root).recover()
        assert on_disk(root) == {"a/state": b"2"}
    assert os.path.getsize(journal.path) > Header.size


def test_the_boot_is_that_of_the_system():
    importlib.reload(boots)  # tests of losses of power put another one in its place
    assert (boots.boot_id() == boots.UNKNOWN) == (sys.platform != "linux")
    assert boots.boot_id() == boots.boot_id()
    assert len(boots.boot_id()) == 16


def test_what_the_journal_no_longer_holds_survives_a_crash_while_an_append_is_mended(root, tmp_path, monkeypatch):
    journal = opened(root)
    commit(journal, Append("a/log", 0, LONG))
    journal.settle()
    commit(journal, Append("a/log", len(LONG), LONG))
    hole = bytearray(LONG + LONG)
    hole[len(LONG) + 100 : len(LONG) + 600] = bytes(500)
    (root / "a/log").write_bytes(hole)
    start_anew(monkeypatch)
    with DiskRecorder(root) as disk:
        opened(root).recover()
    for length in range(len(disk.operations) + 1):
        for loss in LOSSES:
            folder = tmp_path / f"{length} {loss}"
            disk.state(length, loss).write_to(folder)
            opened(folder).recover()
            assert on_disk(folder) == {"a/log": LONG + LONG}


def test_a_file_that_somebody_deletes_meanwhile_stays_deleted(root):
    writer, reader = opened(root), opened(root)
    commit(writer, Replace("a/state", b"1"), Append("a/log", 0, b"1"))
    files(reader)
    commit(writer, Append("a/log", 1, b"2"))
    (root / "a/state").unlink()
    assert files(reader) == {"a/log": b"12"}
    commit(writer, Append("a/log", 2, b"3"))
    (root / "a/log").write_bytes(b"1")
    assert files(reader) == {"a/log": b"1"}


def test_an_entry_that_was_taken_back_is_forgotten_by_who_saw_it(root, monkeypatch):
    writer, reader = opened(root), opened(root)
    commit(writer, Replace("a/state", b"1"))
    files(reader)
    seen = []

    def fsync(descriptor):
        seen.extend(reader.follow())
        raise OSError(errno.EIO, "the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        with pytest.raises(StorageError, match="nothing was written"):
            commit(writer, Replace("a/state", b"X"))
    assert [entry.head for entry in seen] == [2]
    commit(writer, Replace("a/state", b"2"))
    assert reader.follow() is None
    assert files(reader) == {"a/state": b"2"}


def test_a_long_journal_is_settled_by_itself(root):
    journal = opened(root, max_entries=10)
    for number in range(35):
        commit(journal, Append("a/log", number, b"x"))
    assert len(journal.entries) < 10
    journal = opened(root, max_bytes=1000)
    journal.recover()
    commit(journal, Replace("a/state", LONG))
    assert journal.entries == []
    assert LONG not in open_bytes(journal.path)
    assert (journal.head, on_disk(root)) == (36, {"a/log": b"x" * 35, "a/state": LONG})


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def test_an_empty_journal_is_not_written_anew(root):
    journal = opened(root)
    journal.recover()
    journal.settle()
    assert not os.path.exists(journal.path)
    commit(journal, Replace("a/state", b"1"))
    journal.settle()
    inode = os.stat(journal.path).st_ino
    journal.settle()
    assert os.stat(journal.path).st_ino == inode


# Damage.


def test_a_torn_tail_is_cut_by_the_next_writer(root):
    journal = opened(root)
    commit(journal, Replace("a/state", b"1"))
    commit(journal, Replace("a/state", LONG))
    size = os.path.getsize(journal.path)
    os.truncate(journal.path, size - 10)
    (root / "a/state").write_bytes(b"1")
    again = opened(root)
    assert (files(again), again.head) == ({"a/state": b"1"}, 1)
    again.recover()
    assert os.path.getsize(journal.path) == again.size < size - 10
    commit(again, Replace("a/state", b"2"))
    assert opened_head(root) == 2


def test_damage_before_a_sound_entry_hides_only_itself(root):
    journal = opened(root)
    for number in range(3):
        commit(journal, Replace("a/state", b"%d" % number), Append("a/log", number, b"x"))
    first = len(journal.entries[0].writes)
    assert first == 2
    data = bytearray(open_bytes(journal.path))
    second = data.index(b"NMJE", Header.size + ENTRY.size)
    data[second + 40] ^= 1
    (root / "j" / "journal").write_bytes(data)
    again = opened(root)
    assert files(again) == {"a/state": b"2", "a/log": b"xxx"}
    assert again.head == 3
    assert [offset for offset, _ in again.gaps] == [second]
    again.recover()
    again.settle()
    assert (again.gaps, opened_head(root)) == ([], 3)


def test_bytes_of_an_entry_inside_a_text_are_no_entry(root):
    journal = opened(root)
    commit(journal, Replace("a/state", b"1"))
    inner = open_bytes(journal.path)
    commit(journal, Replace("a/state", inner * 2))
    os.truncate(journal.path, os.path.getsize(journal.path) - 1)
    assert opened_head(root) == 1
    again = opened(root)
    again.recover()
    assert (len(again.entries), again.gaps) == (1, [])


@pytest.mark.parametrize("place", range(0, Header.size, 7))
def test_a_damaged_header_is_told_of(root, place):
    journal = opened(root)
    commit(journal, Replace("a/state", b"1"))
    data = bytearray(open_bytes(journal.path))
    data[place] ^= 255
    (root / "j" / "journal").write_bytes(data)
    with pytest.raises((CorruptionError, FormatError)):
        opened(root).follow()
    with pytest.raises((CorruptionError, FormatError)):
        commit(opened(root), Replace("a/state", b"2"))
    again = opened(root)
    again.restart(1)
    commit(again, Replace("a/state", b"2"))
    assert (opened_head(root), on_disk(root)) == (2, {"a/state": b"2"})
    assert again.origin != journal.origin


def test_a_newer_version_is_refused(root):
    journal = opened(root)
    commit(journal, Replace("a/state", b"1"))
    data = open_bytes(journal.path)
    (root / "j" / "journal").write_bytes(data.replace(b"NMJRNL1\n", b"NMJRNL2\n"))
    with pytest.raises(FormatError, match="version 1; found b'2'"):
        opened(root).follow()


def test_an_entry_that_leads_outside_is_refused(root, tmp_path, monkeypatch):
    journal = opened(root)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_prepare", lambda self, write: None)
        patch.setattr(Journal, "_apply", lambda self, write: None)
        commit(journal, Replace("../outside", b"x"))
    start_anew(monkeypatch)
    with pytest.raises(CorruptionError, match="no store gives"):
        opened(root).recover()
    assert not (tmp_path / "outside").exists()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.binary(max_size=40))
def test_any_tail_of_other_bytes_is_passed_over(tmp_path_factory, seed, tail):
    root = tmp_path_factory.mktemp("root")
    journal = opened(root)
    for writes in SCRIPT[:3]:
        commit(journal, *writes)
    with open(journal.path, "ab") as file:
        file.write(tail)
    assert_recovers(root, [3])


# Processes.


def add_lines(root, worker):
    journal, lock = opened(root, max_entries=7), Lock(root / "lock")
    for number in range(25):
        with lock:
            journal.recover()
            path = root / "a/log"
            size = path.stat().st_size if path.exists() else 0
            line = b"%d %d\n" % (worker, number)
            journal.commit(journal.head + 1, [Append("a/log", size, line), Replace("a/state", line)])


def test_processes_lose_nothing_and_readers_see_whole_commits(root):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add_lines, args=(root, worker)) for worker in range(3)]
    for process in processes:
        process.start()
    reader, last = opened(root), -1
    while any(process.is_alive() for process in processes):
        found = files(reader)
        assert reader.head >= last
        last = reader.head
        lines = found.get("a/log", b"").splitlines(keepends=True)
        assert len(lines) == reader.head
        assert found.get("a/state", b"") == (lines[-1] if lines else b"")
    assert [process.exitcode for process in processes] == [0, 0, 0]
    lines = (root / "a/log").read_bytes().splitlines()
    assert sorted(lines) == sorted(b"%d %d" % (w, n) for w in range(3) for n in range(25))


# The format.


def read_from_documentation(data):
    """Origin, base head and entries of a journal: written from ``docs/reference/formats/journal.md``."""
    magic, origin, generation, base, _, _, boot, crc = struct.unpack_from("<8s16s16sQ16sQ16sI", data)
    assert magic == b"NMJRNL1\n"
    assert boot == boots.boot_id()
    assert crc == zlib.crc32(data[:88] + bytes(4))
    found, at = [], 92
    while at < len(data):
        magic, mark, length, head, crc, zero = struct.unpack_from("<4sIQQII", data, at)
        body = data[at + 32 : at + 32 + length]
        assert (magic, mark, zero) == (b"NMJE", 1, 0)
        assert crc == zlib.crc32(generation + struct.pack("<QQQ", at, length, head) + body)
        (size,) = struct.unpack_from("<I", body)
        description, rest = json.loads(body[4 : 4 + size]), body[4 + size :]
        writes = []
        for kind, path, count, extra in description["writes"]:
            writes.append((kind, path, rest[:count], extra))
            rest = rest[count:]
        assert rest == b""
        found.append((head, description["note"], writes))
        at += 32 + length
    return origin, base, found


def test_a_journal_can_be_read_from_its_documentation(root):
    journal = opened(root)
    list(play(root, journal))
    origin, base, entries = read_from_documentation(open_bytes(journal.path))
    assert (origin.hex(), base) == (journal.origin, 0)
    assert [(head, note) for head, note, _ in entries] == [(n, {"number": n}) for n in range(1, len(SCRIPT) + 1)]
    old = hashlib.blake2b(b"one", digest_size=16).hexdigest()
    assert entries[0][2] == [("append", "a/log", b"first\n", 0), ("replace", "a/state", b"one", None)]
    assert entries[2][2][0] == ("replace", "a/state", LONG[::-1], old)
    assert entries[3][2][1][:3] == ("remove", "a/log", b"")
    journal.settle()
    assert read_from_documentation(open_bytes(journal.path)) == (origin, len(SCRIPT), [])
