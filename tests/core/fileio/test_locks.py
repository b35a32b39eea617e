"""A lock between threads and processes."""

from __future__ import annotations

import multiprocessing
import os
import threading

import pytest

from nanomem_core.errors import LockTimeoutError, StorageError
from nanomem_core.fileio.locks import Lock


def test_the_lock_file_is_private_and_stays(tmp_path):
    path = tmp_path / "x.lock"
    with Lock(path):
        assert path.stat().st_mode & 0o777 == 0o600
    assert path.exists()


@pytest.mark.parametrize("same", [True, False], ids=["one object", "two objects"])
def test_a_thread_that_waits_too_long_gives_up(tmp_path, same):
    first = Lock(tmp_path / "x.lock", timeout=0.02)
    second = first if same else Lock(tmp_path / "x.lock", timeout=0.02)
    found = []

    def attempt():
        try:
            second.acquire()
        except LockTimeoutError as error:
            found.append(str(error))

    with first:
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    assert len(found) == 1
    assert "x.lock" in found[0]
    second.acquire(0.0)
    second.release()


def test_threads_exclude_each_other(tmp_path):
    lock = Lock(tmp_path / "x.lock")
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        for _ in range(20):
            with lock:
                inside += 1
                most = max(most, inside)
                threading.Event().wait(0)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def _count(path, times):
    lock = Lock(path.with_name("x.lock"))
    for _ in range(times):
        with lock:
            path.write_text(str(int(path.read_text()) + 1))


def test_processes_exclude_each_other(tmp_path):
    path = tmp_path / "count"
    path.write_text("0")
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_count, args=(path, 50)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert path.read_text() == "150"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_under_the_lock_neither_owns_nor_keeps_it(tmp_path):
    lock, other = Lock(tmp_path / "x.lock"), Lock(tmp_path / "x.lock", timeout=0.02)
    (told, tell), (waiting, end) = os.pipe(), os.pipe()
    with lock:
        child = os.fork()
        if child == 0:
            try:
                other.acquire()
                os.write(tell, b"owns it")
            except LockTimeoutError:
                os.write(tell, b"waited")
            os.read(waiting, 1)  # lives on, with all that it inherited
            os._exit(0)
        assert os.read(told, 9) == b"waited"
    with other:  # the parent let it go, so it is free
        pass
    os.write(end, b"x")
    os.waitpid(child, 0)
    for descriptor in (told, tell, waiting, end):
        os.close(descriptor)


def test_a_lock_file_that_cannot_be_made_is_an_error_and_holds_nothing(tmp_path):
    (tmp_path / "folder").write_text("no folder")
    lock = Lock(tmp_path / "folder" / "x.lock", timeout=0.02)
    with pytest.raises(StorageError, match=r"x\.lock"):
        lock.acquire()
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    with lock:
        pass
