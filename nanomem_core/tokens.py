"""The one tokenizer: keyword search, the lexical embedder, filters and de-duplication all cut texts by these rules.

1. *Folding* (`fold_text`): NFKC and case folding. Latin and Greek letters lose their accents (Café is cafe), and ø, ł,
   đ, æ and their like become plain letters. Digits of every script become 0–9. What can't be seen (soft hyphens,
   joiners, variation selectors, direction marks), skin tones, and commas between thousands vanish.
2. *Words* are runs of letters, digits and combining marks. Words joined by single signs (``GPT-4o``, ``3.11.2``,
   ``zoe@example.com``, ``C++``) give each part, and the whole as one more token: a part is found, and the exact
   spelling scores higher. Beside an apostrophe a single letter is no part: ``Zoe's`` gives ``zoe``, and ``l'avion``
   gives ``avion``; but ``n't`` stays with its verb.
3. *Scripts without spaces* (Chinese, Japanese, Thai, Khmer and others; and Korean, whose particles stick to the word)
   give every pair of neighbouring characters. A text that is indexed gives the single characters as well, a question
   only those that stand alone. So one character can be asked for, while two or more match only as they stand together.
4. *Emoji and other pictographs* are tokens; a joined sequence or a flag is one token. Punctuation gives nothing.
5. A token is cut after 64 characters: a word without end costs no more than reading it.
6. Words are stemmed, as English ones unless another language is named. Accents are gone by then, so a word has one
   stem, however it was typed.
7. A question in English leaves out the words that carry its grammar ("what", "did", "the"), unless nothing else is
   left. They are rare in statements, so a keyword index would take them for the telling words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set
from itertools import pairwise

from .stemming import find_stemmer, stemmer_id

__all__ = ["MAX_TOKEN", "RULES", "Tokenizer", "fold_text"]

RULES = 1
"""Rises with every change of the rules: an index that was made by others can't be asked."""

MAX_TOKEN = 64
"""Characters of a token; what follows is ignored."""

_GRAMMAR_WORDS = """
    a an the this that these those and or but if then than so as of at by for from in into on onto to with about
    i me my mine we our ours you your yours he him his she her hers it its they them their theirs
    am is are was were be been being do does did doing have has had having can could would should shall might must
    what which who whom whose when where why how there here
"""
"""Without "will", "may" and "us", which are also a person, a month and a country."""

_JOINER = 0x200D
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_VARIATION_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_TAGS = range(0xE0020, 0xE0080)  # spell out the flags of regions, behind a black flag
_INVISIBLE_MARKS = (0x034F, 0x115F, 0x1160, 0x20E3)  # grapheme joiner, Hangul fillers, keycap
_PICTOGRAPHS = (
    range(0x2190, 0x2500),  # arrows, technical signs
    range(0x25A0, 0x2C00),  # shapes, weather, dingbats; without box drawing
    range(0x1F000, 0x1FB00),
)
_UNSPACED = (
    range(0x0E00, 0x0F00),  # Thai, Lao
    range(0x1000, 0x10A0),  # Myanmar
    range(0x1100, 0x1200),  # Hangul
    range(0x1780, 0x1800),  # Khmer
    range(0x1950, 0x19E0),  # Tai Le, New Tai Lue
    range(0x1A20, 0x1AB0),  # Tai Tham
    range(0x1B00, 0x1B80),  # Balinese
    range(0x2E80, 0x2FE0),  # Han radicals
    range(0x3005, 0x303D),  # iteration marks and numerals of Han
    range(0x3040, 0x3200),  # Hiragana, Katakana, Bopomofo, Hangul
    range(0x3400, 0x4DC0),  # Han
    range(0x4E00, 0xA000),  # Han
    range(0xA960, 0xAA00),  # Hangul, Javanese, Myanmar
    range(0xAA60, 0xAAE0),  # Myanmar, Tai Viet
    range(0xAC00, 0xD800),  # Hangul
    range(0xF900, 0xFB00),  # Han
    range(0x1AFF0, 0x1B170),  # Kana
    range(0x20000, 0x40000),  # Han
)
_PLAIN = {
    "\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u2010": "-", "\u200b": " ",
    "ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "þ": "th", "ı": "i", "æ": "ae", "œ": "oe",
}  # fmt: skip

