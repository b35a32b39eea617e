"""The contract of stores on disk: what was acknowledged survives a kill, a power failure and a failing disk.

A plugin's suite is one class and one fixture, which gives a function from a folder to the store in it::

    class TestMyStorage(DurabilityContract):
        @pytest.fixture
        def make_storage_at(self):
            return MyStorage             # called as MyStorage(folder), also in other processes

A script of commits runs once while `DiskRecorder` keeps a log of what reaches the disk. Then every state that a crash
could have left is built in a fresh folder, and the store is opened there. It must hold all commits that had returned,
and of the one that had not, everything or nothing; it must take further commits.

Without ``NANOMEM_FULL=1`` a fixed sample of the states is tried. With it all of them are, but for the second and third
crash of three in a row: those come to millions where a recovery has many steps.
"""

from __future__ import annotations

import errno
import functools
import itertools
import multiprocessing
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import pytest

from ..changes import Delete
from ..errors import NanomemError
from ..fileio import boots
from ..interfaces import Storage
from ..records import Record, Scope
from .disk import LOSSES, DiskState, Loss
from .fakes import DictStorage
from .faults import DiskRecorder, Fault, unsynced
from .fixtures import ANN, BOB
from .processes import must_be_picklable
from .samples import (
    assert_columns_agree,
    assert_vectors_kept,
    fact,
    full_run,
    put,
    put_all,
    remaining,
    remove,
)

__all__ = ["DurabilityContract", "MakeStorageAt"]

MakeStorageAt = Callable[[Path], Storage]

Held = dict[Scope, tuple[int, list[Record]]]
"""Head and records of each scope of the script."""

LONG = "\n".join(f"line {i} – 漢字" for i in range(150))

SCRIPT: tuple[Callable[[Storage], object], ...] = (
    lambda s: put_all(s, ANN, [fact("a", "first", entity="city"), fact("b", LONG)]),
    lambda s: put_all(s, BOB, [fact("a", "of bob", entity="city")]),
    lambda s: put_all(s, ANN, [fact("m1", kind="message"), fact("m2", kind="message"), fact("c", entity="city")]),
    lambda s: s.commit(ANN, [put(s, fact("e", LONG, kind="episode")), Delete("m1"), Delete("m2")]),
    lambda s: put_all(s, ANN, [fact("b", "short now"), fact("a", "", kind="purged")]),
    lambda s: s.compact(),
    lambda s: put_all(s, BOB, [fact("x"), fact("y"), fact("z")]),
    lambda s: remove(s, BOB, "x"),
    lambda s: s.erase(BOB),
    lambda s: put_all(s, BOB, [fact("n")]),
    lambda s: put_all(s, ANN, [fact("last", entity="city")]),
)


SEEDS = 5
"""How often each crash is tried that loses things by chance."""

REPEATED_LOSSES: tuple[Loss, ...] = ("torn", "all", "sectors")
"""What is lost by crashes that come one after the other."""

