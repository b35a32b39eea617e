"""A memory system over every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nanomem_core.config.model import ConversationSettings
from nanomem_core.memory import Memory
from nanomem_core.system import MemorySystem
from tests.core.system.models import Pairs
from tests.memories import EVERY_STORE, Shelf, clock, memory, shelf

__all__ = ["clock", "memory", "shelf"]

MakeSystem = Callable[..., MemorySystem]


@pytest.fixture(params=EVERY_STORE)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_system(shelf: Shelf) -> Iterator[MakeSystem]:
    """Make a system over the store; words are settings, but for ``memory``, ``segmenter`` and ``generator``."""
    made: list[MemorySystem] = []

    def make(
        memory: Memory | None = None, segmenter: Any = None, generator: Any = None, **settings: Any
    ) -> MemorySystem:
        system = MemorySystem(
            shelf.open() if memory is None else memory,
            segmenter=Pairs() if segmenter is None else segmenter,
            generator=generator,
            settings=ConversationSettings(**settings),
        )
        made.append(system)
        return system

    yield make
    for system in made:
        system.close()


@pytest.fixture
def system(make_system: MakeSystem) -> MemorySystem:
    return make_system()
