"""Stemmers: what makes ``hiking`` and ``hikes`` one word for a keyword search.

English is built in, so that results never depend on what happens to be installed. The other languages are those of the
Snowball project, through the package of the extra ``stemming``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module

from .errors import ConfigError

__all__ = ["Stemmer", "find_stemmer", "stemmer_id"]

Stemmer = Callable[[str], str]
"""Takes a word in lower case and returns its stem. Safe to call from several threads."""

_CACHED_WORDS = 1 << 16


@cache
def find_stemmer(language: str) -> Stemmer:
    """The stemmer of a language: ``english``, ``none`` (words stay as they are), or a language of Snowball.

    Raises:
        ConfigError: the language is unknown, or needs the extra ``stemming``, which is not installed.
    """
    if language == "none":
        return str
    if language == "english":
        return _stem_english
    try:
        snowballstemmer = import_module("snowballstemmer")
    except ImportError:
        raise ConfigError(
            f"language: {language!r} needs the package snowballstemmer, which is not installed; run "
            f"`pip install 'nanomem-core[stemming]'`, or choose 'english' or 'none'",
            key="language",
        ) from None
    known = snowballstemmer.algorithms()
    if language not in known:
        raise ConfigError(
            f"language: expected 'none' or one of {', '.join(sorted(known))}; found {language!r}", key="language"
        )
    stem_word = snowballstemmer.stemmer(language).stemWord
    lock = threading.Lock()

    @lru_cache(_CACHED_WORDS)
    def stem(word: str) -> str:
        # A Snowball stemmer keeps its cursor in itself.
        with lock:
            stemmed: str = stem_word(word)
        return stemmed or word

    return stem


def stemmer_id(language: str) -> str:
    """Names the stemmer of a language. Another release of Snowball may have other stems, so it has another name."""
    if language in ("english", "none"):
        return language
    from importlib.metadata import version

    return f"{language}-{version('snowballstemmer')}"


_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "abli": "able", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = dict.fromkeys(
    ("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
     "ous", "ive", "ize"), ""
)  # fmt: skip


@lru_cache(_CACHED_WORDS)
def _stem_english(word: str) -> str:
    """The stem of a lower-case word after Porter, "An algorithm for suffix stripping" (Program 14(3), 1980).

    The algorithm of the paper, without its author's later changes. Words of up to two letters, and words with other
    characters than a to z, are returned as they are.
    """
    if len(word) <= 2 or not (word.isascii() and word.isalpha()):
        return word
    for step in (_plural, _past, _final_y):
        word = step(word)
    word = _replace(word, _STEP_2, 0)
    word = _replace(word, _STEP_3, 0)
    word = _replace(word, _STEP_4, 1)
    return _final_e(word)


def _shape(word: str) -> str:
    """One letter for each of `word`: ``v`` for a vowel, ``c`` for a consonant; a y after a consonant is a vowel."""
    shape = ""
    for letter in word:
        shape += "v" if letter in "aeiou" or (letter == "y" and shape.endswith("c")) else "c"
    return shape


def _measure(word: str) -> int:
    """The paper's m: how often consonants follow vowels."""
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """The paper's \\*o: it ends in consonant, vowel, consonant, and the last is not w, x or y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if not word.endswith(suffix):
            continue
        rest = word.removesuffix(suffix)
        if "v" not in _shape(rest):
            return word
        if rest.endswith(("at", "bl", "iz")):
            return rest + "e"
        if _ends_double(rest) and rest[-1] not in "lsz":
            return rest[:-1]
        return rest + "e" if _measure(rest) == 1 and _ends_short(rest) else rest
    return word


def _final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and "v" in _shape(word[:-1]) else word


def _replace(word: str, endings: dict[str, str], more_than: int) -> str:
    """Replace the longest ending of `word`, if what is left has a measure above `more_than`."""
    for length in range(7, 1, -1):
        ending = word[-length:]
        if ending not in endings or len(word) < length:
            continue
        rest = word[:-length]
        allowed = _measure(rest) > more_than and (ending != "ion" or rest.endswith(("s", "t")))
        return rest + endings[ending] if allowed else word
    return word


def _final_e(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        if _measure(rest) > 1 or (_measure(rest) == 1 and not _ends_short(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
