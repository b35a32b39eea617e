"""usearch, exact search."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from usearch.index import MetricKind, search

from .bare import MatrixArm

__all__ = ["Product"]


class Product(MatrixArm):
    settings = "float32 matrix in memory, usearch.index.search(…, MetricKind.IP, exact=True); vectors only, no texts"

    def nearest(self, rows: npt.NDArray[np.float32], query: npt.NDArray[np.float32], k: int) -> list[int]:
        found: list[int] = search(rows, query, k, MetricKind.IP, exact=True, threads=self.threads).keys.tolist()
        return found
