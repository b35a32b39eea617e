"""A lock between threads and processes."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

import filelock

from ..errors import LockTimeoutError, StorageError

__all__ = ["Lock"]

_POLL = 0.002
"""Seconds between two attempts; the system has no call that waits for a file lock with a time-out."""


class Lock:
    """Excludes other threads of this process, and other processes that lock the same file. Not re-entrant.

    The lock file is created with mode 0600 and stays, since deleting it could let two owners in.

    Args:
        path: the lock file.
        timeout: seconds to wait for each of thread and process before LockTimeoutError.
    """

    def __init__(self, path: str | os.PathLike[str], timeout: float = 30.0) -> None:
        self.path = os.fspath(path)
        self.timeout = timeout
        # A filelock object that threads share is re-entrant across them, so the thread lock comes first.
        self._threads = threading.Lock()
        self._processes = filelock.FileLock(self.path, mode=0o600, thread_local=False)

    def acquire(self, timeout: float | None = None) -> None:
        """Wait for the lock, at most `timeout` seconds (None: the lock's own time-out; 0: don't wait).

        Raises:
            LockTimeoutError: somebody else kept it.
            StorageError: the lock file can't be used.
        """
        limit = self.timeout if timeout is None else timeout
        start = time.monotonic()
        if not self._threads.acquire(timeout=limit):
            raise self._timed_out(limit, "another thread of this process")
        try:
            rest = max(0.0, limit - (time.monotonic() - start))
            self._processes.acquire(timeout=rest, poll_interval=_POLL)
        except filelock.Timeout:
            self._threads.release()
            raise self._timed_out(limit, "another process") from None
        except (OSError, RuntimeError) as error:
            self._threads.release()
            raise StorageError(f"{self.path}: can't be used as a lock file: {error}") from error
        except BaseException:
            self._threads.release()
            raise

    def release(self) -> None:
        """Let the next one in."""
        try:
            self._processes.release()
        finally:
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
