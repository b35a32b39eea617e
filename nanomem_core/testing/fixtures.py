"""The fixtures that contracts stand on, and two scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import ClassVar

import pytest

from ..interfaces import Generator, Storage
from ..records import Scope
from .samples import SPACE

__all__ = ["ANN", "BOB", "GivenGenerator", "MakeStorage", "ModelFixtures", "StorageFixtures"]

MakeStorage = Callable[[], Storage]
GivenGenerator = Callable[[], Generator | None]

ANN = Scope("ann", "helper")
BOB = Scope("bob", "helper")


class ModelFixtures:
    """What the contracts of parts that may ask a generator stand on."""

    @pytest.fixture
    def make_generator(self) -> GivenGenerator:
        """The generator that is given to each call; None unless a plugin's test class overrides this."""
        return lambda: None


class StorageFixtures:
    """What every contract of storages stands on."""

    on_disk: ClassVar[bool] = True
    """False for a store that only this process sees."""

    @pytest.fixture
    def make_storage(self) -> MakeStorage:
        """Open the store again; a plugin's test class overrides this."""
        raise NotImplementedError(
            f"{type(self).__name__}: expected a fixture make_storage; see nanomem_core.testing.storage"
        )

    @pytest.fixture
    def opened(self, make_storage: MakeStorage) -> Iterator[MakeStorage]:
        """Like `make_storage`, but closed after the test, and ready to take vectors."""
        with ExitStack() as stack:

            def open_again() -> Storage:
                storage = stack.enter_context(make_storage())
                if storage.keeps_vectors:
                    storage.adopt(SPACE)
                return storage

            yield open_again

    @pytest.fixture
    def storage(self, opened: MakeStorage) -> Storage:
        return opened()
