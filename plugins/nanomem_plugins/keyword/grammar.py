"""The vocabulary of a language, read from its YAML file and compiled.

A file is a mapping with these parts; every scalar is a text, and all words are in lower case.

* Whose: ``own_subjects`` (I), ``own_objects`` (me), ``own_possessives`` (my), ``own_owners`` (the user), whose
  possessions are the user's own, ``no_owners`` (today), who have none, ``other_subjects`` (she),
  ``other_possessives`` (her), ``possessive_marks`` ('s), ``articles``, ``relations`` (people with attributes of their
  own).
* What: ``stops`` (what an attribute's name never holds), ``generic`` heads (that name no attribute), ``bare`` heads
  (that name none alone), ``qualifiers`` (words that tell siblings apart), ``replaced_qualifiers``,
  ``trusted_qualifiers`` (words that make any head an attribute but a ``vague`` one), ``past_modifiers`` and
  ``present_modifiers`` (words that only date a value), ``singular`` (ending: replacement, the first that fits),
  ``plurals`` (words without a singular), ``families`` (bare name: its heads).
* Statements: ``connectives`` (what may stand before the subject of a clause), ``copulas``, ``past_copulas``,
  ``naming`` (called), ``change_verbs`` with ``change_targets``, ``negations``, ``states`` and ``verb_endings`` (what
  follows a copula but is no value), ``places`` (what begins a value of known attributes only), ``anaphors`` (it),
  ``revision_marks`` (words that show that a value is new), ``question_words``, ``sure_questions`` (which need no
  question mark), and ``unreal`` patterns of clauses that state no fact.
* Spelling: ``contractions`` and ``spellings`` (word: replacement), ``capitals_are_names`` (whether a capital inside a
  sentence shows that a word is a name), ``ordinals_have_dots`` (whether "4." may be a number inside a sentence).
* ``classes``: for each attribute its ``heads``, its ``short`` heads (which count alone or with known qualifiers), its
  ``guarded`` heads (after which one of the ``openers`` must follow, too), its ``redundant`` qualifiers, and the
  ``shape`` of its values (``phone``, ``email``, ``url`` or ``ip``).
* ``frames`` and ``questions``: patterns of statements and questions about an ``entity``. A ``weak`` frame yields to
  words for work, and ``unless`` excludes clauses with these words.

A pattern is a sequence of items, each matching words: ``a|b`` is one of these (``_`` stands for a space), ``<name>``
an entry of ``lists``, ``[a|b]`` up to two of these or none, ``*`` any word, ``..`` up to three words, ``#`` a word
that begins with a digit, ``!a|b`` none of these, ``^`` the start of a sentence, ``<s>`` the subject, ``<s?>`` the
subject or the start of a sentence, ``<o>`` the user as object. Repetitions are bounded, so that no pattern takes more
than linear time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib import resources
from typing import Any

from nanomem_core.errors import ConfigError

__all__ = ["Class", "Frame", "Grammar", "Pattern", "Phrases", "languages", "load"]

Words = tuple[str, ...]


class Pattern:
    """A regular expression, compiled when a text may match it for the first time.

    Compiling them all takes longer than many programs run, and most texts lack the words of most patterns.

    Args:
        source: gives the expression.
        needed: groups of literal texts; what holds none of a group can't match.
    """

    def __init__(self, source: Callable[[], str], needed: Sequence[Sequence[str]] = ()) -> None:
        self._source = source
        self._needed = needed

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self._source())

    def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        """The first match between `start` and `end` in words that are joined, begun and ended by single spaces."""
        if all(any(phrase in text for phrase in phrases) for phrases in self._needed):
            return self.compiled.search(text, start, end)
        return None


@dataclass(frozen=True, slots=True)
class Frame:
    """Patterns whose match shows that a clause is about `entity`."""

    entity: str
    patterns: tuple[Pattern, ...]
    shape: str | None = None
    weak: bool = False
    unless: Pattern | None = None


@dataclass(frozen=True, slots=True)
class Class:
    """An attribute that goes by several names; `openers` holds what must follow a guarded head."""

    name: str
    shape: str | None
    heads: frozenset[Words]
    short: frozenset[Words]
    guarded: frozenset[Words]
    openers: frozenset[str]
    redundant: frozenset[str]


class Phrases:
    """A set of phrases, to be found at a place in a list of words."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._by_first: dict[str, list[Words]] = {}
        for phrase in sorted(phrases, key=len, reverse=True):
            words = _split(phrase)
            self._by_first.setdefault(words[0], []).append(words)

    def length_at(self, words: Sequence[str], at: int) -> int:
        """Words of the longest phrase that stands at `at`; 0 for none."""
        if at >= len(words):
            return 0
        candidates = self._by_first.get(words[at], ())
        return next((len(phrase) for phrase in candidates if tuple(words[at : at + len(phrase)]) == phrase), 0)


