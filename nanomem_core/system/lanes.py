"""Work in the background, one piece at a time for each scope, scopes beside one another."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ..errors import ClosedError
from ..hints import one_line
from ..records import Scope

__all__ = ["Lanes"]


class Lanes:
    """Calls `work` with a scope each time that is asked for, on threads that are started when first needed.

    A scope is worked on by one thread at a time; asking again while it is being worked on makes one more round. A slow
    scope keeps one of the `workers` busy, and no other scope waiting while there are more of them.

    Attributes:
        failures: the error that ended the last round of a scope, until a round succeeds.
    """

    def __init__(self, work: Callable[[Scope], None], workers: int) -> None:
        self._work = work
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None
        self._changed = threading.Condition()
        self._busy: set[Scope] = set()
        self._wanted: set[Scope] = set()
        self._closed = False
        self.failures: dict[Scope, BaseException] = {}

    def ask(self, scope: Scope) -> bool:
        """Have `scope` worked on soon. False once the lanes are closed: what is to do is found again later."""
        with self._changed:
            if self._closed:
                return False
            self._wanted.add(scope)
            if scope not in self._busy:
                self._start(scope)
            return True

    @contextlib.contextmanager
    def hold(self, scope: Scope) -> Iterator[None]:
        """Keep the scope's lane for the ``with`` block, on the caller's own thread; waits for a round that runs."""
        with self._changed:
            self._changed.wait_for(lambda: scope not in self._busy)
            self._busy.add(scope)
        try:
            yield
        finally:
            self._leave(scope)

    def active(self, scope: Scope) -> bool:
        """True if the scope is being worked on, or about to be."""
        with self._changed:
            return scope in self._busy or scope in self._wanted

    def wait(self, scope: Scope | None = None, timeout: float | None = None) -> bool:
        """Wait until nothing is to do for `scope` (None: for any); False if it took longer than `timeout` seconds."""

        def idle() -> bool:
            everything = self._busy | self._wanted
            return scope not in everything if scope is not None else not everything

        with self._changed:
            return self._changed.wait_for(idle, timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Take no more work, and wait for what runs; False if it took longer than `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._closed = True
            for scope in self._wanted - self._busy:
                self._wanted.discard(scope)
        done = self.wait(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        if self._pool is not None:
            self._pool.shutdown(wait=done, cancel_futures=True)
        return done

    def _start(self, scope: Scope) -> None:
        # Under the lock. The lane is taken at once, so that asking twice starts one thread.
        self._busy.add(scope)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="nanomem")
        self._pool.submit(self._round, scope)

    def _round(self, scope: Scope) -> None:
        with self._changed:
            self._wanted.discard(scope)
        try:
            self._work(scope)
        except Exception as error:
            # What is to do is in the store still, and the next round finds it.
            if not (self._closed and isinstance(error, ClosedError)):  # cut off by `close`, which says so
                logging.getLogger("nanomem").warning("conversation of %s: %s", scope, one_line(error), exc_info=True)
            self.failures[scope] = error
        else:
            self.failures.pop(scope, None)
        finally:
            self._leave(scope)

    def _leave(self, scope: Scope) -> None:
        with self._changed:
            self._busy.discard(scope)
            if scope in self._wanted and not self._closed:
                self._start(scope)
            else:
                self._wanted.discard(scope)
            self._changed.notify_all()
