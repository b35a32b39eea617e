"""Endpoints that don't answer are left alone for a while, so that not every call waits for them anew.

Three failures in a row to connect, or to get an answer in time, open the circuit of a base URL (scheme, host and port)
for the whole process. While it is open, calls fail at once. After 30 seconds one request may try; if it gets any
answer, the circuit is closed again. Whatever status a server answers with, it is alive.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

__all__ = ["FAILURES", "PAUSE", "answered", "failed", "forget_unreachable_endpoints", "seconds_to_wait"]

FAILURES = 3
"""Failures in a row that open a circuit."""

PAUSE = 30.0
"""Seconds until a request may try again."""


@dataclass(slots=True)
class _Circuit:
    failures: int = 0
    until: float = 0.0


_circuits: dict[str, _Circuit] = {}
_lock = threading.Lock()


def seconds_to_wait(origin: str) -> float | None:
    """None if `origin` may be asked now, else the seconds until it may be tried.

    Of the callers that come after that time, the first may try, and the others wait another turn.
    """
    with _lock:
        circuit = _circuits.get(origin)
        if circuit is None or circuit.failures < FAILURES:
            return None
        now = time.monotonic()
        if now < circuit.until:
            return circuit.until - now
        circuit.until = now + PAUSE
        return None


def failed(origin: str) -> None:
    """`origin` could not be reached, or did not answer in time."""
    with _lock:
        circuit = _circuits.setdefault(origin, _Circuit())
        circuit.failures += 1
        circuit.until = time.monotonic() + PAUSE


def answered(origin: str) -> None:
    """`origin` answered, whatever it said."""
    with _lock:
        _circuits.pop(origin, None)


def forget_unreachable_endpoints() -> None:
    """Try every endpoint again at the next call, also those that were found dead a moment ago."""
    with _lock:
        _circuits.clear()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # another thread may have held the lock when this process was forked
    os.register_at_fork(after_in_child=_renew_lock)
