"""Turns for processes that wait for one lock: who came first goes first.

File locks let in whoever asks at the right moment, so that of many writers one may wait for seconds. Here each draws a
ticket, the next number in a file, and keeps a lock on the byte of that number while it waits; the system drops that
lock with the process. Whoever waits for its turn tries to lock the byte of the ticket before its own.

Only the order depends on this: whoever has the turn must still take the lock itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from . import atomic

__all__ = ["Turns", "pauses"]

_BINARY = getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_COUNTER = 8
"""Bytes of the next number, with which the file begins."""

_PATIENCE = 5.0
"""Seconds after which somebody who waits, and may have been stopped, is passed by."""

if sys.platform == "win32":
    import msvcrt

    def _try_byte(descriptor: int, offset: int) -> bool:
        os.lseek(descriptor, offset, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _free_byte(descriptor: int, offset: int) -> None:
        os.lseek(descriptor, offset, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_byte(descriptor: int, offset: int) -> bool:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _free_byte(descriptor: int, offset: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, offset)


def pauses(deadline: float, longest: float) -> Iterator[None]:
    """Sleep before each round after the first, from 0.1 ms doubling to `longest` seconds; ends at `deadline`."""
    pause = 0.0001
    yield
    while (rest := deadline - time.monotonic()) > 0:
        time.sleep(min(pause, rest))
        pause = min(2 * pause, longest)
        yield


class Turns:
    """The queue in the file `path`, which is created with mode 0600 and stays.

    Two objects for one file in one process take no notice of each other.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def is_empty(self) -> bool:
        """True if nobody waits."""
        with self._opened() as descriptor:
            last = _COUNTER + _number(descriptor) - 1
            if last < _COUNTER:
                return True
            is_free = _try_byte(descriptor, last)
            if is_free:
                _free_byte(descriptor, last)
            return is_free

    @contextmanager
    def waiting(self, deadline: float) -> Iterator[None]:
        """Wait until all who came earlier have had their turn, or until `deadline` on the monotonic clock.

        The turn ends with the block.
        """
        deadline = min(deadline, time.monotonic() + _PATIENCE)
        # Closing the file gives the ticket back.
        with self._opened() as descriptor:
            before = self._draw(descriptor, deadline) - 1
            if before >= _COUNTER:
                for _ in pauses(deadline, 0.002):
                    if _try_byte(descriptor, before):
                        _free_byte(descriptor, before)
                        break
            yield

    def _draw(self, descriptor: int, deadline: float) -> int:
        """Take the next ticket; returns the place of its byte. Without one at `deadline`, that of nobody."""
        for _ in pauses(deadline, 0.001):
            number = _number(descriptor)
            # Whoever has locked the byte of the next number may raise it.
            if _try_byte(descriptor, _COUNTER + number):
                if _number(descriptor) == number:
                    atomic.write_all(descriptor, (number + 1).to_bytes(_COUNTER, "little"), 0)
                    return _COUNTER + number
                _free_byte(descriptor, _COUNTER + number)
        return 0

    @contextmanager
    def _opened(self) -> Iterator[int]:
        atomic.make_directory(os.path.dirname(self.path))
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | _BINARY | _NO_LINK, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _number(descriptor: int) -> int:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return int.from_bytes(os.read(descriptor, _COUNTER), "little") & 0x3FFFFFFFFFFFFFFF
