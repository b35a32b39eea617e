"""The Markdown store keeps the contracts of storages."""

from functools import partial

import pytest

from nanomem_core.testing import DurabilityContract, StorageContract
from nanomem_plugins.markdown.storage import MarkdownStorage


def in_folder(folder):
    return MarkdownStorage(folder / "memory")


class TestMarkdownStorage(StorageContract):
    @pytest.fixture
    def make_storage(self, tmp_path):
        return partial(in_folder, tmp_path)


class TestMarkdownDurability(DurabilityContract):
    @pytest.fixture
    def make_storage_at(self):
        return in_folder
