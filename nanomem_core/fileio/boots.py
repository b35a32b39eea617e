"""Since when the system is running: what was written since can be lost by no crash of a process."""

from __future__ import annotations

import functools
import uuid

__all__ = ["UNKNOWN", "boot_id"]

UNKNOWN = bytes(16)


@functools.cache
def boot_id() -> bytes:
    """16 bytes that stay the same until the system is started anew; `UNKNOWN` where that is not told: all but Linux."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return uuid.UUID(file.read().strip()).bytes
    except (OSError, ValueError):
        return UNKNOWN
