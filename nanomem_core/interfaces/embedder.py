"""The interface of embedders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..changes import Vectors, check_vectors
from ..errors import EmbedderError, InputError
from .component import Component

__all__ = ["Embedder", "Prefixes"]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What a model wants before a text that is stored, and before a question; for embedders of such models."""

    document: str = ""
    query: str = ""

    def put(self, texts: Sequence[str], *, query: bool = False) -> list[str]:
        """`texts` as the model wants what is stored, or with `query` as it wants questions."""
        return [f"{self.query if query else self.document}{text}" for text in texts]

    def id(self, *parts: str) -> str:
        """The id of an embedder with these prefixes: `parts`, which name what else makes its vectors, and them."""
        named = {"document": self.document, "query": self.query}
        return " ".join([*parts, *(f"{name}={prefix!r}" for name, prefix in named.items() if prefix)])


class Embedder(Component):
    """Turns texts into vectors. The smallest one sets `name`, `id` and `dim`, and implements `encode`::

        class LengthEmbedder(Embedder):
            name = "length"
            id = "length-1"
            dim = 2

            def encode(self, texts):
                return np.array([[len(text), 1.0] for text in texts])

    `encode` need not normalise: core checks the result (rows, width, finite, not zero) and scales it to unit length.
    The same text must always give the same vector; whatever changes the vectors must change `id`, since vectors with
    different ids are never compared. Prove it with `nanomem_core.testing.EmbedderContract`.
    """

    @property
    @abstractmethod
    def id(self) -> str:
        """Names the vector space: algorithm or model, version, and whatever else changes the vectors."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Numbers in a vector."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> npt.ArrayLike:
        """One row for each text, shape (n, dim)."""

    def encode_query(self, text: str) -> npt.ArrayLike:
        """The row of a question; override where questions are encoded differently from statements."""
        return self.encode([text])

    # Core gives these.

    def embed_batch(self, texts: Sequence[str]) -> Vectors:
        """Checked unit rows, float32, shape (len(texts), dim).

        Raises:
            EmbedderError: the rows are of the wrong number, width or value.
        """
        if not texts:
            return np.empty((0, self.dim), np.float32)
        return self._checked(self.encode(list(texts)), len(texts))

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        """The unit vector of one text, shape (dim,)."""
        vector: npt.NDArray[np.float32] = self.embed_batch([text])[0]
        return vector

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """The unit vector of a question, shape (dim,)."""
        vector: npt.NDArray[np.float32] = self._checked(self.encode_query(text), 1)[0]
        return vector

    def _checked(self, rows: npt.ArrayLike, expected: int) -> Vectors:
        try:
            vectors = check_vectors(rows, self.dim, f"embedder {self.name!r}")
        except InputError as error:
            raise EmbedderError(str(error)) from error
        if len(vectors) != expected:
            raise EmbedderError(
                f"embedder {self.name!r}: expected {expected} rows for {expected} texts; found {len(vectors)}"
            )
        return vectors
