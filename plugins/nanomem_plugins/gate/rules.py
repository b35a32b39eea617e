"""The rules, and the languages that they know.

They judge only what is plain by its form, and leave the rest, and every language that they don't know, to others:

* What says to be remembered is stored, and what says not to be remembered, is not. ``private`` phrases at the start
  cover all that follows; ``forget`` phrases only the sentence that they begin, so with another one nothing is judged.
* What consists of ``nothing`` phrases alone (thanks, greetings, yes and no), or holds no letter and no digit, or one or
  two ASCII letters and nothing else, tells nothing.
* What consists of questions alone tells nothing, unless it lets something slip: a question that has a word of its
  speaker's ``own`` elsewhere than as its subject or at its end, one of ``clauses``, or a comma, may ("what can I cook,
  now that my daughter is vegan?").

A language is a YAML file in this package whose parts are lists of phrases in lower case: ``openers`` (which may stand
before a command or question), ``remember``, ``private``, ``forget``, ``nothing``, ``question_words``, ``verbs``
(finite, which stand before the subject in a question), ``subjects`` (what may follow them), ``own``, ``possessives``
(those of ``own`` that a noun follows), ``clauses``; and ``verb_second``, ``true`` if a verb of any kind follows a
question word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from itertools import islice
from typing import Any

from nanomem_core.hookspecs import StoreVerdict

__all__ = ["Language", "judge", "languages"]

_LONGEST = 600
"""Characters; whoever writes more than this tells something."""

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_PAUSE = re.compile(r"[,;:()–—]| - ")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")

Words = tuple[str, ...]


def judge(text: str) -> StoreVerdict | None:
    """What the rules say of `text`; None if they can't tell."""
    marks = [char for char in text if char.isalnum()]
    if not marks:
        return StoreVerdict(False, "there is no word in it")
    if len(text) > _LONGEST:
        return None
    known = [load(name) for name in languages()]
    for rule in (Language.command, Language.small_talk, Language.questions):
        for language in known:
            verdict = rule(language, text)
            if verdict is not None:
                return verdict
    if len(marks) < 3 and all(char.isascii() and char.isalpha() for char in marks):
        return StoreVerdict(False, "too short to tell anything")
    return None


class Language:
    """The phrases of one language, and what they tell."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.openers = _Phrases(data["openers"])
        self.remember = _Phrases(data["remember"])
        self.private = _Phrases(data["private"])
        self.forget = _Phrases(data["forget"])
        self.nothing = _Phrases(data["nothing"])
        self.question_words = _folded(data["question_words"])
        self.verbs = _folded(data["verbs"])
        self.subjects = _folded(data["subjects"])
        self.own = _folded(data["own"])
        self.possessives = _folded(data["possessives"])
        self.clauses = _folded(data["clauses"])
        self.verb_second = data.get("verb_second") == "true"

    def command(self, text: str) -> StoreVerdict | None:
        """What the text itself says about being remembered."""
        words = self._opened(_words(text))
        if self.private.begins(words):
            return StoreVerdict(False, "it says not to be remembered")
        if text.rstrip().endswith("?"):
            return None
        if self.remember.begins(words):
            return StoreVerdict(True, "it says to be remembered")
        if self.forget.begins(words) and len(_sentences(text)) == 1:
            return StoreVerdict(False, "it says to forget something")
        return None

    def small_talk(self, text: str) -> StoreVerdict | None:
        """That the text is made of nothing but thanks, greetings, consent and the like."""
        words = _words(text)
        while words:
            length = self.nothing.begins(words)
            if not length:
                return None
            words = words[length:]
        return StoreVerdict(False, "it is small talk")

    def questions(self, text: str) -> StoreVerdict | None:
        """That the text only asks."""
        if all(self._only_asks(sentence) for sentence in _sentences(text)):
            return StoreVerdict(False, "it only asks")
        return None

    def _only_asks(self, sentence: str) -> bool:
        words = self._opened(_words(sentence))
        first = len(_words(sentence)) - len(words)
        start = next((match.start() for match in islice(_WORD.finditer(sentence), first, None)), 0)
        if not sentence.endswith("?") or _PAUSE.search(sentence, start):
            return False
        if len(words) < 2:
            return bool(words) and words[0] in self.question_words
        asks = words[0] in self.question_words or (words[0] in self.verbs and words[1] in self.subjects)
        return asks and self.clauses.isdisjoint(words[2:]) and not any(self._slips(words, n) for n in range(len(words)))

    def _slips(self, words: Words, place: int) -> bool:
        """True if the word at `place` speaks of the speaker where it is not what is asked about."""
        if words[place] not in self.own:
            return False
        is_subject = words[place - 1] in self.verbs or (self.verb_second and place == 2)
        left = len(words) - place - 1
        return not (is_subject or left == 0 or (left == 1 and words[place] in self.possessives))

    def _opened(self, words: Words) -> Words:
        while length := self.openers.begins(words):
            words = words[length:]
        return words


class _Phrases:
    """Phrases that texts may begin with."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases = {_words(phrase) for phrase in phrases}
        self._lengths = sorted({len(phrase) for phrase in self._phrases}, reverse=True)

    def begins(self, words: Sequence[str]) -> int:
        """Words of the longest phrase that `words` begin with; 0 if there is none."""
        return next((length for length in self._lengths if tuple(words[:length]) in self._phrases), 0)


def _folded(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word.casefold() for word in words)


def _words(text: str) -> Words:
    return tuple(_WORD.findall(text.casefold().replace("’", "'")))


def _sentences(text: str) -> list[str]:
    return [sentence for part in _SENTENCE.split(text) if (sentence := part.strip())]


@lru_cache
def languages() -> tuple[str, ...]:
    """Names of the languages there are."""
    files = resources.files(__package__).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


@lru_cache
def load(name: str) -> Language:
    """The language of that name; its file is read once."""
    import yaml

    text = resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    # The base loader keeps every scalar a text: in YAML, `no` and `yes` would be truth values.
    return Language(yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)))
