"""Facts in one SQLite file: what durable facts cost without files that people can edit."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from .base import PAGE, Arm, fact_id, immediate

__all__ = ["Product"]

_TABLES = """
CREATE TABLE IF NOT EXISTS facts(
    number INTEGER PRIMARY KEY, id TEXT UNIQUE, content TEXT, category TEXT, confidence REAL, source TEXT,
    created REAL, updated REAL, revision INTEGER
);
CREATE TABLE IF NOT EXISTS history(
    id TEXT, revision INTEGER, content TEXT, replaced REAL, PRIMARY KEY(id, revision)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(content);
"""


class Product(Arm):
    settings = "a row a fact, a history row, an FTS5 row in one transaction; WAL, synchronous=FULL: the reference"
    shared = True

    def open(self) -> None:
        self._db = sqlite3.connect(self.folder / "facts.db", timeout=60, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_TABLES)
        self._updates = 0

    def close(self) -> None:
        self._db.close()

    def add_many(self, positions: range) -> None:
        now = time.time()
        with immediate(self._db):
            for position in positions:
                content = self.material.text(position)
                number = self._db.execute(
                    "INSERT INTO facts VALUES (NULL, ?, ?, 'preference', 0.9, 'thread', ?, ?, 1)",
                    (fact_id(position), content, now, now),
                ).lastrowid
                self._db.execute("INSERT INTO words(rowid, content) VALUES (?, ?)", (number, content))

    def _fact(self, id: str) -> dict[str, Any]:
        return dict(self._db.execute("SELECT * FROM facts WHERE id = ?", (id,)).fetchone())

    def get(self, number: int) -> None:
        assert self._fact(fact_id(number))

    def add(self, number: int) -> None:
        self.add_many(range(number, number + 1))

    def update(self, number: int) -> None:
        self._updates += 1
        content, now = f"{self.material.text(number)} {self._updates}", time.time()
        with immediate(self._db):
            fact = self._fact(fact_id(number))
            self._db.execute(
                "INSERT INTO history VALUES (?, ?, ?, ?)", (fact["id"], fact["revision"], fact["content"], now)
            )
            self._db.execute(
                "UPDATE facts SET content = ?, updated = ?, revision = revision + 1 WHERE number = ?",
                (content, now, fact["number"]),
            )
            self._db.execute("UPDATE words SET content = ? WHERE rowid = ?", (content, fact["number"]))

    def delete(self, number: int) -> None:
        with immediate(self._db):
            fact = self._fact(fact_id(number))
            self._db.execute("DELETE FROM facts WHERE number = ?", (fact["number"],))
            self._db.execute("DELETE FROM history WHERE id = ?", (fact["id"],))
            self._db.execute("DELETE FROM words WHERE rowid = ?", (fact["number"],))

    def list_all(self, number: int) -> None:
        rows = [dict(row) for row in self._db.execute("SELECT * FROM facts ORDER BY id")]
        assert len(rows) >= len(self.material) // 2

    def page(self, number: int) -> None:
        last = self._db.execute("SELECT id FROM facts ORDER BY id LIMIT 1 OFFSET ?", (number,)).fetchone()["id"]
        found = self._db.execute("SELECT * FROM facts WHERE id >= ? ORDER BY id LIMIT ?", (last, PAGE))
        assert [dict(row) for row in found]
