"""LanceDB without an index: a flat scan."""

from __future__ import annotations

from typing import Any

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..data import K
from .base import Arm

__all__ = ["Product"]


class Product(Arm):
    settings = "flat search (no index), dot product, float32; compacted by optimize() when the store is built"

    def open(self) -> None:
        self._schema = pa.schema(
            [
                pa.field("id", pa.int64()),
                pa.field("text", pa.string()),
                pa.field("bucket", pa.int32()),
                pa.field("vector", pa.list_(pa.float32(), self.material.dim)),
            ]
        )
        self._table: Any = lancedb.connect(str(self.folder)).create_table("memory", schema=self._schema, exist_ok=True)
        self._many = False

    def close(self) -> None:
        if self._many:
            self._table.optimize()

    def add_many(self, positions: range) -> None:
        self._add(positions)
        self._many = True

    def _add(self, positions: range) -> None:
        vectors = pa.array(self.material.matrix(positions).reshape(-1))
        rows = {
            "id": list(positions),
            "text": [self.material.text(p) for p in positions],
            "bucket": [self.material.bucket(p) for p in positions],
            "vector": pa.FixedSizeListArray.from_arrays(vectors, self.material.dim),
        }
        self._table.add(pa.table(rows, schema=self._schema))

    def stored(self) -> npt.NDArray[np.float32]:
        table = self._table.to_arrow()
        vectors: npt.NDArray[np.float32] = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
        result = np.empty_like(vectors)
        result[table["id"].to_numpy()] = vectors
        return result

    def search(self, number: int) -> list[int]:
        query = self.material.query(number)
        found = self._table.search(query).distance_type("dot").limit(K).select(["id", "text", "_distance"]).to_arrow()
        hits: list[int] = found["id"].to_pylist()
        return hits

    def get(self, number: int) -> None:
        assert self._table.search().where(f"id = {number}").limit(1).to_list()

    def add(self, number: int) -> None:
        self._add(range(number, number + 1))

    def delete(self, number: int) -> None:
        self._table.delete(f"id = {number}")
