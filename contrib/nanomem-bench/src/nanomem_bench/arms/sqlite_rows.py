"""Plain SQLite: a durable commit of the same bytes, with no index for vectors."""

from __future__ import annotations

import json
import sqlite3

import numpy as np

from .base import Arm, immediate

__all__ = ["Product"]


class Product(Arm):
    settings = "rows (id, text, metadata, float16 vector), WAL, synchronous=FULL: the reference for a durable commit"
    shared = True

    def open(self) -> None:
        self._db = sqlite3.connect(self.folder / "memory.db", timeout=60, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS records(id INTEGER PRIMARY KEY, text, metadata, vector)")

    def close(self) -> None:
        self._db.close()

    def add_many(self, positions: range) -> None:
        vectors = self.material.matrix(positions).astype(np.float16)
        rows = [
            (p, self.material.text(p), json.dumps({"bucket": self.material.bucket(p)}), vector.tobytes())
            for p, vector in zip(positions, vectors, strict=True)
        ]
        with immediate(self._db):
            self._db.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)

    def get(self, number: int) -> None:
        assert self._db.execute("SELECT * FROM records WHERE id = ?", (number,)).fetchone()

    def add(self, number: int) -> None:
        self.add_many(range(number, number + 1))

    def delete(self, number: int) -> None:
        self._db.execute("DELETE FROM records WHERE id = ?", (number,))
