"""What all contracts of storages stand on: the fixtures, and two scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import ClassVar

import pytest

from ..interfaces import Storage
from ..records import Scope
from .samples import SPACE

__all__ = ["ANN", "BOB", "MakeStorage", "StorageFixtures"]

MakeStorage = Callable[[], Storage]

ANN = Scope("ann", "helper")
BOB = Scope("bob", "helper")


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
