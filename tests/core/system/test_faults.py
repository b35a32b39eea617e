"""Whatever a model, a disk or a power supply does: every message is in one place, and no fact is there twice."""

from __future__ import annotations

import errno
import json
import multiprocessing
import random
import shutil
import threading
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanomem_core.changes import Change, Commit, Delete, Put
from nanomem_core.config.model import ConversationSettings
from nanomem_core.errors import LockTimeoutError, StorageError
from nanomem_core.hookspecs import Plugin, hookimpl
from nanomem_core.interfaces import ChatMessage, Completion, Generator, Segmenter
from nanomem_core.memory import Memory
from nanomem_core.records import Record, Scope
from nanomem_core.registry.manager import PluginManager
from nanomem_core.system import MemorySystem
from nanomem_core.testing import LOSSES, DictStorage, DiskRecorder, Fault, HashEmbedder
from nanomem_core.testing.processes import in_processes
from nanomem_core.testing.samples import full_run
from tests.core.system.conftest import MakeSystem
from tests.core.system.models import FIXED, Blocked, Listener, Pairs, messages
from tests.core.system.test_system import fact, going_on, where
from tests.memories import EVERY_STORE, Shelf, storage_in, texts

on_disk = pytest.mark.parametrize("store", [store for store in EVERY_STORE if store != "dict"])


def opened(folder: Path, store: str, generator: Generator | None = None, **options: Any) -> MemorySystem:
    """A system over a store in `folder`; closing it leaves the memory open."""
    memory = Memory(storage_in(folder, store), HashEmbedder(), taggers=(), plugins=PluginManager())
    return MemorySystem(memory, segmenter=Pairs(), generator=generator, settings=ConversationSettings(**options))


def assert_one_place_each(system: MemorySystem, ids: Sequence[str], **scope: Any) -> None:
    places = where(system, **scope)
    assert sorted(places) == sorted(ids)
    assert {id: found for id, found in places.items() if len(found) != 1} == {}


# What a model answers.

TEXT = st.text(max_size=30)
KEYS = st.sampled_from([*FIXED, "indices", "text"]) | TEXT
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.floats() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*FIXED, "x"]) | TEXT, inner, max_size=4)
    ),
    max_leaves=12,
)
ANSWERS = TEXT | JSON.map(json.dumps) | st.fixed_dictionaries(dict.fromkeys(FIXED, JSON)).map(json.dumps)


class Wild(Segmenter):
    """Proposes whatever it is told to."""

    name = "wild"

    def __init__(self, proposals: Sequence[Any]) -> None:
        self._proposals = list(proposals)

    def split(self, messages: Sequence[Record], generator: Generator | None = None) -> Any:
        return self._proposals.pop() if self._proposals else []


@given(st.lists(ANSWERS, min_size=1, max_size=6), st.lists(JSON, max_size=3), st.integers(1, 9))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_no_answer_of_a_model_loses_or_doubles_a_message(answers: list[str], proposals: list[Any], count: int) -> None:
    turns = iter(answers * 20)
    memory = Memory(DictStorage(), HashEmbedder(), taggers=(), plugins=PluginManager())
    model = Listener(lambda kind, value: next(turns, value))
    options = ConversationSettings(attempts=1, merge_similarity=0.0001, gap_minutes=None)
    with memory, MemorySystem(memory, segmenter=Wild(proposals), generator=model, settings=options) as system:
        for part in range(3):
            system.add_messages(messages(count, start=part * count))
            system.flush()
            assert system.wait(60)
        assert_one_place_each(system, [f"m{number:04}" for number in range(3 * count)])
        assert system.buffers.buffer().is_empty()
        for episode in system.episodes():
            assert list(episode.messages) == sorted(episode.messages, key=lambda message: message.timestamp)
            assert episode.messages[0].timestamp <= episode.timestamp <= episode.messages[-1].timestamp


# What a store does.


