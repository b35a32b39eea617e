"""Texts as sentences, and sentences as words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .grammar import Grammar

__all__ = ["Sentence", "sentences", "shape_of"]

MAX_CHARACTERS = 1000
"""What is looked at of a text: a statement of an attribute is short, and a document is none."""

_END = re.compile(r"(?<=[.!?])\s+|[\n;]+")
_END_BUT_ORDINALS = re.compile(r"(?<![0-9]\.)(?<=[.!?])\s+|[\n;]+")
_WORD = re.compile(r"[+(]?[^\W_]+(?:[-'._@+/&:#_=?%~]+[^\W_]+)*'?|[,:=()\"]")


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence as words.

    Attributes:
        words: in lower case, contractions resolved; a possessive ending is a word of its own.
        shown: the written form of each.
        asks: it ends with a question mark.
    """

    words: tuple[str, ...]
    shown: tuple[str, ...]
    asks: bool

    @cached_property
    def text(self) -> str:
        """The words joined, begun and ended by single spaces, which patterns match."""
        return f" {' '.join(self.words)} "

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each word begins in `text`."""
        found, at = [], 1
        for word in self.words:
            found.append(at)
            at += len(word) + 1
        return tuple(found)

    def clause(self, start: int, end: int) -> tuple[int, int]:
        """The part of `text` between the commas around a stretch of it."""
        before = self.text.rfind(" , ", 0, start + 1)
        after = self.text.find(" , ", max(end - 1, 0))
        return (before + 2 if before >= 0 else 0), (after + 1 if after >= 0 else len(self.text))


def sentences(text: str, grammar: Grammar) -> Iterator[Sentence]:
    """The sentences at the beginning of `text`."""
    head = text[:MAX_CHARACTERS]
    if len(text) > MAX_CHARACTERS:
        head = head[: head.rfind(" ") + 1]  # a word that is cut off would be another word
    normal = unicodedata.normalize("NFKC", head).replace("’", "'").replace("‘", "'")
    end = _END_BUT_ORDINALS if grammar.ordinals_have_dots else _END
    for part in end.split(normal):
        words: list[str] = []
        shown: list[str] = []
        for written in _WORD.findall(part):
            for word in _resolved(written.lower(), grammar):
                words.append(word)
                shown.append(written)
        if words:
            yield Sentence(tuple(words), tuple(shown), part.rstrip(" \"')").endswith("?"))


def _resolved(word: str, grammar: Grammar) -> Iterator[str]:
    if word in grammar.contractions:
        yield from grammar.contractions[word]
        return
    for mark in grammar.possessive_marks:
        if word.endswith(mark) and len(word) > len(mark):
            yield from _resolved(word[: -len(mark)], grammar)
            yield mark
            return
    plural = word.endswith("s'") and "'s" in grammar.possessive_marks
    word = word.rstrip("'")
    yield grammar.spellings.get(word, word)
    if plural:
        yield "'s"


_EMAIL = re.compile(r"[^@ ]+@[^@ ]+\.[a-z]{2,}")
_URL = re.compile(r"https?:/|www\.|(?:[a-z0-9-]+\.)+[a-z]{2,}(?:/|$)")
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}$")
_IPV6 = re.compile(r"[0-9a-f]{1,4}(?::{1,2}[0-9a-f]{1,4}){2,7}$")
_MIN_PHONE_DIGITS = 6


def shape_of(words: tuple[str, ...], shape: str) -> bool:
    """Whether a value of this shape is among `words`."""
    if shape == "email":
        return any(_EMAIL.match(word) for word in words)
    if shape == "url":
        return any(_URL.match(word) and "@" not in word for word in words)
    if shape == "ip":
        return any(_IPV4.match(word) or _IPV6.match(word) for word in words)
    digits = 0
    for word in words:
        if word[0].isdigit() or word[0] in "+(":
            digits += sum(char.isdigit() for char in word)
            if digits >= _MIN_PHONE_DIGITS:
                return True
        elif word not in "()":
            digits = 0
    return False
