"""The tagger ``llm``."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from nanomem_core.errors import ConfigError, GeneratorError, ReplyError
from nanomem_core.interfaces import Generator, Statement, Tagger

from .prompt import make_prompt, make_schema, read_answers
from .shortlist import shortlist

__all__ = ["LlmTagger"]

_MAX_TOKENS = 4096
_REMEMBERED = 4096

_Key = tuple[str | None, str]
"""What was said before (at first: its entity), and the text."""


class _Answer(NamedTuple):
    """What a model said of a text, and the names that were known then."""

    entity: str | None
    names: frozenset[str]
    generator: Generator


class LlmTagger(Tagger):
    """Asks a language model which of the user's attributes a statement gives a value of, or what a new one is called.

    Several statements are asked about at once. The model sees the attributes as a numbered list, of many those that
    share words with the statements, and answers with numbers or new names; what it is not sure of gets no entity, and
    the next tagger is asked. The same holds where its answer can't be used.

    What it answered for a text counts again, without a call, where the user has the attribute that it named, or the
    same attributes as when it was asked.

    Args:
        threshold: least confidence of the model, from 0 to 1.
        batch: statements a call, at most.
        shown: attributes that are shown, at most.

    Raises:
        ConfigError: a number is out of range.
    """

    name: ClassVar[str] = "llm"
    asks_generator: ClassVar[bool] = True

    def __init__(self, threshold: float = 0.7, batch: int = 16, shown: int = 40) -> None:
        if not 0 <= threshold <= 1:
            raise ConfigError(f"threshold: expected a number from 0 to 1; found {threshold}", key="threshold")
        for option, value in (("batch", batch), ("shown", shown)):
            if value < 1:
                raise ConfigError(f"{option}: expected at least 1; found {value}", key=option)
        self.threshold = threshold
        self.batch = batch
        self.shown = shown
        self._answers: OrderedDict[_Key, _Answer] = OrderedDict()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Forget what was answered."""
        with self._lock:
            self._answers.clear()

    def tag(self, text: str, *, previous: str | None = None, generator: Generator | None = None) -> str | None:
        """The attribute by the model's judgement, or None. It knows of no attribute but `previous`.

        Raises:
            GeneratorError: there is no generator, or it failed.
        """
        return self.tag_batch([Statement(text)], previous=previous, generator=generator)[0]

    def tag_batch(
        self,
        statements: Sequence[Statement],
        *,
        previous: str | None = None,
        known: Callable[[], Mapping[str, str]] = dict,
        generator: Generator | None = None,
    ) -> list[str | None]:
        """The attribute of each statement by the model's judgement; see `nanomem_core.interfaces.Tagger`.

        A name that the model makes for one of them is known when the next are asked about.

        Raises:
            GeneratorError: there is no generator, or it failed. What was answered until then is not asked again.
        """
        if generator is None:
            raise GeneratorError(
                "tagger 'llm': expected a generator to ask; found none. Configure `generator`, or leave this tagger "
                "out of `taggers`"
            )
        held = known()
        named: dict[str, str] = {}  # like `held`, from these statements; the latest last
        before = [previous, *(said.text for said in statements[:-1])]
        found: list[str | None] = []
        for start in range(0, len(statements), self.batch):
            part = statements[start : start + self.batch]
            keys = list(zip(before[start:], (said.text for said in part), strict=False))
            seen = dict(reversed(named.items()))
            all_known = seen | {name: text for name, text in held.items() if name not in seen}
            answers = self._part(part, keys, previous, all_known, generator)
            for said, entity in zip(part, answers, strict=True):
                if entity is not None:
                    named.pop(entity, None)
                    named[entity] = said.text
                    previous = entity
            found += answers
        return found

    def _part(
        self,
        statements: Sequence[Statement],
        keys: Sequence[_Key],
        previous: str | None,
        known: Mapping[str, str],
        generator: Generator,
    ) -> list[str | None]:
        """The entities of statements that fit in one call, which is made if any of them has to be asked about."""
        found = [said.entity for said in statements]
        names = frozenset(known)
        to_ask = []
        for place, said in enumerate(statements):
            if said.entity is None and said.text.strip():
                answer = self._remembered(keys[place], names, generator)
                if answer is None:
                    to_ask.append(place)
                else:
                    found[place] = answer.entity
        if to_ask:
            asked = [Statement(said.text, entity) for said, entity in zip(statements, found, strict=True)]
            answers = self._ask(asked, previous, known, generator)
            for place in to_ask:
                if place + 1 in answers:
                    found[place] = answers[place + 1]
                    self._remember(keys[place], _Answer(found[place], names, generator))
        return found

    def _remembered(self, key: _Key, names: frozenset[str], generator: Generator) -> _Answer | None:
        with self._lock:
            answer = self._answers.get(key)
            if answer is None or answer.generator is not generator:
                return None
            if answer.entity not in names and answer.names != names:
                return None
            self._answers.move_to_end(key)
            return answer

    def _remember(self, key: _Key, answer: _Answer) -> None:
        with self._lock:
            self._answers[key] = answer
            self._answers.move_to_end(key)
            if len(self._answers) > _REMEMBERED:
                self._answers.popitem(last=False)

    def _ask(
        self, statements: Sequence[Statement], previous: str | None, known: Mapping[str, str], generator: Generator
    ) -> dict[int, str | None]:
        """The model's answers by the number of the statement, from 1; none if they can't be used."""
        names = shortlist(known, [said.text for said in statements], self.shown, previous)
        prompt = make_prompt(statements, names, known, previous)

        def check(answer: Any) -> None:
            if not read_answers(answer, len(statements), names, self.threshold):
                raise ReplyError(f"'answers' for statements from 1 to {len(statements)}", "none of them")

        schema = make_schema(len(statements))
        try:
            answer = generator.generate_json(prompt, schema=schema, check=check, max_tokens=_MAX_TOKENS)
        except ReplyError:
            return {}  # it was logged; what a model can't say in two attempts, the next tagger may
        return read_answers(answer, len(statements), names, self.threshold)
