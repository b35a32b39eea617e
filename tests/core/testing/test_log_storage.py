"""The contracts accept a correct store on disk."""

import os
from functools import partial

import pytest

from nanomem_core.testing import DurabilityContract, StorageContract
from tests.core.testing.log_storage import LogStorage

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the store syncs its folder, which Windows can't")


class TestLogStorage(StorageContract):
    @pytest.fixture
    def make_storage(self, tmp_path):
        return partial(LogStorage, tmp_path)


class TestLogStorageDurability(DurabilityContract):
    @pytest.fixture
    def make_storage_at(self):
        return LogStorage
