"""The in-memory storage of the kit keeps the contract that the kit checks."""

import pytest

from nanomem_core.testing import DictStorage, StorageContract


class TestDictStorage(StorageContract):
    on_disk = False

    @pytest.fixture
    def make_storage(self):
        first = DictStorage()
        return lambda: DictStorage(shared=first)
