"""The tagger ``keyword``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

from nanomem_core.errors import ConfigError
from nanomem_core.interfaces import Generator, Tagger

from .grammar import Grammar, load
from .names import in_family, meaning
from .reading import Reading
from .sentences import sentences

__all__ = ["KeywordTagger"]

_MAX_SENTENCES = 12


class KeywordTagger(Tagger):
    """Finds the attribute by the wording: "my shoe size is 43" (``shoe_size``), "I live in Oslo" (``location``).

    Attributes that go by several names have one: ``career``, ``location``, ``phone_number``, ``email_address``,
    ``name``, ``birthday`` and others. What tells siblings apart stays in the name (``work_email_address``,
    ``backup_phone_number``, ``sister_location``). What belongs to somebody whom the user does not call theirs begins
    with ``other_`` (``other_dana_phone_number``, or ``other_phone_number`` for "her number"), with which no attribute
    of the user's begins. Wishes, questions, conditions and former values state no present fact and get no tag; nor
    does anything the rules are not sure of.

    Only the first 1000 characters of a text are looked at. `languages` are tried in order; each is a YAML file in
    this package.

    Raises:
        ConfigError: `languages` is empty or names an unknown one.
    """

    name: ClassVar[str] = "keyword"

    def __init__(self, languages: tuple[str, ...] = ("english",)) -> None:
        if not languages:
            raise ConfigError("languages: expected at least one language; found none", key="languages")
        self.languages = tuple(languages)

    @cached_property
    def _grammars(self) -> tuple[Grammar, ...]:
        return tuple(load(language) for language in self.languages)

    def tag(self, text: str, *, previous: str | None = None, generator: Generator | None = None) -> str | None:
        """The attribute that the first telling sentence gives a value of, in normal form, or None.

        `previous` helps where a text refers back: "It is 555-0199 020 now", "She moved to Bergen".
        """
        for reading in self._readings(text):
            entity = reading.statement(previous) or (reading.reference(previous) if previous else None)
            if entity is not None:
                return entity
        return None

    def intents(self, question: str) -> Sequence[str]:
        """The attributes that `question` asks for, the most explicit first."""
        found = (entity for reading in self._readings(question) for entity in reading.intents())
        return tuple(dict.fromkeys(found))

    def same(self, entity: str, other: str) -> bool:
        """True if the names differ only by words for one class, by spelling or by words that date a value.

        The siblings of an attribute differ, and so does what belongs to others. The bare ``credential`` of older vaults
        is the same as any password, key or token.
        """
        if entity == other:
            return True
        one, two = meaning(entity, self._grammars), meaning(other, self._grammars)
        if one == two:
            return True
        return one[0] == two[0] and any(
            in_family(member, family, self._grammars) for family, member in ((entity, other), (other, entity))
        )

    def _readings(self, text: str) -> Iterator[Reading]:
        for grammar in self._grammars:
            for count, sentence in enumerate(sentences(text, grammar)):
                if count == _MAX_SENTENCES:
                    break
                yield Reading(sentence, grammar)
