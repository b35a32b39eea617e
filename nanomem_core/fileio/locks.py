"""A lock between threads and processes.

Why not the package filelock: see decision 0010.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from ..errors import LockTimeoutError, StorageError
from .turns import Turns, pauses

__all__ = ["Lock"]

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

_LONGEST_PAUSE, _NEXT_PAUSE = 0.001, 0.0002
"""Seconds between two attempts, at most: of many who wait, and of the one whose turn it is. No system has a call that
waits for a file lock with a time-out."""

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        # Closing would not do it while a forked child has the descriptor too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


class Lock:
    """Excludes other threads of this process, and other processes that lock the same file. Not re-entrant.

    The lock file is created with mode 0600 and stays, since deleting it could let two owners in.

    Args:
        path: the lock file.
        timeout: seconds to wait for each of thread and process before LockTimeoutError.
        queue: a file that makes processes which name it too go in turn; without it, luck decides who waits how long.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        timeout: float = 30.0,
        queue: str | os.PathLike[str] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.timeout = timeout
        self._turns = None if queue is None else Turns(queue)
        # Threads wait for each other without polling.
        self._threads = threading.Lock()
        self._descriptor = -1

    def acquire(self, timeout: float | None = None, when_next: Callable[[], object] = lambda: None) -> None:
        """Wait for the lock, at most `timeout` seconds (None: the lock's own time-out; 0: don't wait).

        Args:
            when_next: called without the lock, if others had it, once this is the next in a queue to get it.

        Raises:
            LockTimeoutError: somebody else kept it.
            StorageError: the lock file can't be used.
        """
        limit = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        if not self._threads.acquire(timeout=limit):
            raise self._timed_out(limit, "another thread of this process")
        try:
            # Opened each time: whoever inherits a descriptor in a fork would own the same lock.
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
            try:
                if self._turns is None or limit <= 0:
                    self._wait(descriptor, deadline, limit)
                elif not self._turns.is_empty() or not _try_lock(descriptor):
                    with self._turns.waiting(deadline):
                        when_next()
                        self._wait(descriptor, deadline, limit, _NEXT_PAUSE)
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
        except BaseException as error:
            self._threads.release()
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise StorageError(f"{self.path}: can't be used as a lock file: {error}") from error
            raise

    def _wait(self, descriptor: int, deadline: float, limit: float, pause: float = _LONGEST_PAUSE) -> None:
        for _ in pauses(deadline, pause):
            if _try_lock(descriptor):
                return
        raise self._timed_out(limit, "another process")

    def release(self) -> None:
        """Let the next one in."""
        descriptor, self._descriptor = self._descriptor, -1
        try:
            _unlock(descriptor)
        finally:
            os.close(descriptor)
            self._threads.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _timed_out(self, limit: float, who: str) -> LockTimeoutError:
        return LockTimeoutError(
            f"{self.path}: waited {limit:g} s for the lock, but {who} kept it; nothing was written. "
            f"Try again, or raise lock_timeout."
        )
