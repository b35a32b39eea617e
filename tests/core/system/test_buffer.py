"""Messages wait in the store, and are due for one of four reasons."""

from __future__ import annotations

from typing import Any

import pytest

from nanomem_core.config.model import ConversationSettings
from nanomem_core.errors import InputError
from nanomem_core.memory import Memory
from nanomem_core.pipeline.context import estimate_tokens
from nanomem_core.pipeline.messages import read_messages
from nanomem_core.records import Record, Scope
from nanomem_core.system import MemorySystem, MessageBuffer, MessageBufferManager
from nanomem_core.system.buffer import find_due
from nanomem_core.system.lanes import Lanes
from tests.core.system.conftest import MakeSystem
from tests.core.system.models import Pairs, messages
from tests.memories import Shelf


def waiting(count: int, step: float = 60.0) -> list[Record]:
    return [message.to_record(0.0) for message in read_messages(messages(count, step=step), 0.0)]


def test_every_buffer_of_a_scope_is_the_same_buffer(shelf: Shelf) -> None:
    buffer = MessageBuffer(shelf.open(), Scope("ann"))
    assert buffer.is_empty()
    assert buffer.add_message({"role": "user", "content": "hi"}) == 1
    again = MessageBuffer(shelf.open(), Scope("ann"))
    assert [m.content for m in again.get_messages()] == ["hi"]
    assert again.get_conversation_text() == "user: hi"
    assert MessageBuffer(shelf.open(), Scope("ann", "other")).is_empty()


def test_messages_are_in_the_order_of_time_and_of_one_time_in_the_order_of_arrival(memory: Memory) -> None:
    buffer = MessageBuffer(memory, Scope())
    for content, timestamp in (("c", 30), ("a", 10), ("b1", 20), ("b2", 20)):
        buffer.add_message({"role": "user", "content": content, "timestamp": timestamp})
    assert [m.content for m in buffer.get_messages()] == ["a", "b1", "b2", "c"]


def test_clearing_gives_back_what_it_removed(memory: Memory) -> None:
    buffer = MessageBuffer(memory, Scope())
    buffer.add_messages(messages(3))
    assert [m.message_id for m in buffer.clear()] == ["m0000", "m0001", "m0002"]
    assert buffer.size() == 0
    assert buffer.clear() == []


def test_of_a_list_with_one_wrong_message_none_is_added(memory: Memory) -> None:
    buffer = MessageBuffer(memory, Scope())
    with pytest.raises(InputError, match="message 3"):
        buffer.add_messages([*messages(3), {"role": "user", "content": "x", "timestamp": "soon"}])
    assert buffer.is_empty()


def test_a_message_that_may_have_been_added_can_be_added_again(system: MemorySystem) -> None:
    buffer = system.buffers.buffer()
    assert len(buffer.add_messages(messages(3))) == 3
    assert [m.message_id for m in buffer.add_messages(messages(4))] == ["m0003"]
    system.flush()
    assert buffer.add_messages(messages(4)) == []
    assert buffer.is_empty()
    # One that was deleted on purpose may come back.
    for episode in system.episodes():
        system.delete_episode(episode.id)
    assert len(buffer.add_messages(messages(4))) == 4


def test_a_message_is_known_wherever_its_episode_came_from_and_as_long_as_it_is_there(
    shelf: Shelf, make_system: MakeSystem
) -> None:
    here, there = make_system(shelf.open()), make_system(shelf.open())
    buffer = here.buffers.buffer()
    for start in (0, 4):
        there.add_messages(messages(4, start=start))
        assert buffer.known(["m0000", "m0007", "x"]) == ({"m0000"} if start == 0 else {"m0000", "m0007"})
        there.flush()
        assert buffer.known(["m0000", "m0007", "x"]) == ({"m0000"} if start == 0 else {"m0000", "m0007"})
    there.delete_episode(there.episodes()[0].id)
    assert buffer.known(["m0000", "m0002", "m0007"]) == {"m0002", "m0007"}
    there.memory.compact()
    assert buffer.known(["m0000", "m0002", "m0007"]) == {"m0002", "m0007"}
    there.delete_user("default")
    assert buffer.known(["m0000", "m0002", "m0007"]) == set()


def test_what_says_nothing_stores_nothing(memory: Memory) -> None:
    buffer = MessageBuffer(memory, Scope("ann"))
    assert buffer.add_messages([]) == buffer.add_messages([{"role": "user", "content": "  "}]) == []
    assert memory.storage.scopes() == []
    assert memory.storage.head(Scope("ann")) == 0


