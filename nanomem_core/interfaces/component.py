"""What every pluggable part is."""

from __future__ import annotations

from abc import ABC
from types import TracebackType
from typing import ClassVar, Self

__all__ = ["Closing", "Component"]


class Closing:
    """What is closed at the end of a ``with`` block."""

    def close(self) -> None:
        """Release what is held. May be called more than once."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Component(Closing, ABC):
    """A part that a plugin offers under a name: a storage, embedder, segmenter, tagger or generator.

    The options of a component are the keyword arguments of its constructor. Their annotations are checked and
    converted by the library (``"64"`` from an environment variable becomes ``64``), so annotate them.
    """

    name: ClassVar[str]
    """The name users choose it by."""