REPEATED_CRASHES = 4000
"""How many crashes are tried, about, that come while the store recovers from another one; as many that come while it
recovers from these."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
class DurabilityContract:
    """See the module. A store may warn (`RuntimeWarning`) of what it cuts off or sets aside after a crash."""

    @pytest.fixture
    def make_storage_at(self) -> MakeStorageAt:
        """Open the store in a folder; a plugin's test class overrides this."""
        raise NotImplementedError(f"{type(self).__name__}: expected a fixture make_storage_at; see {__name__}")

    @pytest.fixture(autouse=True)
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """No fsync is waited for; after the test this process is in the boot of the others again."""
        monkeypatch.setattr(boots, "boot_id", boots.boot_id)  # `DiskState.write_to` changes it
        with unsynced():
            yield

    @pytest.fixture
    def folders(self, tmp_path: Path) -> Iterator[Path]:
        """Paths of folders that do not exist yet."""
        return (tmp_path / f"{number}" for number in itertools.count())

    @pytest.mark.parametrize("loss", LOSSES)
    def test_every_crash_leaves_all_old_or_all_new(
        self, make_storage_at: MakeStorageAt, folders: Iterator[Path], loss: Loss
    ) -> None:
        for crash in _sample(_crashes(make_storage_at, next(folders), (loss,)), 250):
            with crash.explained(), crash.on_disk(next(folders)) as folder:
                _recover(make_storage_at, folder, crash.allowed)

    def test_a_crash_during_recovery_does_no_harm(
        self, make_storage_at: MakeStorageAt, folders: Iterator[Path]
    ) -> None:
        """In the full form after every crash; of those in its recovery all or, where they are many, a fixed sample."""
        firsts = _sample(_crashes(make_storage_at, next(folders), REPEATED_LOSSES), 24)
        for first in firsts:
            with first.explained():
                few = max(1, REPEATED_CRASHES // len(firsts)) if full_run() else 5
                seconds = _crashes_in_recovery(make_storage_at, next(folders), first, few)
                for second in seconds:
                    with second.explained():
                        few = max(1, REPEATED_CRASHES // (len(firsts) * len(seconds))) if full_run() else 2
                        for third in _crashes_in_recovery(make_storage_at, next(folders), second, few):
                            with third.explained(), third.on_disk(next(folders)) as folder:
                                _recover(make_storage_at, folder, third.allowed)

    @pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
    def test_a_failing_disk_loses_nothing_acknowledged(
        self, make_storage_at: MakeStorageAt, folders: Iterator[Path], code: int, lasting: bool
    ) -> None:
        disk, _ = _record(make_storage_at, next(folders))
        for at in _sample(range(len(disk.operations)), 60):
            folder = _made(next(folders))
            with _explained(f"{errno.errorcode[code]} was raised by {disk.operations[at]!r:.160}"):
                done = _play_until_error(make_storage_at, folder, Fault(at, code, lasting=lasting))
                _recover(make_storage_at, folder, _states()[done : done + 2])

    def test_writes_that_the_system_cuts_short_are_continued(
        self, make_storage_at: MakeStorageAt, folders: Iterator[Path]
    ) -> None:
        folder = next(folders)
        _record(make_storage_at, folder, short_writes=True)
        _recover(make_storage_at, folder, _states()[-1:])

    def test_a_killed_process_loses_nothing_acknowledged(
        self, make_storage_at: MakeStorageAt, folders: Iterator[Path]
    ) -> None:
        folder = _made(next(folders))
        chance = random.Random(20260310)
        count = 0
        for _ in range(200 if full_run() else 10):
            acknowledged = _run_and_kill(make_storage_at, folder, chance) or count
            with make_storage_at(folder) as storage:
                count = storage.head(ANN)
                assert count in (acknowledged, acknowledged + 1)
                chain = [record for record in storage.scan(ANN) if record.entity == "number"]
                assert [record.revision for record in chain] == list(range(1, count + 1))
                assert _counted(storage) == count
                assert_columns_agree(storage, ANN)
                assert [damage for damage in storage.check() if damage.lost] == []


# The script and what a store must hold after each step.


def _held(storage: Storage) -> Held:
    return {scope: remaining(storage, scope) for scope in (ANN, BOB)}


@functools.cache
def _states() -> list[Held]:
    storage = DictStorage()
    states = [_held(storage)]
    for step in SCRIPT:
        step(storage)
        states.append(_held(storage))
    return states


def _record(make: MakeStorageAt, folder: Path, *, short_writes: bool = False) -> tuple[DiskRecorder, list[int]]:
    """Play the script in a new folder; also tells how many operations there were when each step returned."""
    moments = []
    with DiskRecorder(_made(folder), short_writes=short_writes) as disk, make(folder) as storage:
        for step in SCRIPT:
            step(storage)
            moments.append(len(disk.operations))
    return disk, moments


def _play_until_error(make: MakeStorageAt, folder: Path, fault: Fault) -> int:
    """Play the script on a failing disk; returns how many steps returned."""
    done = 0
    with DiskRecorder(folder, fault), suppress(NanomemError), make(folder) as storage:
        try:
            for step in SCRIPT:
                step(storage)
                done += 1
        except NanomemError:
            with suppress(NanomemError):
                _assert_among(_held(storage), _states()[done : done + 2])
            raise
    return done


# Crashes.


class _Crash:
    """One state that a crash left, and what the store may hold in it."""

    def __init__(self, disk: DiskRecorder, length: int, loss: Loss, seed: int, allowed: Sequence[Held]) -> None:
        self.disk = disk
        self.length = length
        self.loss = loss
        self.seed = seed
        self.allowed = allowed

    def state(self) -> DiskState:
        return self.disk.state(self.length, self.loss, self.seed)

    @contextmanager
    def on_disk(self, folder: Path) -> Iterator[Path]:
        """The state in a new folder, which stays only if the block fails: thousands of them keep a disk busy."""
        self.state().write_to(folder)
        yield folder
        shutil.rmtree(folder)

    @contextmanager
    def explained(self) -> Iterator[None]:
        last = "".join(f"\n  {op!r:.160}" for op in self.disk.operations[max(0, self.length - 6) : self.length])
        with _explained(
            f"crash after {self.length} operations that lost {self.loss!r} (seed {self.seed}); the last ones were{last}"
        ):
            yield


def _crashes(make: MakeStorageAt, folder: Path, losses: Sequence[Loss]) -> list[_Crash]:
    """All different crashes during the script."""
    disk, moments = _record(make, folder)

    def allowed(length: int) -> list[Held]:
        done = sum(moment <= length for moment in moments)
        return _states()[done : done + 2]

    return list(_different(disk, _moments(disk, losses), allowed))


def _crashes_in_recovery(make: MakeStorageAt, folder: Path, crash: _Crash, at_most: int) -> list[_Crash]:
    """Different crashes while the store is opened after `crash` and takes one more commit."""
    with crash.on_disk(folder), DiskRecorder(folder) as disk:
        after = _recover(make, folder, crash.allowed)

    def allowed(length: int) -> list[Held]:
        return [after] if length == len(disk.operations) else [*crash.allowed, after]

    moments = _moments(disk, REPEATED_LOSSES)
    random.Random(f"{crash.length} {crash.loss} {crash.seed}").shuffle(moments)
    return list(itertools.islice(_different(disk, moments, allowed), at_most))


Moment = tuple[int, Loss, int]
"""What `DiskRecorder.state` takes."""


def _moments(disk: DiskRecorder, losses: Sequence[Loss]) -> list[Moment]:
    return [
        (length, loss, seed)
        for length in range(len(disk.operations) + 1)
        for loss in losses
        for seed in range(SEEDS if loss in ("cut", "sectors") else 1)
    ]


def _different(disk: DiskRecorder, moments: Iterable[Moment], allowed: Callable[[int], list[Held]]) -> Iterator[_Crash]:
    found = set()
    for length, loss, seed in moments:
        crash = _Crash(disk, length, loss, seed, allowed(length))
        key = crash.state().fingerprint(), tuple(map(id, crash.allowed))
        if key not in found:
            found.add(key)
            yield crash


def _recover(make: MakeStorageAt, folder: Path, allowed: Sequence[Held]) -> Held:
    """Open the store after a crash, check it, and commit once more; returns what it holds then."""
    with make(folder) as storage:
        found = _held(storage)
        _assert_among(found, allowed)
        for scope in (ANN, BOB):
            assert_columns_agree(storage, scope)
            if storage.keeps_vectors and found[scope][1]:
                assert_vectors_kept(storage, scope)
        assert [damage for damage in storage.check() if damage.lost] == []
        head, records = found[ANN]
        commit = put_all(storage, ANN, [fact(f"after {head}", entity="city")])
        after = found | {ANN: (head + 1, [*records, *commit.records])}
        _assert_among(_held(storage), [after])
    with make(folder) as storage:
        _assert_among(_held(storage), [after])
    return after


def _assert_among(found: Held, allowed: Sequence[Held]) -> None:
    if found not in allowed:
        expected = "\n  or ".join(map(_summary, allowed))
        raise AssertionError(f"expected {expected}\n  found {_summary(found)}")


def _summary(held: Held) -> str:
    return ", ".join(
        f"{scope.user} at {head}: {[f'{r.id} v{r.version} r{r.revision} {r.text[:12]!r}' for r in records]}"
        for scope, (head, records) in held.items()
    )


# Kills.


def _run_and_kill(make: MakeStorageAt, folder: Path, chance: random.Random) -> int:
    """Let a child commit, kill it at a random moment, and return the number of its last acknowledged commit, or 0."""
    must_be_picklable(make, "make_storage_at")
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_count_for_ever, args=(make, folder, sender))
    child.start()
    sender.close()
    last = 0
    try:
        receiver.recv()  # the child is about to open the store
        for _ in range(chance.randint(0, 30)):
            last = receiver.recv()
        time.sleep(chance.random() * 0.005)  # anywhere within opening or the next commits
        child.kill()
        while True:
            last = receiver.recv()
    except EOFError:
        pass
    child.join()
    receiver.close()
    assert child.exitcode != 1, "the child failed by itself; its traceback is in stderr"
    return last


def _count_for_ever(make: MakeStorageAt, folder: Path, acknowledge: Connection) -> None:
    acknowledge.send(0)
    with make(folder) as storage:
        for number in itertools.count(_counted(storage) + 1):
            put_all(storage, ANN, [fact(f"number {number}", entity="number"), fact("total", str(number))])
            acknowledge.send(number)


def _counted(storage: Storage) -> int:
    total = storage.get(ANN, "total")
    return 0 if total is None else int(total.text)


# Helpers.


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@contextmanager
def _explained(circumstances: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(circumstances)
        raise


T = TypeVar("T")


def _sample(items: Iterable[T], at_most: int) -> list[T]:
    """`items`, or so many of them in order, always the same, unless everything is asked for."""
    found = list(items)
    if full_run() or len(found) <= at_most:
        return found
    chosen = random.Random(len(found)).sample(range(len(found)), at_most)
    return [found[index] for index in sorted(chosen)]
