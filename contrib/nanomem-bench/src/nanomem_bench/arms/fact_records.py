"""The stores of nanomem_core that keep no file a fact, for what facts cost as records."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path

from nanomem_core import PluginManager
from nanomem_core.changes import Delete, Put
from nanomem_core.interfaces import Storage
from nanomem_core.records import Record, Scope

from ..data import Material
from .base import Arm, fact_id

__all__ = ["RecordArm"]

_SCOPE = Scope("ann", "lead")


class RecordArm(Arm):
    """Facts through the `Storage` interface: an update keeps the old value under another id, in the same commit."""

    shared = True
    derived = (".derived", ".lock")

    def __init__(self, folder: Path, material: Material, threads: int) -> None:
        super().__init__(folder, material, threads)
        self._plugins = PluginManager.discover()

    @abstractmethod
    def options(self) -> dict[str, str]:
        """The storage, as in the settings."""

    def open(self) -> None:
        self._storage: Storage = self._plugins.build("storage", self.options())
        self._updates = 0

    def close(self) -> None:
        self._storage.close()

    def add_many(self, positions: range) -> None:
        self._storage.commit(_SCOPE, [Put(self._record(p), expect=0) for p in positions])

    def _record(self, position: int) -> Record:
        metadata = {"category": "preference", "confidence": 0.9}
        return Record(fact_id(position), self.material.text(position), source="thread", metadata=metadata)

    def get(self, number: int) -> None:
        assert self._storage.get(_SCOPE, fact_id(number))

    def add(self, number: int) -> None:
        self.add_many(range(number, number + 1))

    def update(self, number: int) -> None:
        record = self._storage.get(_SCOPE, fact_id(number))
        assert record is not None
        self._updates += 1
        old = replace(record, id=f"{record.id}-{record.version}", version=0)
        new = replace(record, text=f"{self.material.text(number)} {self._updates}")
        self._storage.commit(_SCOPE, [Put(old, expect=0), Put(new, expect=record.version)])

    def delete(self, number: int) -> None:
        self._storage.commit(_SCOPE, [Delete(fact_id(number))])

    def list_all(self, number: int) -> None:
        assert len(self._storage.snapshot(_SCOPE).records) >= len(self.material) // 2