@pytest.mark.parametrize("error", [LockTimeoutError("locked"), StorageError(errno.ENOSPC, "disk full"), OSError("eio")])
def test_a_store_that_fails_keeps_the_messages_waiting(
    make_system: MakeSystem, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    system = make_system(generator=Listener(), batch_threshold=4, merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(2)])
    commit, failing = system.memory.storage.commit, True

    def fail(scope: Scope, changes: Sequence[Change], *rest: Any) -> Any:
        if failing and any(isinstance(change, Delete) for change in changes):
            raise error
        return commit(scope, changes, *rest)

    monkeypatch.setattr(system.memory.storage, "commit", fail)
    with pytest.raises(type(error)):
        system.flush()
    assert system.buffers.buffer().size() == 3
    assert system.add_messages(messages(1, start=2))["waiting"] == 4, "taking a message in is not hindered"
    assert not system.wait(60)
    assert str(error) in str(system.status()["error"])
    assert (system.buffers.buffer().size(), system.episodes()) == (4, [])
    failing = False
    assert system.wait(60)
    assert system.status()["error"] is None
    assert [len(episode.messages) for episode in system.episodes()] == [2, 2]
    assert texts(system.memory.records()) == ["Ann likes tea"]


def talk(folder: Path, store: str, acknowledged: list[str]) -> None:
    """Messages, episodes, a merged one, facts, and messages that wait; notes those that were taken in."""
    system = opened(folder, store, Listener(going_on), merge_similarity=0.0001)
    try:
        for number in range(3):
            said = [{**fact(f"fact {number}"), "message_id": f"f{number}"}, *messages(2, start=2 * number)]
            acknowledged += system.add_messages(said)["added"]
            system.flush()
            system.wait(60)
        acknowledged += system.add_messages(messages(3, start=50))["added"]
    finally:
        system.close()
        system.memory.close()


@pytest.mark.usefixtures("unsynced")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("lasting", [False, True])
@on_disk
def test_a_full_disk_loses_no_message(tmp_path: Path, store: str, lasting: bool) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    with DiskRecorder(whole) as disk:
        talk(whole, store, [])
    steps = range(len(disk.operations))
    failed = 0
    for at in steps if full_run() else random.Random(5).sample(steps, 12):
        folder = tmp_path / str(at)
        folder.mkdir()
        acknowledged: list[str] = []
        with DiskRecorder(folder, Fault(at, errno.ENOSPC, lasting)):
            try:
                talk(folder, store, acknowledged)
            except OSError:
                failed += 1
        settle(folder, store, acknowledged)
        shutil.rmtree(folder)  # thousands of them keep a disk busy
    assert failed


def settle(folder: Path, store: str, acknowledged: Sequence[str]) -> None:
    """Open the store again, and do what is left to do."""
    system = opened(folder, store, Listener(going_on), merge_similarity=0.0001)
    with system.memory, system:
        found = where(system)
        assert set(acknowledged) <= set(found)
        assert_one_place_each(system, list(found))
        system.flush()
        assert system.wait(60)
        assert_one_place_each(system, list(found))
        told = Counter(texts(system.memory.records()))
        assert told == Counter(f"fact {id[1:]}" for id in found if id.startswith("f"))


