"""The contract of storages, as test classes. A plugin's whole suite is one class and one fixture::

    from functools import partial
    from nanomem_core.testing import StorageContract

    class TestMyStorage(StorageContract):
        @pytest.fixture
        def make_storage(self, tmp_path):
            return partial(MyStorage, tmp_path)

Each call of what the fixture returns opens the *same* store again. Keep its files below ``tmp_path``: the contract
looks there for bytes that should be gone. It is called in other processes too, so it must be picklable (a
`functools.partial`, not a lambda); a store that lives in memory sets ``on_disk = False`` instead.
"""

from __future__ import annotations

from .columns import ColumnsContract, VectorsContract
from .model import ModelContract
from .reads import ReadContract
from .sharing import SharingContract
from .writes import RemovalContract, WriteContract

__all__ = ["StorageContract"]


class StorageContract(
    ReadContract, WriteContract, RemovalContract, ColumnsContract, VectorsContract, SharingContract, ModelContract
):
    """All that `nanomem_core.interfaces.Storage` promises; see the module for how to use it."""
