"""The fixtures of `tests.memories`."""

from __future__ import annotations

from tests.memories import clock, memory, shelf, store

__all__ = ["clock", "memory", "shelf", "store"]
