"""The fixtures of `tests.memories`."""

from __future__ import annotations

from tests.memories import clock, embedder, memory, shelf, store

__all__ = ["clock", "embedder", "memory", "shelf", "store"]
