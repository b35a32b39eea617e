"""The interface of taggers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ..records import normalize_entity
from .component import Component

if TYPE_CHECKING:
    from .generator import Generator

__all__ = ["Statement", "Tagger"]


class Statement(NamedTuple):
    """Something that a user said, and its entity, where another tagger found it already."""

    text: str
    entity: str | None = None


class Tagger(Component):
    """Guesses which attribute a statement gives a value of, so that undeclared facts can form chains::

        class ColourTagger(Tagger):
            name = "colour"

            def tag(self, text, *, previous=None, generator=None):
                return "favorite_colour" if "colour" in text else None

    A tagger that asks a model overrides `tag_batch`, too, and sets `asks_generator`. Prove it with
    `nanomem_core.testing.TaggerContract`.
    """

    asks_generator: ClassVar[bool] = False
    """True if it wants a generator; others are given None, so that no model is built for them."""

    @abstractmethod
    def tag(self, text: str, *, previous: str | None = None, generator: Generator | None = None) -> str | None:
        """The entity that `text` gives a value of, or None.

        `previous` is the entity of the user's statement before this one, for texts that refer back to it.
        The result is normalised by core.

        Raises:
            GeneratorError: there is no model, or it failed; the next tagger is asked.
        """

    def tag_batch(
        self,
        statements: Sequence[Statement],
        *,
        previous: str | None = None,
        known: Callable[[], Mapping[str, str]] = dict,
        generator: Generator | None = None,
    ) -> list[str | None]:
        """The entity of each of one user's `statements`, in the order in which they were said; one that has an entity
        keeps it. Override it where several can be answered together, or where known entities help.

        Args:
            previous: as in `tag`, for the first of them.
            known: gives the entities that the user has, the one that changed last first, each with its newest
                statement. Finding them takes time, so it is for taggers that need them.

        Raises:
            GeneratorError: as in `tag`; none of the statements is tagged by this tagger then.
        """
        found: list[str | None] = []
        for text, given in statements:
            entity = self.tag(text, previous=previous, generator=generator) if given is None else given
            found.append(None if entity is None else normalize_entity(entity))
            previous = found[-1] or previous
        return found

    def intents(self, question: str) -> Sequence[str]:
        """Entities that `question` may ask about, the likeliest first; empty where the tagger can't tell."""
        return ()

    def same(self, entity: str, other: str) -> bool:
        """True if two entity names mean one attribute; both are in normal form."""
        return entity == other
