"""The Markdown store, by the contract that it shares with DeerMem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nanomem_core import PluginManager

from ..data import Material
from .base import PAGE, Arm, fact_id

__all__ = ["Product"]

_OWNER = {"user_id": "ann", "agent_name": "lead"}


class Product(Arm):
    settings = "upsert_fact, delete_fact, get_fact and list_facts over one Markdown file a fact, fsync; history kept"
    shared = True
    derived = (".derived", ".lock")

    def __init__(self, folder: Path, material: Material, threads: int) -> None:
        super().__init__(folder, material, threads)
        self._plugins = PluginManager.discover()

    def open(self) -> None:
        self._store = self._open()
        self._watchful: Any = None
        self._updates = 0

    def _open(self, **options: Any) -> Any:
        return self._plugins.build("storage", {"use": "markdown", "root": str(self.folder), **options})

    def close(self) -> None:
        self._store.close()
        if self._watchful is not None:
            self._watchful.close()

    def add_many(self, positions: range) -> None:
        self._store.apply_changes({"upserts": [self._fact(p) for p in positions]}, **_OWNER)

    def _fact(self, position: int) -> dict[str, Any]:
        content = self.material.text(position)
        return {
            "id": fact_id(position),
            "content": content,
            "category": "preference",
            "confidence": 0.9,
            "source": "thread",
        }

    def get(self, number: int) -> None:
        assert self._store.get_fact(fact_id(number), **_OWNER)

    def add(self, number: int) -> None:
        self._store.upsert_fact(self._fact(number), **_OWNER)

    def update(self, number: int) -> None:
        fact = self._store.get_fact(fact_id(number), **_OWNER)
        self._updates += 1
        fact["content"] = f"{self.material.text(number)} {self._updates}"
        self._store.upsert_fact(fact, expected_fact_revision=fact["revision"], **_OWNER)

    def delete(self, number: int) -> None:
        assert self._store.delete_fact(fact_id(number), **_OWNER)["deletedFactIds"]

    def list_all(self, number: int) -> None:
        assert len(self._store.list_facts(limit=1 << 40, **_OWNER)) >= len(self.material) // 2

    def page(self, number: int) -> None:
        assert self._store.list_facts(cursor=number, limit=PAGE, **_OWNER)

    def checked_page(self, number: int) -> None:
        if self._watchful is None:
            self._watchful = self._open(check="always")
        assert self._watchful.list_facts(cursor=number, limit=PAGE, **_OWNER)
