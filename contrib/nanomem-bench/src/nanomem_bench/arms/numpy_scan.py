"""A bare scan: one product of a matrix and a vector, and the best of it. What memory bandwidth allows in float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .bare import MatrixArm

__all__ = ["Product"]


class Product(MatrixArm):
    settings = "float32 matrix in memory, X @ q and argpartition; vectors only, no texts"

    def nearest(self, rows: npt.NDArray[np.float32], query: npt.NDArray[np.float32], k: int) -> list[int]:
        scores = rows @ query
        best = np.argpartition(scores, len(scores) - k)[-k:]
        found: list[int] = best[np.argsort(-scores[best])].tolist()
        return found