# The accents of Latin and Greek letters, and the dots that Russian leaves out as often as not.
_ACCENTS = re.compile(
    "(?<=[a-z\u00df-\u02af\u0370-\u03ff\u1d00-\u1dbf\u2c60-\u2c7f\ua720-\ua7ff\uab30-\uab6f])[\u0300-\u036f]+"
    "|(?<=е)\u0308"
)
_THOUSANDS = re.compile("(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_STRAY_JOINER = re.compile("(?<![{0}])\u200d|\u200d(?![{0}])".format("\u2190-\u2bff\U0001f000-\U0001faff"))


class _Plain(dict[int, str]):
    """What a character becomes in a folded text; filled as characters are met."""

    def __missing__(self, code: int) -> str:
        self[code] = plain = self._find(code)
        return plain

    @staticmethod
    def _find(code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if category == "Nd":
            return str(unicodedata.decimal(char))
        if category == "Cf" and code != _JOINER and code not in _TAGS:
            return ""
        if code in _SKIN_TONES or code in _INVISIBLE_MARKS or any(code in block for block in _VARIATION_SELECTORS):
            return ""
        return char


class _Kinds(dict[int, str]):
    """The kind of a character of a folded text, as one letter; filled as characters are met.

    ``w`` part of a word, ``m`` combining mark, ``u`` unspaced script, ``j`` joins words, ``s`` joins or ends words,
    ``'`` apostrophe, ``p`` pictograph, ``z`` joiner of pictographs, ``t`` tag, ``f`` of a flag, a space the rest.
    """

    def __missing__(self, code: int) -> str:
        self[code] = kind = self._find(code)
        return kind

    @staticmethod
    def _find(code: int) -> str:
        category = unicodedata.category(chr(code))
        if category[0] == "M":
            return "m"
        if category[0] in "LN":
            return "u" if any(code in block for block in _UNSPACED) else "w"
        if code in _FLAG_LETTERS:
            return "f"
        if code in _TAGS:
            return "t"
        # Unassigned ones are emoji that are younger than this Python's character table.
        if category in ("So", "Cn") and any(code in block for block in _PICTOGRAPHS):
            return "p"
        return " "


_plain = _Plain({ord(char): plain for char, plain in _PLAIN.items()})
_kinds = _Kinds({_JOINER: "z", ord("'"): "'", **dict.fromkeys(map(ord, ".-_@:/&"), "j"), **dict.fromkeys(b"+#", "s")})

_RUN = re.compile("w[wm]*(?:['js]w[wm]*)*s{0,2}|(?:um*)+|pt*(?:zpt*)*|ff?")
_JOINED = re.compile("['js]")
_PART = re.compile("w[wm]*")
_CHARACTER = re.compile("um*")

# The same for ASCII texts, without kinds: words, and whether some are joined.
_ASCII_WORD = re.compile(f"([a-z0-9]{{1,{MAX_TOKEN}}})[a-z0-9]*")
_ASCII_JOINED = re.compile("[a-z0-9](?:['._@:/&-][a-z0-9]|[+#])")


def fold_text(text: str) -> str:
    """The form in which texts are compared: rule 1 of the module. Folding a folded text changes nothing."""
    if text.isascii():
        folded = text.lower()
    else:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        folded = _STRAY_JOINER.sub("", unicodedata.normalize("NFD", folded).translate(_plain))
        folded = unicodedata.normalize("NFC", _ACCENTS.sub("", folded))
    return _THOUSANDS.sub("", folded) if "," in folded else folded


class Tokenizer:
    """Cuts texts into tokens by the rules of the module.

    `language` chooses the stemmer: ``english`` (built in), ``none``, or a language of the Snowball project, which needs
    the extra ``stemming``.

    Raises:
        ConfigError: the language is unknown, or its stemmer is not installed.
    """

    def __init__(self, language: str = "english") -> None:
        self._stem = find_stemmer(language)
        self._skipped = frozenset(_GRAMMAR_WORDS.split() if language == "english" else ())
        self.language = language

    @property
    def id(self) -> str:
        """Names the rules and the language: texts that were cut by one are asked by the same."""
        return f"{RULES}-{stemmer_id(self.language)}"

    def index_tokens(self, text: str) -> list[str]:
        """The tokens of a text that is to be found, in order, repeated as often as they occur."""
        return self._tokens(text, singles=True)

    def query_tokens(self, text: str) -> list[str]:
        """The distinct tokens of a question, in order; a text matches it where it has one of them."""
        tokens = dict.fromkeys(self._tokens(text, singles=False, skip=self._skipped))
        return list(tokens or dict.fromkeys(self._tokens(text, singles=False)))

    def _tokens(self, text: str, singles: bool, skip: Set[str] = frozenset()) -> list[str]:
        folded = fold_text(text)
        stem = self._stem
        if folded.isascii() and not _ASCII_JOINED.search(folded):
            # What most texts are, by two scans.
            return [stem(word) for word in _ASCII_WORD.findall(folded) if word not in skip]
        tokens: list[str] = []
        kinds = folded.translate(_kinds)
        for run in _RUN.finditer(kinds):
            start, end = run.span()
            kind = kinds[start]
            if kind == "w":
                whole = folded[start : min(end, start + MAX_TOKEN)]
                if not _JOINED.search(kinds, start, end):
                    if whole not in skip:
                        tokens.append(stem(whole))
                    continue
                parts = [] if folded.endswith("n't", start, end) else self._parts(folded, kinds, start, end)
                tokens += [stem(part) for part in parts if part not in skip]
                if len(parts) != 1 or kinds[end - 1] == "s":
                    tokens.append(whole)
            elif kind == "u":
                spans = (found.span() for found in _CHARACTER.finditer(kinds, start, end))
                characters = [folded[first : min(last, first + MAX_TOKEN // 2)] for first, last in spans]
                if singles or len(characters) == 1:
                    tokens += characters
                tokens += [first + second for first, second in pairwise(characters)]
            else:
                tokens.append(folded[start : min(end, start + MAX_TOKEN)])
        return tokens

    def _parts(self, folded: str, kinds: str, start: int, end: int) -> list[str]:
        parts = []
        for found in _PART.finditer(kinds, start, end):
            first, last = found.span()
            if last - first > 1 or "'" not in (kinds[first - 1 : first], kinds[last : last + 1]):
                parts.append(folded[first : min(last, first + MAX_TOKEN)])
        return parts
