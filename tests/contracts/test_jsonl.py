"""The JSON Lines store keeps the contracts of storages."""

from functools import partial

import pytest

from nanomem_core.testing import DurabilityContract, StorageContract
from nanomem_plugins.jsonl.storage import JsonlStorage


class TestJsonlStorage(StorageContract):
    @pytest.fixture
    def make_storage(self, tmp_path):
        return partial(JsonlStorage, tmp_path)


class TestJsonlDurability(DurabilityContract):
    @pytest.fixture
    def make_storage_at(self):
        return JsonlStorage
