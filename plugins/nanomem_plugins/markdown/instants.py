"""Points in time as a document writes them: to the last digit, so that what is read is what was written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from nanomem_core.errors import InputError
from nanomem_core.times import parse_time

__all__ = ["time_text", "time_value"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z")


def time_text(seconds: float) -> str | float:
    """`seconds` as ISO 8601 with every digit, so that `time_value` gives it back; a number outside the years 1–9999."""
    exact = Decimal(repr(float(seconds)))
    try:
        whole = exact.to_integral_value("ROUND_FLOOR")
        text = (_EPOCH + timedelta(seconds=int(whole))).isoformat().removesuffix("+00:00")
    except OverflowError:
        return seconds
    fraction = f"{exact - whole:f}".partition(".")[2].rstrip("0")
    result = f"{text}.{fraction}Z" if fraction else f"{text}Z"
    return result if time_value(result) == seconds else seconds


def time_value(value: object) -> float:
    """What `time_text` was given; other texts are read as `parse_time` reads them.

    Raises:
        InputError: it is no time.
    """
    if isinstance(value, str) and (found := _EXACT.fullmatch(value)):
        try:
            moment = datetime.fromisoformat(found[1] + "+00:00")
        except ValueError as error:
            raise InputError(f"time: expected ISO 8601; found {value!r} ({error})") from None
        whole = (moment - _EPOCH) // timedelta(seconds=1)
        return float(Decimal(whole) + Decimal(f"0.{found[2] or 0}"))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return parse_time(value)
    raise InputError(f"time: expected ISO 8601 or unix seconds; found {value!r}")
