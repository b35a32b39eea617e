"""Asking a model for JSON: one repair round, then a named error."""

import logging

import pytest

from nanomem_core.errors import GeneratorError, ReplyError
from nanomem_core.interfaces import Completion, Generator
from nanomem_core.testing import ScriptedGenerator

SCHEMA = {"type": "object", "required": ["facts"], "properties": {"facts": {"type": "array"}}}
QUESTION = [{"role": "user", "content": "What do you know?"}]


class Noting(ScriptedGenerator):
    def __init__(self, answers):
        super().__init__(answers)
        self.noted = []

    def note_reply(self, repairs, error):
        self.noted.append((dict(repairs), error and error.found))


@pytest.mark.parametrize(
    ("reply", "facts"),
    [
        ('```json\n{"facts": ["likes tea"]}\n```', ["likes tea"]),
        ('Here are the facts I extracted:\n{"facts": ["likes tea"]}\nLet me know if you need more!', ["likes tea"]),
        (
            '{"facts": ["uses this snippet: ```python\nprint(1)\n``` every day"]}',
            ["uses this snippet: ```python\nprint(1)\n``` every day"],
        ),
        ('```json\n{"facts": ["docs say: wrap code in ``` fences"]}\n```', ["docs say: wrap code in ``` fences"]),
        ("```\n[]\n```", []),
        ('{"facts": ["a"]} {"facts": ["b"]}', ["a"]),
    ],
)
def test_an_answer_that_can_be_read_costs_one_call(reply, facts):
    generator = Noting([reply])
    assert generator.generate_json(QUESTION, schema=SCHEMA, temperature=0.2, max_tokens=64) == {"facts": facts}
    (call,) = generator.calls
    assert (call.schema, call.temperature, call.max_tokens) == (SCHEMA, 0.2, 64)
    ((repairs, error),) = generator.noted
    assert repairs
    assert error is None


def test_an_answer_that_can_not_be_read_is_shown_once_with_its_error():
    generator = Noting(["I could not find any facts.", '{"facts": ["a"]}'])
    asked = list(QUESTION)
    assert generator.generate_json(asked, schema=SCHEMA) == {"facts": ["a"]}
    assert asked == QUESTION
    second = generator.calls[1].messages
    assert second[:2] == (QUESTION[0], {"role": "assistant", "content": "I could not find any facts."})
    assert "expected a JSON object with 'facts' (array); found 27 characters without one" in second[2]["content"]
    assert generator.noted == [({}, "27 characters without one"), ({}, None)]


def test_after_the_second_answer_that_can_not_be_read_there_is_an_error_without_its_words(caplog):
    generator = Noting(["secret words", "secret words again"])
    with caplog.at_level(logging.WARNING, "nanomem"), pytest.raises(ReplyError) as caught:
        generator.generate_json(QUESTION, schema=SCHEMA)
    assert "secret" not in str(caught.value)
    assert caplog.text.count("expected a JSON object with 'facts'") == 2
    assert "secret" not in caplog.text
    assert len(generator.calls) == 2
    assert [error for _, error in generator.noted] == ["12 characters without one", "18 characters without one"]


def test_a_value_that_fails_the_check_is_asked_for_again():
    def check(value):
        if not value["facts"]:
            raise ReplyError("at least one fact", "none")

    generator = Noting(['{"facts": []}', '{"facts": [1]}'])
    assert generator.generate_json(QUESTION, schema=SCHEMA, check=check) == {"facts": [1]}
    assert "expected at least one fact; found none" in generator.calls[1].messages[-1]["content"]
    with pytest.raises(ReplyError, match="at least one fact"):
        Noting(['{"facts": []}'] * 2).generate_json(QUESTION, schema=SCHEMA, check=check)


@pytest.mark.parametrize("answers", [[GeneratorError("down")], ["nothing", GeneratorError("down")]])
def test_a_model_that_fails_is_not_asked_again(answers):
    generator = ScriptedGenerator(answers)
    with pytest.raises(GeneratorError, match="down"):
        generator.generate_json(QUESTION, schema=SCHEMA)
    assert len(generator.calls) == len(answers)


def test_a_long_answer_is_not_shown_again_in_full():
    generator = ScriptedGenerator(["x" * 1_000_000, '{"facts": []}'])
    generator.generate_json(QUESTION, schema=SCHEMA)
    assert len(generator.calls[1].messages[1]["content"]) < 10_000


def test_an_empty_answer_makes_no_empty_turn():
    generator = ScriptedGenerator(["", '{"facts": []}'])
    generator.generate_json(QUESTION, schema=SCHEMA)
    assert all(message["content"] for message in generator.calls[1].messages)


def test_a_generator_that_counts_nothing_needs_nothing():
    class Echo(Generator):
        name = "echo"

        def complete(self, messages, *, temperature=0.0, max_tokens=None, schema=None):
            return Completion(messages[-1]["content"])

    asked = [{"role": "user", "content": 'So: {"facts": []}'}]
    assert Echo().generate_json(asked, schema=SCHEMA) == {"facts": []}