@pytest.mark.usefixtures("unsynced")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@on_disk
def test_a_power_failure_at_any_step_loses_no_message_and_doubles_no_fact(tmp_path: Path, store: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    moments: list[tuple[int, int]] = []

    class Noting(list[str]):
        """Notes also when."""

        def __iadd__(self, ids: Any) -> Any:
            self.extend(ids)
            moments.append((len(disk.operations), len(self)))
            return self

    with DiskRecorder(home) as disk:
        acknowledged = Noting()
        talk(home, store, acknowledged)
    assert len(acknowledged) == 12
    states = [(length, loss) for length in range(len(disk.operations) + 1) for loss in LOSSES]
    tried = set()
    for number, (length, loss) in enumerate(states if full_run() else random.Random(7).sample(states, 40)):
        state = disk.state(length, loss)
        known = max((count for moment, count in moments if moment <= length), default=0)
        if (state.fingerprint(), known) in tried:
            continue
        tried.add((state.fingerprint(), known))
        folder = tmp_path / f"state{number}"
        state.write_to(folder)
        settle(folder, store, acknowledged[:known])
        shutil.rmtree(folder)


# Others at the same time.


class BlockedFor(Blocked):
    """Waits only with what is about `word`."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word

    def complete(self, messages: Sequence[ChatMessage], **options: Any) -> Completion:
        if self._word in messages[-1]["content"]:
            return super().complete(messages, **options)
        return Listener.complete(self, messages, **options)


def test_a_slow_model_of_one_user_keeps_nobody_waiting(make_system: MakeSystem) -> None:
    model = BlockedFor("of ann")
    system = make_system(generator=model, batch_threshold=2, workers=2)
    system.add_messages([{"role": "user", "content": "a word of ann"}, *messages(1)], user="ann")
    assert model.waiting.wait(60)
    # Ann herself can go on talking, and others are served to the end.
    assert system.add_messages(messages(1, start=1), user="ann")["waiting"] == 3
    assert system.search("word", kinds=("message",), user="ann")
    assert system.status(user="ann")["running"]
    system.add_messages([fact("Bob likes tea"), *messages(3)], user="bob")
    assert system.wait(60, user="bob")
    assert texts(system.memory.records(user="bob")) == ["Bob likes tea"]
    assert not system.wait(0, user="ann")
    assert len(system.episodes(user="ann")) == 0
    model.go.set()
    assert system.wait(60, user="ann")
    system.flush(user="ann")
    assert len(where(system, user="ann")) == 3


def test_closing_does_not_wait_longer_than_it_is_told_for_a_slow_model(shelf: Shelf, make_system: MakeSystem) -> None:
    model = Blocked()
    system = make_system(generator=model, batch_threshold=2)
    system.add_messages(messages(2))
    assert model.waiting.wait(60)
    assert not system.close(timeout=0)
    model.go.set()
    again = make_system(shelf.open(), batch_threshold=2)
    assert_one_place_each(again, ["m0000", "m0001"])


@pytest.mark.parametrize("phase", ["episodes", "facts"])
def test_of_two_that_do_the_same_work_one_is_dropped(shelf: Shelf, make_system: MakeSystem, phase: str) -> None:
    slow = Blocked()
    first = make_system(shelf.open(), generator=slow, merge=False)
    second = make_system(shelf.open(), generator=Listener(), merge=False)
    said = [fact("Ann likes tea"), *messages(3)]
    first.add_messages(said)
    if phase == "facts":
        slow.go.set()
        first._lanes.close(0)
        first.flush()
        slow.go.clear()
        slow.waiting.clear()
        work = threading.Thread(target=first._jobs.run, args=(Scope(),))
    else:
        work = threading.Thread(target=first.flush)
    work.start()
    assert slow.waiting.wait(60)
    second.flush()
    assert second.wait(60)
    slow.go.set()
    work.join(60)
    assert first.wait(60)
    assert first.stats()["dropped"] >= 1
    assert texts(second.memory.records()) == ["Ann likes tea"]
    assert len(second.episodes()) == 2
    assert all(len(places) == 1 for places in where(second).values())


def test_facts_that_came_meanwhile_are_looked_at_before_more_are_stored(shelf: Shelf, make_system: MakeSystem) -> None:
    class Meanwhile(Listener):
        """Somebody else stores the fact while the model thinks about it for the first time."""

        def complete(self, messages: Sequence[ChatMessage], **options: Any) -> Completion:
            answer = super().complete(messages, **options)
            if self.asked == ["title", "facts"]:
                shelf.open().add("Ann likes tea")
            return answer

    system = make_system(generator=Meanwhile(), merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(1)])
    system.flush()
    assert system.wait(60)
    assert texts(system.memory.records()) == ["Ann likes tea"]
    assert system.stats()["dropped"] == 1


def test_facts_that_come_in_the_last_moment_are_looked_at_too(shelf: Shelf, make_system: MakeSystem) -> None:
    class LastMoment(Plugin):
        """Somebody else stores the fact when all is decided and nothing written."""

        said = False

        @hookimpl
        def nanomem_before_commit(self, scope: Scope, changes: Sequence[Change]) -> None:
            if not self.said and any(isinstance(change, Put) and change.record.kind == "fact" for change in changes):
                self.said = True
                shelf.open().add("Ann likes tea")

    plugins = PluginManager()
    plugins.register(LastMoment())
    system = make_system(shelf.open(plugins=plugins), generator=Listener(), merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(1)])
    system.flush()
    assert system.wait(60)
    assert texts(system.memory.records()) == ["Ann likes tea"]
    assert system.stats()["dropped"] == 1


def test_the_facts_of_an_episode_and_its_mark_are_one_commit(shelf: Shelf, make_system: MakeSystem) -> None:
    commits: list[set[str]] = []

    class Watch(Plugin):
        @hookimpl
        def nanomem_committed(self, commit: Commit) -> None:
            commits.append({*(record.kind for record in commit.records), *("deleted" for _ in commit.deleted)})

    plugins = PluginManager()
    plugins.register(Watch())
    system = make_system(shelf.open(plugins=plugins), generator=Listener(), merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(1)])
    system.flush()
    assert system.wait(60)
    assert commits == [{"message"}, {"episode", "deleted"}, {"fact", "episode"}]


def test_waiting_goes_on_while_others_are_at_the_same_work(
    make_system: MakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make_system(generator=Listener(), merge=False)
    run_one, overtaken = system._jobs._run_one, iter(range(7))
    monkeypatch.setattr(
        system._jobs, "_run_one", lambda *work: run_one(*work) if next(overtaken, None) is None else False
    )
    system.add_messages([fact("Ann likes tea"), *messages(1)])
    system.flush()
    assert system.wait(60)
    assert texts(system.memory.records()) == ["Ann likes tea"]
    monkeypatch.setattr(system._jobs, "_run_one", lambda *work: False)
    system.add_messages([fact("Ann likes coffee"), *messages(1, start=1)])
    system.flush()
    assert not system.wait(0.2)


def talk_and_flush(folder: Path, store: str, number: int) -> list[str]:
    system = opened(folder, store, Listener(), merge=False)
    with system.memory, system:
        for part in range(5):
            start = 100 * number + 4 * part
            system.add_messages([{**fact(f"fact {start}"), "message_id": f"f{start}"}, *messages(3, start=start)])
            system.flush()
        assert system.wait(60)
    return []


@on_disk
def test_processes_that_flush_one_scope_at_once_double_and_lose_nothing(tmp_path: Path, store: str) -> None:
    in_processes(talk_and_flush, [(tmp_path, store, number) for number in range(2)])
    starts = [100 * number + 4 * part for number in range(2) for part in range(5)]
    system = opened(tmp_path, store, Listener(), merge=False)
    with system.memory, system:
        assert system.wait(60)
        ids = [id for start in starts for id in (f"f{start}", *(f"m{start + n:04}" for n in range(3)))]
        assert_one_place_each(system, ids)
        assert Counter(texts(system.memory.records())) == Counter(f"fact {start}" for start in starts)


def talk_for_ever(folder: Path, store: str, first: int, sender: Connection) -> None:
    system = opened(folder, store, Listener(going_on), batch_threshold=4, merge_similarity=0.0001)
    for number in range(first, first + 10_000):
        said = [{**fact(f"fact {number}"), "message_id": f"f{number}"}, *messages(2, start=2 * number)]
        sender.send(system.add_messages(said)["added"])
        if number % 3 == 0:
            system.flush()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("part", range(4 if full_run() else 1))
@on_disk
def test_a_process_that_is_killed_loses_no_message_and_doubles_no_fact(tmp_path: Path, store: str, part: int) -> None:
    dice = random.Random(11 + part)
    context = multiprocessing.get_context("spawn")
    acknowledged: list[str] = []
    first = 0
    for _ in range(25 if full_run() else 6):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=talk_for_ever, args=(tmp_path, store, first, sender))
        process.start()
        sender.close()
        try:
            for _ in range(dice.randint(1, 12)):
                acknowledged += receiver.recv()
            process.kill()
            while True:
                acknowledged += receiver.recv()
        except EOFError:
            pass
        process.join()
        receiver.close()
        first += 1000
        system = opened(tmp_path, store)
        with system.memory, system:
            found = where(system)
            assert set(acknowledged) <= set(found)
            assert_one_place_each(system, list(found))
            acknowledged = list(found)  # what was being written when it was killed may have come through
    system = opened(tmp_path, store, Listener(going_on), merge_similarity=0.0001)
    with system.memory, system:
        system.flush()
        assert system.wait(120)
        assert_one_place_each(system, acknowledged)
        told = Counter(texts(system.memory.records()))
        assert told == Counter(f"fact {id[1:]}" for id in acknowledged if id.startswith("f"))
