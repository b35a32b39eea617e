"""Taggers asked in turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import pytest

from nanomem_core.errors import GeneratorError, InputError, UnreachableError
from nanomem_core.interfaces import Generator, Statement, Tagger
from nanomem_core.pipeline.tagging import tag_texts
from nanomem_core.testing import ScriptedGenerator
from tests.memories import WordTagger


class AskingTagger(Tagger):
    """Has `answer` for every statement; keeps what it was given."""

    name = "asking"
    asks_generator = True

    def __init__(self, answer: list[str | None] | Exception) -> None:
        self.answer = answer
        self.given: list[tuple[list[Statement], str | None, dict[str, str], Generator | None]] = []

    def tag(self, text: str, *, previous: str | None = None, generator: Generator | None = None) -> str | None:
        raise NotImplementedError

    def tag_batch(
        self,
        statements: Sequence[Statement],
        *,
        previous: str | None = None,
        known: Callable[[], Mapping[str, str]] = dict,
        generator: Generator | None = None,
    ) -> list[str | None]:
        self.given.append((list(statements), previous, dict(known()), generator))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


WORDS = WordTagger({"work": "Employer", "live": "city"})
TEXTS = ["I work here.", "It is new.", "I live there.", "It is old."]


def test_a_tagger_of_single_texts_is_told_what_the_statement_before_was_about() -> None:
    assert tag_texts([WORDS], TEXTS) == ["employer", "employer", "city", "city"]
    assert tag_texts([WORDS], ["It is new."], previous="boat") == ["boat"]
    assert tag_texts([WORDS], ["I work here.", "Hm.", "It is new."]) == ["employer", None, "employer"]


def test_what_one_tagger_found_stands_and_tells_the_next_one_what_is_referred_to() -> None:
    asking = AskingTagger([None, None, "Town", None])
    assert tag_texts([asking, WORDS], TEXTS) == ["employer", "employer", "town", "town"]
    later = AskingTagger(["x", "y", "z"])
    assert tag_texts([WordTagger({"work": "employer"}), later], TEXTS[:3]) == ["employer", "employer", "z"]
    assert later.given[0][0] == [Statement(TEXTS[0], "employer"), Statement(TEXTS[1], "employer"), Statement(TEXTS[2])]


def test_a_tagger_that_asks_is_given_everything_it_may_need() -> None:
    asking, model = AskingTagger([None]), ScriptedGenerator()
    tag_texts([asking], ["a"], previous="boat", known=lambda: {"car": "red"}, generator=lambda: model)
    assert asking.given == [([Statement("a")], "boat", {"car": "red"}, model)]


def test_no_model_and_no_known_entities_are_fetched_for_a_tagger_that_needs_none() -> None:
    def refuse() -> None:
        raise AssertionError("not wanted")

    assert tag_texts([WORDS], ["I work here."], known=refuse, generator=refuse) == ["employer"]  # type: ignore[arg-type]


def test_nobody_is_asked_once_all_is_found() -> None:
    asking = AskingTagger(UnreachableError("gone"))
    assert tag_texts([WORDS, asking], ["I work here."]) == ["employer"]
    assert tag_texts([asking], []) == []
    assert asking.given == []


def test_a_model_that_fails_costs_only_its_turn_and_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nanomem"):
        found = tag_texts([AskingTagger(UnreachableError("no route")), WORDS], TEXTS)
    assert found == ["employer", "employer", "city", "city"]
    assert [record.getMessage() for record in caplog.records] == [
        "tagger 'asking' could not be asked, so the next one is: UnreachableError: no route"
    ]


def test_a_model_that_fails_is_an_error_where_the_caller_wants_it() -> None:
    with pytest.raises(GeneratorError):
        tag_texts([AskingTagger(UnreachableError("no route")), WORDS], TEXTS, strict=True)


def test_another_number_of_entities_is_an_error_that_names_the_tagger() -> None:
    with pytest.raises(InputError, match=r"tagger 'asking': expected 4 entities, .*; found 1"):
        tag_texts([AskingTagger(["x"])], TEXTS)


def test_a_name_without_a_normal_form_is_an_error() -> None:
    with pytest.raises(InputError, match="letter or digit"):
        tag_texts([AskingTagger(["!"])], ["a"])
