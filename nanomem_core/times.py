"""Points in time: the public API accepts several forms, the inside knows one.

Inside, a time is a ``float`` of unix seconds, UTC. One rule covers everything that names no zone, and it does
not depend on the machine's ``TZ``: **what names no zone is UTC**. A date without a time is its first instant.
"""

from __future__ import annotations

import math
import time as _time
from collections.abc import Callable
from datetime import UTC, date, datetime

from .errors import TimeError

__all__ = ["DAY", "Clock", "TimeLike", "format_date", "format_time", "parse_time", "system_clock"]

DAY = 86_400.0
"""Seconds of a day."""

TimeLike = float | int | str | date | datetime
Clock = Callable[[], float]

_EARLIEST = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
_FORMS = (
    "a number of unix seconds, an aware datetime, a date, or an ISO 8601 text such as "
    "2026-03-01 or 2026-03-01T09:30:00Z (what names no zone is UTC)"
)


def system_clock() -> float:
    """The present, in unix seconds UTC."""
    return _time.time()


def parse_time(value: TimeLike, name: str = "time") -> float:
    """Read `value` as unix seconds UTC.

    Numbers (also as text) are seconds; texts are ISO 8601; a date is 00:00 UTC of that day; a naive datetime is
    UTC. Numbers that can only be milliseconds are refused rather than stored as a time in the far future.

    Raises:
        TimeError: `value` has another form or lies outside the years 1 to 9999; the message names `name`.
    """
    if type(value) is float:
        return _checked(value, name)
    if isinstance(value, (bool, bytes, bytearray)):
        raise TimeError(f"{name}: expected {_FORMS}; found {value!r}")
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.utcoffset() is None else value
        return _checked(moment.timestamp(), name)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    if isinstance(value, str):
        return _parse_text(value.strip(), name)
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    except (TypeError, ValueError):
        raise TimeError(f"{name}: expected {_FORMS}; found {type(value).__name__}") from None
    return _checked(seconds, name)


def _parse_text(text: str, name: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        # 20260301 is a date in ISO's basic form, not the 22nd of August 1970.
        if not (len(text) == 8 and text.isdigit()):
            return _checked(seconds, name)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TimeError(f"{name}: expected {_FORMS}; found {text!r}") from None
    return parse_time(moment, name)


def _checked(seconds: float, name: str) -> float:
    if not math.isfinite(seconds):
        raise TimeError(f"{name}: expected a finite number of seconds; found {seconds!r}")
    if not _EARLIEST <= seconds <= _LATEST:
        hint = ""
        if _EARLIEST <= seconds / 1000 <= _LATEST:
            hint = " This looks like milliseconds: divide by 1000."
        raise TimeError(f"{name}: {seconds!r} lies outside the years 1 to 9999.{hint}")
    return seconds


def format_time(seconds: float) -> str:
    """`seconds` as ISO 8601 UTC with a ``Z``; fractions only where there are any."""
    whole = datetime.fromtimestamp(seconds, tz=UTC)
    text = whole.isoformat(timespec="microseconds" if whole.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def format_date(seconds: float) -> str:
    """The day of `seconds` as ISO 8601, UTC."""
    return format_time(seconds).partition("T")[0]
