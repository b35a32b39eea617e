"""Attribute names: how words become one, and when two names mean one attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanomem_core.errors import InputError
from nanomem_core.records import normalize_entity

from .grammar import Class, Grammar, Words

__all__ = ["OTHER", "Head", "find_class", "in_family", "joined", "meaning", "owner_of", "singular", "without_modifiers"]

OTHER = "other"
"""First word of every attribute that belongs to somebody whom the user did not introduce as theirs."""


@dataclass(frozen=True, slots=True)
class Head:
    """A class that a name ends with, and what is before the head."""

    cls: Class
    qualifiers: Words
    guarded: bool


def find_class(words: Words, grammar: Grammar) -> Head | None:
    """The class whose head is the longest end of `words`; a short head counts alone or with known qualifiers only."""
    for start in range(len(words)):
        head, before = words[start:], words[:start]
        cls = grammar.heads.get(head)
        if cls is None:
            continue
        qualifiers = tuple(word for word in before if word not in cls.redundant)
        if head not in cls.heads and not all(_known(word, grammar) for word in qualifiers):
            return None
        return Head(cls, tuple(grammar.replaced.get(word, word) for word in qualifiers), head in cls.guarded)
    return None


def _known(word: str, grammar: Grammar) -> bool:
    return word in grammar.qualifiers or word in grammar.relations or word in grammar.replaced or word == OTHER


def singular(word: str, grammar: Grammar) -> str:
    """`word` in the singular, by the endings the language lists."""
    for ending, replacement in grammar.singular.items():
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word if word in grammar.plurals else word[: len(word) - len(ending)] + replacement
    return word


def without_modifiers(words: Words, grammar: Grammar) -> tuple[Words, bool]:
    """`words` without the leading ones that only date a value, and whether one of those means a past value."""
    past = False
    while words and words[0] in grammar.past | grammar.present:
        past = past or words[0] in grammar.past
        words = words[1:]
    return words, past


def joined(*parts: Sequence[str]) -> str | None:
    """One attribute name out of words, in normal form; None if there is none."""
    try:
        return normalize_entity("_".join(word for part in parts for word in part))
    except InputError:
        return None


def meaning(entity: str, grammars: Sequence[Grammar]) -> tuple[bool, str, frozenset[str]]:
    """What `entity` stands for: whether it is another person's, the class or the bare name, and the qualifiers."""
    words = tuple(entity.split("_"))
    other = words[0] == OTHER
    bare = words[other:]
    for grammar in grammars:
        spelt = tuple(grammar.spellings.get(word, word) for word in bare)
        bare = without_modifiers(spelt, grammar)[0] or spelt
        head = find_class(bare, grammar)
        if head is not None:
            return other, head.cls.name, frozenset(head.qualifiers)
    return other, "_".join(bare), frozenset()


def in_family(entity: str, family: str, grammars: Sequence[Grammar]) -> bool:
    """Whether `entity` is one of the attributes that the bare name `family` may mean."""
    words = tuple(entity.split("_"))
    return any(words[start:] in g.families.get(family, ()) for g in grammars for start in range(len(words)))


def owner_of(entity: str, grammar: Grammar) -> Words:
    """The words of `entity` that name whose attribute it is; none for the user's own."""
    words = tuple(entity.split("_"))
    if words[0] != OTHER and words[0] not in grammar.relations:
        return ()
    for start in range(1, len(words)):
        if words[start:] in grammar.heads:
            return words[:start]
    return words[:1]
