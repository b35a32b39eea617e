"""sqlite-vec."""

from __future__ import annotations

import json
from typing import Any

import apsw
import numpy as np
import numpy.typing as npt
import sqlite_vec

from ..data import K
from .base import Arm, immediate

__all__ = ["Product"]

_SEARCH = """
    SELECT records.id, records.text, hits.distance
    FROM (SELECT rowid, distance FROM vectors WHERE vector MATCH ? AND k = ?) AS hits
    JOIN records ON records.id = hits.rowid ORDER BY hits.distance
"""


class Product(Arm):
    settings = (
        "vec0 table, float32, L2 (on unit vectors the order of the cosine, and cheaper than its cosine); "
        "texts in a table beside it; WAL, synchronous=FULL, mapped"
    )
    shared = True

    def open(self) -> None:
        db: Any = apsw.Connection(str(self.folder / "memory.db"))
        db.set_busy_timeout(60_000)
        db.enable_load_extension(True)
        db.load_extension(sqlite_vec.loadable_path())
        self._db = db
        # The mapping and the cache are as large as they help: the whole file is read by every search.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"mmap_size={1 << 40}", "cache_size=-65536"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("CREATE TABLE IF NOT EXISTS records(id INTEGER PRIMARY KEY, text TEXT, metadata TEXT)")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'vectors'").fetchall():
            db.execute(f"CREATE VIRTUAL TABLE vectors USING vec0(vector float[{self.material.dim}])")

    def close(self) -> None:
        self._db.close()

    def add_many(self, positions: range) -> None:
        rows = self.material.matrix(positions)
        with immediate(self._db):
            self._db.executemany("INSERT INTO records VALUES (?, ?, ?)", map(self._row, positions))
            self._db.executemany(
                "INSERT INTO vectors(rowid, vector) VALUES (?, ?)",
                ((p, row.tobytes()) for p, row in zip(positions, rows, strict=True)),
            )

    def _row(self, position: int) -> tuple[int, str, str]:
        return position, self.material.text(position), json.dumps({"bucket": self.material.bucket(position)})

    def stored(self) -> npt.NDArray[np.float32]:
        rows = self._db.execute("SELECT vector FROM vectors ORDER BY rowid").fetchall()
        return np.frombuffer(b"".join(row[0] for row in rows), np.float32).reshape(len(rows), -1)

    def search(self, number: int) -> list[int]:
        query = self.material.query(number).tobytes()
        return [row[0] for row in self._db.execute(_SEARCH, (query, K)).fetchall()]

    def get(self, number: int) -> None:
        assert self._db.execute("SELECT * FROM records WHERE id = ?", (number,)).fetchall()

    def add(self, number: int) -> None:
        self.add_many(range(number, number + 1))

    def delete(self, number: int) -> None:
        with immediate(self._db):
            self._db.execute("DELETE FROM records WHERE id = ?", (number,))
            self._db.execute("DELETE FROM vectors WHERE rowid = ?", (number,))
