"""Small components that the tests of the registry build."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanomem_core.interfaces import Embedder, Generator, Tagger


class LengthEmbedder(Embedder):
    name = "length"
    id = "length-1"

    def __init__(self, dim: int = 2, scale: float = 1.0) -> None:
        self._dim = dim
        self.scale = scale

    @property
    def dim(self) -> int:
        return self._dim

    def encode(self, texts: Sequence[str]) -> Any:
        return [[len(text) + 1.0] * self._dim for text in texts]


class OtherLengthEmbedder(LengthEmbedder):
    """Another component of the same name."""


class WideEmbedder(LengthEmbedder):
    name = "wide"


class FileTagger(Tagger):
    name = "file"

    def __init__(self, path: Path = Path("words.txt")) -> None:
        self.path = path

    def tag(self, text: str, *, previous: str | None = None, generator: Generator | None = None) -> str | None:
        return None
