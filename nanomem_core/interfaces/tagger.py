"""The interface of taggers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .component import Component

if TYPE_CHECKING:
    from .generator import Generator

__all__ = ["Tagger"]


class Tagger(Component):
    """Guesses which attribute a statement gives a value of, so that undeclared facts can form chains::

        class ColourTagger(Tagger):
            name = "colour"

            def tag(self, text, *, previous=None, generator=None):
                return "favorite_colour" if "colour" in text else None

    Prove it with `nanomem_core.testing.TaggerContract`.
    """

    @abstractmethod
    def tag(self, text: str, *, previous: str | None = None, generator: Generator | None = None) -> str | None:
        """The entity that `text` gives a value of, or None.

        `previous` is the entity of the user's statement before this one, for texts that refer back to it.
        The result is normalised by core.
        """

    def intents(self, question: str) -> Sequence[str]:
        """Entities that `question` may ask about, the likeliest first; empty where the tagger can't tell."""
        return ()

    def same(self, entity: str, other: str) -> bool:
        """True if two entity names mean one attribute; both are in normal form."""
        return entity == other
