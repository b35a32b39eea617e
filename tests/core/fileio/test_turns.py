"""Who waits for a lock gets it in turn."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time

import pytest

from nanomem_core.errors import LockTimeoutError
from nanomem_core.fileio.locks import Lock
from nanomem_core.fileio.turns import Turns

SPAWN = multiprocessing.get_context("spawn")


def far():
    return time.monotonic() + 30


def _wait_and_write(folder, name):
    lock = Lock(folder / "x.lock", queue=folder / "queue")
    lock.acquire(when_next=lambda: (folder / f"{name} is next").touch())
    with open(folder / "order", "a") as file:
        file.write(f"{name}\n")
    lock.release()


def tickets(folder):
    path = folder / "queue"
    return int.from_bytes(path.read_bytes()[:8], "little") if path.exists() else 0


def until(condition):
    deadline = far()
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def waiting(folder, names):
    """Processes that wait for the lock, one behind the other."""
    for name in names:
        child, before = SPAWN.Process(target=_wait_and_write, args=(folder, name)), tickets(folder)
        child.start()
        until(lambda before=before: tickets(folder) > before)
        yield child


def test_processes_get_the_lock_in_the_order_in_which_they_came(tmp_path):
    lock = Lock(tmp_path / "x.lock", queue=tmp_path / "queue")
    with lock:
        children = list(waiting(tmp_path, "abcd"))
        until((tmp_path / "a is next").exists)
        assert not (tmp_path / "b is next").exists()
    with lock:  # the last to come, so the last to get it
        assert (tmp_path / "order").read_text().split() == ["a", "b", "c", "d"]
    for child in children:
        child.join()
        assert child.exitcode == 0


def test_a_process_that_dies_while_it_waits_holds_up_nobody(tmp_path):
    with Lock(tmp_path / "x.lock", queue=tmp_path / "queue"):
        first, second, third = waiting(tmp_path, "abc")
        for child in (first, second):
            child.kill()
            child.join()
    third.join()
    assert (tmp_path / "order").read_text().split() == ["c"]


@pytest.mark.skipif(sys.platform == "win32", reason="no process can be stopped there")
def test_a_process_that_is_stopped_while_it_waits_is_passed_by(tmp_path, monkeypatch):
    monkeypatch.setattr("nanomem_core.fileio.turns._PATIENCE", 0.05)
    lock = Lock(tmp_path / "x.lock", queue=tmp_path / "queue")
    with lock:
        [child] = waiting(tmp_path, "a")
        until((tmp_path / "a is next").exists)
        os.kill(child.pid, signal.SIGSTOP)
    with lock:
        assert not (tmp_path / "order").exists()
    os.kill(child.pid, signal.SIGCONT)
    child.join()
    assert (tmp_path / "order").read_text().split() == ["a"]


def test_who_waits_too_long_gives_up_and_lets_the_next_one_on(tmp_path):
    queue = tmp_path / "queue"
    first, second = (Lock(tmp_path / "x.lock", queue=queue) for _ in range(2))
    with first, pytest.raises(LockTimeoutError):
        second.acquire(0.02)
    assert Turns(queue).is_empty()
    with second:
        pass


def test_nobody_queues_for_a_lock_that_is_free(tmp_path):
    called = []
    lock = Lock(tmp_path / "x.lock", queue=tmp_path / "queue")
    for _ in range(3):
        lock.acquire(when_next=lambda: called.append(1))
        lock.release()
    assert tickets(tmp_path) == 0
    assert not called


def test_two_objects_of_one_process_exclude_each_other_all_the_same(tmp_path):
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        lock = Lock(tmp_path / "x.lock", queue=tmp_path / "queue")
        for _ in range(20):
            with lock:
                inside += 1
                most = max(most, inside)
                threading.Event().wait(0)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


@pytest.mark.parametrize("content", [b"", b"\x05", b"\xff" * 8, b"\0" * 20], ids=str)
def test_whatever_is_in_the_file_it_is_only_about_the_order(tmp_path, content):
    queue = tmp_path / "queue"
    queue.write_bytes(content)
    turns = Turns(queue)
    assert turns.is_empty()
    with turns.waiting(far()), turns.waiting(far()):
        pass
    assert turns.is_empty()