class Grammar:
    """A compiled language; the attributes are named like the parts of its file."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        words = {name: frozenset(data.get(name, ())) for name in _WORD_LISTS}
        self.own_possessives = words["own_possessives"]
        self.own_owners = words["own_owners"]
        self.other_subjects = words["other_subjects"]
        self.other_possessives = words["other_possessives"]
        self.possessive_marks = words["possessive_marks"]
        self.relations = words["relations"]
        self.stops = words["stops"]
        self.bare = words["bare"]
        self.generic = words["generic"]
        self.qualifiers = words["qualifiers"]
        self.trusted = words["trusted_qualifiers"]
        self.past = words["past_modifiers"]
        self.present = words["present_modifiers"]
        self.change_verbs = words["change_verbs"]
        self.change_targets = words["change_targets"]
        self.anaphors = words["anaphors"]
        self.connectives = words["connectives"]
        self.vague = words["vague"]
        self.articles = words["articles"]
        self.naming = words["naming"]
        self.no_owners = words["no_owners"]
        self.negations = words["negations"]
        self.plurals = words["plurals"]
        self.verb_endings = words["verb_endings"]
        self.states = Phrases(words["states"])
        self.places = Phrases(words["places"])
        self.copulas = Phrases(words["copulas"])
        self.past_copulas = Phrases(words["past_copulas"])
        self.question_words = Phrases(words["question_words"])
        self.sure_questions = Phrases(words["sure_questions"])
        self.revision_marks = Phrases(words["revision_marks"])
        self.contractions = {word: _split(phrase) for word, phrase in data.get("contractions", {}).items()}
        self.spellings: dict[str, str] = data.get("spellings", {})
        self.singular: dict[str, str] = data.get("singular", {})
        self.replaced: dict[str, str] = data.get("replaced_qualifiers", {})
        self.capitals_are_names = data.get("capitals_are_names") == "true"
        self.ordinals_have_dots = data.get("ordinals_have_dots") == "true"
        self.adverbs = frozenset(data["lists"].get("adverb", ()))
        self.families = {name: frozenset(map(_split, heads)) for name, heads in data.get("families", {}).items()}
        classes = [_class(name, entry) for name, entry in data["classes"].items()]
        self.heads = {head: cls for cls in classes for head in cls.heads | cls.short | cls.guarded}
        compiler = _Compiler(data)
        self.unreal = compiler.any_of(data.get("unreal", ()))
        self.job_words = compiler.any_of(["<job_word>"])
        self.frames = tuple(compiler.frame(entry) for entry in data["frames"])
        self.questions = tuple(compiler.frame(entry) for entry in data["questions"])


_WORD_LISTS = (
    "anaphors",
    "articles",
    "bare",
    "change_targets",
    "change_verbs",
    "connectives",
    "copulas",
    "generic",
    "naming",
    "negations",
    "no_owners",
    "other_possessives",
    "other_subjects",
    "own_owners",
    "own_possessives",
    "past_copulas",
    "past_modifiers",
    "places",
    "plurals",
    "possessive_marks",
    "present_modifiers",
    "qualifiers",
    "question_words",
    "relations",
    "revision_marks",
    "states",
    "stops",
    "sure_questions",
    "trusted_qualifiers",
    "vague",
    "verb_endings",
)


def languages() -> tuple[str, ...]:
    """Names of the languages there are."""
    files = resources.files(__package__).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


@lru_cache
def load(language: str) -> Grammar:
    """The compiled grammar of a language; the file is read once.

    Raises:
        ConfigError: there is no such language.
    """
    if language not in languages():
        raise ConfigError(f"languages: expected some of {', '.join(languages())}; found {language!r}", key="languages")
    import yaml

    text = resources.files(__package__).joinpath(f"{language}.yaml").read_text(encoding="utf-8")
    # The base loader keeps every scalar a text: in YAML, `on`, `off` and `no` would be truth values.
    return Grammar(yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)))


def _split(phrase: str) -> Words:
    return tuple(phrase.split())


def _class(name: str, entry: Mapping[str, Any]) -> Class:
    guarded = entry.get("guarded", {})
    return Class(
        name,
        entry.get("shape"),
        frozenset({*map(_split, entry.get("heads", ())), tuple(name.split("_"))}),
        frozenset(map(_split, entry.get("short", ()))),
        frozenset(map(_split, guarded.get("heads", ()))),
        frozenset(guarded.get("openers", ())),
        frozenset(entry.get("redundant", ())),
    )


_DIGITS = r"[+(]?\d[^ ]*"
_FREE_ITEMS = ("^", "<s>", "<s?>", "<o>", "*", "..")


class _Compiler:
    """Turns patterns into regular expressions over words that are joined, begun and ended by single spaces."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.lists: Mapping[str, Sequence[str]] = data["lists"]
        adverbs = self._words(self.lists.get("adverb", ()))
        no_name = self._words([*self.lists.get("adverb", ()), *data["stops"]])
        own = self._words(data["own_subjects"])
        possessive = self._words(data["own_possessives"])
        relation = self._words(data["relations"])
        other = self._words(data["other_subjects"])
        # A relative's name may follow: "my brother Tom lives …".
        kin = rf"(?:{possessive}) (?P<kin>(?:{relation})(?: (?!(?:{no_name}) )[^ ,]+){{0,2}}?)"
        self.subject = rf"(?:(?P<own>{own})|{kin}|(?P<other>{other})) (?:(?:{adverbs}) ){{0,2}}"
        self.object = rf"(?:{self._words(data.get('own_objects', ()))}) "

    def frame(self, entry: Mapping[str, Any]) -> Frame:
        unless = entry.get("unless")
        return Frame(
            entry["entity"],
            tuple(
                Pattern(partial(self._pattern, pattern), tuple(self._needed(pattern))) for pattern in entry["patterns"]
            ),
            entry.get("shape"),
            entry.get("weak") == "true",
            self.any_of([phrase.replace(" ", "_") for phrase in unless]) if unless else None,
        )

    def any_of(self, patterns: Iterable[str]) -> Pattern:
        """What matches where one of the patterns does; they hold no subject."""
        return Pattern(lambda: "|".join(map(self._pattern, patterns)) or r"(?!)")

    def _needed(self, pattern: str) -> Iterator[Sequence[str]]:
        """For each item of the pattern that can't be left out and has no other than literal choices: these."""
        for item in pattern.split():
            if item in _FREE_ITEMS or item[0] in "![":
                continue
            phrases = [phrase for choice in item.split("|") for phrase in self._phrases(choice)]
            if "#" not in phrases:
                yield [f" {phrase} " for phrase in phrases]

    def _pattern(self, pattern: str) -> str:
        return r"(?<= )" + "".join(map(self._item, pattern.split()))

    def _item(self, item: str) -> str:
        if item == "^":
            return r"(?<=\A )"
        if item == "<s>":
            return self.subject
        if item == "<s?>":
            return rf"(?:{self.subject}|(?<=\A ))"
        if item == "<o>":
            return self.object
        if item == "*":
            return r"[^ ,]+ "
        if item == "..":
            return r"(?:[^ ,]+ ){0,3}?"
        if item.startswith("!"):
            return rf"(?!(?:{self._choice(item[1:])}) )"
        if item.startswith("["):
            return rf"(?:(?:{self._choice(item[1:-1])}) ){{0,2}}"
        return rf"(?:{self._choice(item)}) "

    def _choice(self, item: str) -> str:
        return "|".join(self._words(self._phrases(choice)) for choice in item.split("|"))

    def _phrases(self, choice: str) -> Sequence[str]:
        """What a choice stands for: the entries of a list, or itself."""
        return self.lists[choice[1:-1]] if choice.startswith("<") else (choice.replace("_", " "),)

    @staticmethod
    def _words(phrases: Iterable[str]) -> str:
        ordered = sorted(phrases, key=len, reverse=True)
        return "|".join(_DIGITS if phrase == "#" else re.escape(phrase) for phrase in ordered) or r"(?!)"