def test_the_manager_lists_the_buffers_in_which_something_waits(memory: Memory) -> None:
    manager = MessageBufferManager(memory)
    manager.buffer("ann").add_messages(messages(2))
    manager.buffer("bob", "tutor").add_messages(messages(1))
    memory.add("a fact", user="eve")
    assert [str(buffer.scope) for buffer in manager.buffers()] == ["ann", "bob/tutor"]
    stats = manager.stats()
    assert (stats["buffers"], stats["messages"]) == (2, 3)
    assert stats["each"][0] == {
        "user": "ann",
        "agent": "default",
        "size": 2,
        "tokens": 2 * estimate_tokens("sentence 0"),
        "first": 1_772_000_000.0,
        "last": 1_772_000_060.0,
    }
    assert manager.buffer("nobody").stats()["first"] is None


# When they are due.


@pytest.mark.parametrize(
    ("records", "settings", "due"),
    [
        ([], {"batch_threshold": 1}, None),
        (waiting(2), {"batch_threshold": 3}, None),
        (waiting(3), {"batch_threshold": 3}, ("3 messages wait (batch_threshold 3)", None)),
        (waiting(4), {"token_threshold": 12}, ("about 12 tokens wait (token_threshold 12)", None)),
        (waiting(4), {"token_threshold": 13}, None),
        (waiting(4), {"token_threshold": None}, None),
        (waiting(4, step=600), {"gap_minutes": 9.5}, ("a pause of 10 minutes (gap_minutes 9.5)", 3)),
        (waiting(4, step=600), {"gap_minutes": 10}, None),
        (waiting(4, step=600), {"gap_minutes": None}, None),
        (waiting(2, step=600), {"gap_minutes": 5}, None),
        (waiting(2, step=600), {"gap_minutes": 5, "min_messages": 1}, ("a pause of 10 minutes (gap_minutes 5)", 1)),
    ],
)
def test_messages_are_due_by_number_by_size_and_by_a_pause(
    records: list[Record], settings: dict[str, Any], due: tuple[str, int] | None
) -> None:
    found = find_due(records, ConversationSettings(**settings), Pairs())
    assert (None if found is None else (found.reason, found.count)) == due


def test_the_segmenter_is_asked_too() -> None:
    class Eager(Pairs):
        def due(self, messages: Any) -> str | None:
            return "a goodbye" if len(messages) > 1 else None

    assert find_due(waiting(1), ConversationSettings(), Eager()) is None
    found = find_due(waiting(2), ConversationSettings(), Eager())
    assert found is not None
    assert (found.reason, found.count) == ("a goodbye", None)


# Lanes.


def test_a_scope_is_worked_on_by_one_thread_at_a_time_and_once_more_if_asked_meanwhile() -> None:
    import threading

    scope, rounds, inside = Scope(), [], threading.Semaphore(1)
    began, go = threading.Event(), threading.Event()

    def work(scope: Scope) -> None:
        assert inside.acquire(blocking=False)
        rounds.append(scope)
        began.set()
        assert go.wait(60)
        inside.release()

    lanes = Lanes(work, workers=4)
    lanes.ask(scope)
    assert began.wait(60)
    for _ in range(5):
        lanes.ask(scope)
    assert lanes.active(scope)
    assert not lanes.wait(scope, timeout=0)
    assert lanes.wait(Scope("other"), timeout=0)
    go.set()
    assert lanes.wait(timeout=60)
    assert len(rounds) == 2
    assert not lanes.active(scope)
    assert lanes.close()
    lanes.ask(scope)
    assert len(rounds) == 2


def test_who_holds_a_lane_keeps_the_work_out() -> None:
    scope, rounds = Scope(), []
    lanes = Lanes(rounds.append, workers=1)
    with lanes.hold(scope):
        lanes.ask(scope)
        assert not lanes.wait(scope, timeout=0.01)
        assert rounds == []
    assert lanes.wait(scope, timeout=60)
    assert rounds == [scope]
    lanes.close()


def test_a_round_that_fails_is_kept_as_a_failure_until_one_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    scope, answers = Scope(), [OSError("disk full"), None]

    def work(scope: Scope) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    lanes = Lanes(work, workers=1)
    lanes.ask(scope)
    lanes.wait(scope)
    assert str(lanes.failures[scope]) == "disk full"
    assert "disk full" in caplog.text
    lanes.ask(scope)
    lanes.wait(scope)
    assert lanes.failures == {}
    lanes.close()
