"""The arena keeps the contracts of storages."""

from functools import partial

import pytest

from nanomem_core.testing import DurabilityContract, StorageContract
from nanomem_plugins.arena.storage import ArenaStorage


def in_folder(folder):
    return ArenaStorage(folder / "memory.dat")


class TestArenaStorage(StorageContract):
    @pytest.fixture
    def make_storage(self, tmp_path):
        return partial(in_folder, tmp_path)


class TestArenaDurability(DurabilityContract):
    @pytest.fixture
    def make_storage_at(self):
        return in_folder
