"""How a long text becomes the passages that are embedded.

A record stays one value whatever its length; only its vectors follow the passages, one row each. Vectors are derived
data, so the cut is a pure function of the text.

Length is counted in *words*, by one rule for every script: a run of non-space characters is one word, or one word
for every 64 characters begun where it is longer (a URL, an encoded blob), or one word for every 3 characters where at
least a fifth of it belongs to a script that is written without spaces. So 500 words are about 1500 such characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["MAX_WORDS", "OVERLAP_WORDS", "UNSPACED_CHAR", "count_words", "passages"]

MAX_WORDS = 500
"""Words of a passage at most; a text of no more is its own only passage."""

OVERLAP_WORDS = 40
"""Words at the end of a passage that the next one repeats, at most."""

UNSPACED_CHAR = (  # compiled when it is needed, since that takes as long as importing all the rest
    "[\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff"  # Thai, Lao, Burmese, Hangul letters, Khmer
    "\u3000-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"  # kana, Han, Hangul
    "\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"  # compatibility and full-width forms, further Han
)
"""A regular expression for one character of a script that is written without spaces."""

# Costs are whole numbers, in 1/192 word: 3 for a character of a long run, 64 for one of an unspaced script.
_WORD = 192
_LONG = 3
_UNSPACED = 64
_PIECE = {_LONG: 64, _UNSPACED: 40}
"""Characters of the pieces that a long run is cut into, by the cost of a character."""

_RUN = re.compile(r"\S+")
_SENTENCE_END = re.compile(r"[.!?…。！？．][\"'”’»)\]」』）】]*\Z")
_INNER_END = re.compile(r"[^。！？]*[。！？]+[」』）】”’]*|[^。！？]+")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


class _Atom(NamedTuple):
    """What is never cut: a word, or a piece of a long run. `rank` tells how good a cut before it is, 0 to 2."""

    start: int
    end: int
    cost: int
    rank: int


def count_words(text: str) -> int:
    """The length of `text` in words, as this module counts them, rounded up."""
    return -(-sum(_cost(run.group())[0] for run in _RUN.finditer(text)) // _WORD)


def passages(text: str) -> list[str]:
    """The passages of `text` in order, each a stretch of it, verbatim, of at most 500 words.

    A text of up to 500 words gives exactly ``[text]``. A longer one is cut at the last paragraph in the second half of
    the 500 words, else at the last end of a sentence there, else after the 500th word; neighbours share at most 40
    words. No character but white space at the cuts and ends is lost. Takes time linear in the length.
    """
    # No word is shorter than a character, so most texts need no counting.
    if len(text) <= MAX_WORDS or count_words(text) <= MAX_WORDS:
        return [text]
    atoms = list(_atoms(text))
    found = []
    first = 0
    while True:
        stop = _cut(atoms, first)
        found.append(text[atoms[first].start : atoms[stop - 1].end])
        if stop == len(atoms):
            return found
        first = _overlap(atoms, stop)


def _cut(atoms: list[_Atom], first: int) -> int:
    """Where the passage that begins with atom `first` ends (exclusive)."""
    cost, stop, best, best_rank = 0, first, first, 0
    while stop < len(atoms) and cost + atoms[stop].cost <= MAX_WORDS * _WORD:
        rank = atoms[stop].rank
        if rank and rank >= best_rank and 2 * cost >= MAX_WORDS * _WORD:
            best, best_rank = stop, rank
        cost += atoms[stop].cost
        stop += 1
    if stop == len(atoms) or not best_rank or atoms[stop].rank >= best_rank:
        return stop
    return best


def _overlap(atoms: list[_Atom], stop: int) -> int:
    """The atom the next passage begins with, given that the last one ended before `stop`."""
    cost, first = 0, stop
    while cost + atoms[first - 1].cost <= OVERLAP_WORDS * _WORD:
        first -= 1
        cost += atoms[first].cost
    return first


def _atoms(text: str) -> Iterator[_Atom]:
    end = 0
    sentence = False
    for run in _RUN.finditer(text):
        rank = int(sentence)
        if _BLANK_LINE.search(text, end, run.start()):
            rank = 2
        word, end = run.group(), run.end()
        sentence = _SENTENCE_END.search(word, max(0, len(word) - 8)) is not None
        cost, rate = _cost(word)
        if cost == _WORD:
            yield _Atom(run.start(), end, cost, rank)
        else:
            yield from _pieces(word, run.start(), rate, rank)


def _pieces(word: str, offset: int, rate: int, rank: int) -> Iterator[_Atom]:
    for clause in _INNER_END.finditer(word):
        for start in range(clause.start(), clause.end(), _PIECE[rate]):
            stop = min(start + _PIECE[rate], clause.end())
            yield _Atom(offset + start, offset + stop, rate * (stop - start), rank)
            rank = 0
        rank = 1


def _cost(word: str) -> tuple[int, int]:
    """The cost of a run of non-space characters, and of each of its characters where it must be cut."""
    if not word.isascii() and 5 * len(re.findall(UNSPACED_CHAR, word)) >= len(word):
        return max(_WORD, _UNSPACED * len(word)), _UNSPACED
    return max(_WORD, _LONG * len(word)), _LONG
