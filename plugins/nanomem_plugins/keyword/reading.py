"""What one sentence says: which attribute it gives a value of, refers back to, or asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .grammar import Frame, Grammar, Words
from .names import OTHER, Head, find_class, joined, owner_of, singular, without_modifiers
from .sentences import Sentence, shape_of

__all__ = ["Reading"]

_MAX_SLOT_WORDS = 6
_MAX_NAME_WORDS = 3
_MAX_ACRONYM = 5

Whose = Literal["own", "other", "named"]


@dataclass(frozen=True, slots=True)
class _Slot:
    """A possessive phrase: "my sister's work phone".

    Attributes:
        whose: the user's own, that of a person spoken of ("her phone"), or of one named ("Dana's phone").
        owner: further possessors ("sister"), or the name.
        words: the attribute ("work", "phone").
        begin: the place of the first word of the phrase, the possessive or the name, in the sentence.
        start, end: the place of `words`.
    """

    whose: Whose
    owner: Words
    words: Words
    begin: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Value:
    """What the sentence says of a slot.

    It follows a copula, a word for naming ("is called"), a verb of change and its target ("changed my gym to …"), or
    a verb of change alone, which takes a value of known shape ("changed my number, it is …"); or it stands before
    ("Ann is my name").
    """

    kind: Literal["copula", "naming", "change", "changed", "before"]
    words: Words


class Reading:
    """A sentence, read by a grammar."""

    def __init__(self, sentence: Sentence, grammar: Grammar) -> None:
        self.sentence = sentence
        self.grammar = grammar

    def statement(self, previous: str | None = None) -> str | None:
        """The attribute the sentence gives a value of.

        A named attribute goes before a turn of phrase, and a weak turn of phrase after every other. `previous` tells
        whom a sentence that begins with "she" or "her" is about.
        """
        if self._is_question():
            return None
        about = self._about(previous)
        for slot in self._slots():
            entity = self._valued(slot, about)
            if entity is not None:
                return entity
        strong = weak = None
        for frame, match in self._matches(self.grammar.frames):
            owner = about if match.groupdict().get("other") else _kin(match)
            if match.groupdict().get("other") and not about:
                continue
            entity = joined(owner, (frame.entity,))
            if frame.weak:
                weak = weak or entity
            else:
                strong = strong or entity
        if strong is None and weak is not None and self.grammar.job_words.search(self.sentence.text):
            return None
        return strong or weak

    def reference(self, previous: str) -> str | None:
        """`previous`, if the sentence gives a new value of "it" or "that"; otherwise None."""
        words, grammar = self.sentence.words, self.grammar
        if words[0] not in grammar.anaphors or self._is_question() or grammar.own_possessives & set(words):
            return None
        copula = grammar.copulas.length_at(words, 1)
        value = words[1 + copula :]
        if not value or self._is_doing(value[0]) or not self._is_real(0, len(self.sentence.text)):
            return None
        head = find_class(tuple(previous.split("_")), grammar)
        if head is not None and head.cls.shape and not shape_of(value, head.cls.shape):
            return None
        marked = any(grammar.revision_marks.length_at(words, at) for at in range(1, len(words)))
        figures = copula > 0 and any(word[0].isdigit() for word in value)
        return previous if marked or figures else None

    def intents(self) -> Iterator[str]:
        """The attributes the sentence may ask for: named ones first, then those that turns of phrase mean."""
        for slot in self._slots():
            # A named person may also be the one whom the user calls "her".
            readings = (slot, replace(slot, whose="other", owner=())) if slot.whose == "named" else (slot,)
            for reading in readings:
                words = without_modifiers(slot.words, self.grammar)[0]
                entity = self._entity(reading, self._with_name(words) if self._names(slot.end) else words)
                if entity is not None:
                    yield entity
        for frame, match in self._matches(self.grammar.questions, asked=True):
            entity = joined((OTHER,) if match.groupdict().get("other") else _kin(match), (frame.entity,))
            if entity is not None:
                yield entity

    # Questions, and clauses that state no fact.

    def _is_question(self) -> bool:
        begins = self.grammar.question_words if self.sentence.asks else self.grammar.sure_questions
        return begins.length_at(self.sentence.words, 0) > 0

    def _is_real(self, start: int, end: int) -> bool:
        """Whether the clause around a stretch of the sentence's text states a fact."""
        text = self.sentence.text
        first, last = self.sentence.clause(start, end)
        if self.sentence.asks and last == len(text):
            return False
        return self.grammar.unreal.search(text, first, last) is None

    def _about(self, previous: str | None) -> Words:
        """Whose attribute `previous` is, if the sentence begins with a word for that person."""
        first = self.sentence.words[0]
        if previous and (first in self.grammar.other_subjects or first in self.grammar.other_possessives):
            return owner_of(previous, self.grammar)
        return ()

    # Turns of phrase.

    def _matches(self, frames: Sequence[Frame], asked: bool = False) -> Iterator[tuple[Frame, re.Match[str]]]:
        """The frames that fit, in the order of their places, each at its first."""
        text = self.sentence.text
        found = []
        for frame in frames:
            matches = [match for pattern in frame.patterns if (match := pattern.search(text))]
            if matches:
                found.append((min(matches, key=re.Match.start), frame))
        for match, frame in sorted(found, key=lambda pair: pair[0].start()):
            first, last = self.sentence.clause(match.start(), match.end())
            if asked or (
                self._is_real(match.start(), match.end())
                and not (frame.unless and frame.unless.search(text, first, last))
                and (not frame.shape or shape_of(tuple(text[match.end() :].split()), frame.shape))
            ):
                yield frame, match

    # Possessive phrases.

    def _slots(self) -> Iterator[_Slot]:
        words, grammar = self.sentence.words, self.grammar
        at = 0
        while at < len(words):
            slot = None
            if words[at] in grammar.own_possessives:
                slot = self._slot("own", (), at, at + 1)
            elif words[at] in grammar.other_possessives:
                slot = self._slot("other", (), at, at + 1)
            elif words[at] in grammar.possessive_marks and at > 0:
                slot = self._named_slot(at)
            at += 1
            if slot is not None:
                yield slot
                at = max(at, slot.end)

    def _slot(self, whose: Whose, owner: Words, begin: int, start: int) -> _Slot:
        """The phrase whose words begin at `start`, up to one that no attribute's name holds."""
        words, grammar = self.sentence.words, self.grammar
        at, collected = start, 0
        while at < len(words) and at - start < _MAX_SLOT_WORDS:
            if words[at] in grammar.possessive_marks:
                if at == start or not self._possesses(start, at):
                    break
                owner, start = (*owner, *words[start:at]), at + 1
            elif words[at] in grammar.stops or not words[at][0].isalpha():
                # "date of birth" holds a word that otherwise ends a name.
                collected = self._phrase_over(start, at)
                if not collected:
                    break
                at = start + collected - 1
            elif at > start and (grammar.copulas.length_at(words, at) or words[at] in grammar.change_targets):
                break
            at += 1
        return _Slot(whose, owner, words[start:at], begin, start, at)

    def _phrase_over(self, start: int, at: int) -> int:
        """Words of the head that begins at `start` and holds the word at `at`; 0 for none."""
        ends = range(min(start + _MAX_SLOT_WORDS, len(self.sentence.words)), at, -1)
        return next((end - start for end in ends if self.sentence.words[start:end] in self.grammar.heads), 0)

    def _possesses(self, start: int, mark: int) -> bool:
        """Whether the mark is a possessive ("my dog's name is Rex") and no copula ("my name's Ann")."""
        words, grammar = self.sentence.words, self.grammar
        attribute = words[start] in grammar.trusted or find_class(words[start:mark], grammar) is not None
        if self.sentence.asks or not attribute:
            return True
        return any(grammar.copulas.length_at(words, at) for at in range(mark + 2, min(mark + 5, len(words))))

    def _named_slot(self, mark: int) -> _Slot | None:
        """The phrase of the possessor before the mark: "Dana's number", "the user's number", "mom's number"."""
        words, shown, grammar = self.sentence.words, self.sentence.shown, self.grammar
        first = mark - 1
        if words[first] in grammar.own_owners:
            begin = first - (words[first - 1] in grammar.articles)
            return self._slot("own", (), begin, mark + 1)
        if words[first] in grammar.relations:
            return self._slot("own", (words[first],), first, mark + 1)
        if words[first] in grammar.stops or words[first] in grammar.no_owners or not words[first][0].isalpha():
            return None
        asks = grammar.question_words.length_at(words, 0) > 0
        if first > 0 and not asks and not shown[first][0].isupper():
            return None
        while first > 0 and shown[first - 1][0].isupper() and not self._begins_nothing(first - 1):
            first -= 1
        if words[first - 1] in grammar.articles:
            return None
        return self._slot("named", words[first:mark], first, mark + 1)

    def _begins_nothing(self, at: int) -> bool:
        """Whether the word at `at` can't be the first of a name."""
        word = self.sentence.words[at]
        return word in self.grammar.stops or self.grammar.question_words.length_at((word,), 0) > 0

    def _valued(self, slot: _Slot, about: Words) -> str | None:
        """The attribute of a phrase, if the sentence gives its present value."""
        value = self._value(slot)
        words, past = without_modifiers(slot.words, self.grammar)
        offsets = (*self.sentence.offsets, len(self.sentence.text))
        if value is None or past or not words or not self._is_real(offsets[slot.begin], offsets[slot.end]):
            return None
        if value.kind == "naming":
            words = self._with_name(words)
        head = find_class(words, self.grammar)
        if head is not None and head.cls.shape:
            fits = shape_of(value.words, head.cls.shape)
        elif value.kind == "naming":
            fits = value.words[0] not in self.grammar.negations
        elif value.kind == "copula":
            fits = self._is_value(value.words, words, head)
        elif value.kind == "before":
            fits = head is not None or words[0] in self.grammar.trusted
        else:
            fits = value.kind == "change"
        if not fits or (slot.whose != "own" and head is None and words[0] not in self.grammar.trusted):
            return None
        return self._entity(slot, words, about)

    def _value(self, slot: _Slot) -> _Value | None:
        words, grammar = self.sentence.words, self.grammar
        end = slot.end
        if grammar.past_copulas.length_at(words, end):
            return None
        copula = grammar.copulas.length_at(words, end)
        if not copula and end < len(words) and words[end] in grammar.possessive_marks:
            copula = 1
        at = end + copula
        while copula and at < len(words) and words[at] in grammar.adverbs:
            at += 1
        naming = self._names(at)
        if copula or naming:
            value = words[at + naming :]
            return _Value("naming" if naming else "copula", value) if value and self._is_subject(slot) else None
        before = slot.begin - 1
        while before > 0 and words[before] in grammar.adverbs:
            before -= 1
        if before < 0 or slot.whose == "named":
            return None
        if words[before] in grammar.change_verbs and end + 1 < len(words):
            targets = words[end] in grammar.change_targets
            return _Value("change" if targets else "changed", words[end + 1 :])
        ends = end == len(words) or words[end] in grammar.adverbs or words[end] == ","
        if before > 0 and ends and grammar.copulas.length_at(words[: before + 1], before):
            return _Value("before", words[:before])
        return None

    def _names(self, at: int) -> bool:
        """Whether the word at `at` means that a name follows."""
        return at < len(self.sentence.words) and self.sentence.words[at] in self.grammar.naming

    def _with_name(self, words: Words) -> Words:
        """What is named by "my dog is called": the dog's name, but not a name of the employer."""
        return words if find_class(words, self.grammar) is not None else (*words, "name")

    def _is_subject(self, slot: _Slot) -> bool:
        """Whether the phrase begins its clause: in "one of my dogs is ill" nothing is said of "my dogs"."""
        before = self.sentence.words[slot.begin - 1 : slot.begin]
        return not before or before[0] in self.grammar.connectives or not before[0][0].isalnum()

    def _is_value(self, value: Words, words: Words, head: Head | None) -> bool:
        """Whether what follows the copula is a value of the attribute, rather than a remark about it."""
        grammar = self.grammar
        if value[0] in grammar.negations:
            return False
        if words[0] in grammar.trusted:
            return True
        if grammar.states.length_at(value, 0):
            return False
        if head is not None:
            return not head.guarded or value[0] in head.cls.openers
        return not grammar.places.length_at(value, 0) and not self._is_doing(value[0])

    def _is_doing(self, word: str) -> bool:
        return any(word.endswith(ending) and len(word) > len(ending) + 1 for ending in self.grammar.verb_endings)

    def _entity(self, slot: _Slot, words: Words, about: Words = ()) -> str | None:
        """The name of an attribute; None for words that name none."""
        grammar = self.grammar
        owner = tuple(grammar.replaced.get(word, word) for word in slot.owner)
        if not owner and len(words) > 1 and words[0] in grammar.relations:
            owner, words = words[:1], words[1:]  # "my wife birthday", without the mark
            if find_class(words, grammar) is None:
                return None
        head = find_class(words, grammar)
        if head is not None:
            words = (*head.qualifiers, head.cls.name)
        elif not self._is_name(slot, words):
            return None
        else:
            words = (grammar.replaced.get(words[0], words[0]), *words[1:])
            words = (*words[:-1], singular(words[-1], grammar))
        if slot.whose == "own":
            return joined(owner, words)
        return joined((slot.whose == "other" and about) or (OTHER,), owner, words)

    def _is_name(self, slot: _Slot, words: Words) -> bool:
        """Whether words that end with no known head name an attribute."""
        grammar = self.grammar
        if not words or len(words) > _MAX_NAME_WORDS:
            return False
        last = singular(words[-1], grammar)
        if last in grammar.vague or (len(words) == 1 and last in grammar.bare | grammar.trusted):
            return False
        if words[0] not in grammar.trusted and (last in grammar.relations or last in grammar.generic):
            return False
        if not grammar.capitals_are_names:
            return True
        shown = self.sentence.shown[slot.end - len(words) : slot.end]
        return not any(word[0].isupper() and not (word.isupper() and len(word) <= _MAX_ACRONYM) for word in shown)


def _kin(match: re.Match[str]) -> Words:
    return tuple((match.groupdict().get("kin") or "").split())
