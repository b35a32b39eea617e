import json
import threading

import pytest

from nanomem_core.errors import BudgetError, GeneratorError, ReplyError
from nanomem_core.interfaces import Completion
from nanomem_core.pipeline.usage import Usage, in_phase
from nanomem_core.testing import GeneratorContract, ScriptedGenerator

SCHEMA = {"type": "object", "required": ["facts"], "properties": {"facts": {"type": "array"}}}
QUESTION = [{"role": "user", "content": "my private question"}]


class TestMeteredGenerator(GeneratorContract):
    @pytest.fixture
    def make_generator(self):
        return lambda: Usage().meter(ScriptedGenerator(["one", "two"]), "test")

    @pytest.fixture
    def make_failing_generator(self):
        return lambda: Usage().meter(ScriptedGenerator(), "test")


def ticking():
    """A timer that moves by a second each time it is read."""
    seconds = iter(range(1000))
    return lambda: float(next(seconds))


def test_calls_are_counted_by_phase_and_model_with_the_provider_s_numbers():
    usage = Usage(timer=ticking())
    generator = ScriptedGenerator(
        [Completion("a", "small", 10, 2), Completion("b", "small", 5, 1), Completion("c", "large", 7, 3)]
    )
    for phase in ("segment", "segment", "narrate"):
        usage.meter(generator, phase).complete(QUESTION)
    account = usage.to_dict()
    assert account["tokens"] == usage.tokens == 28
    assert [(row["phase"], row["model"]) for row in account["phases"]] == [("narrate", "large"), ("segment", "small")]
    assert account["phases"][1] == {
        "phase": "segment",
        "model": "small",
        "calls": 2,
        "errors": 0,
        "input_tokens": 15,
        "output_tokens": 3,
        "uncounted_calls": 0,
        "format_errors": 0,
        "format_error_rate": None,
        "repairs": {},
        "seconds": 2.0,
    }


def test_numbers_that_a_provider_does_not_give_stay_unknown():
    usage = Usage()
    generator = ScriptedGenerator(["a", "b", Completion("c", None, 4, None), Completion("d", None, 3, 2)])
    for phase in ("none", "none", "half", "half"):
        usage.meter(generator, phase).complete(QUESTION)
    half, none = usage.to_dict()["phases"]
    assert (none["model"], none["input_tokens"], none["output_tokens"], none["uncounted_calls"]) == (
        "scripted",
        None,
        None,
        2,
    )
    assert (half["input_tokens"], half["output_tokens"], half["uncounted_calls"]) == (7, 2, 1)


def test_errors_format_errors_and_repairs_are_counted():
    usage = Usage()
    metered = usage.meter(
        ScriptedGenerator(
            [
                '```json\n{"facts": [1,]}\n```',
                "none",
                '{"facts": []}',
                "none",
                "none",
                GeneratorError("down"),
                ValueError("broken"),
            ]
        ),
        "facts",
    )
    for _ in range(2):
        metered.generate_json(QUESTION, schema=SCHEMA)
    with pytest.raises(ReplyError):
        metered.generate_json(QUESTION, schema=SCHEMA)
    with pytest.raises(GeneratorError, match="down"):
        metered.generate_json(QUESTION, schema=SCHEMA)
    with pytest.raises(ValueError, match="broken"):
        metered.complete(QUESTION)
    (row,) = usage.to_dict()["phases"]
    assert (row["calls"], row["errors"], row["format_errors"]) == (7, 2, 3)
    assert row["format_error_rate"] == 3 / 5
    assert row["repairs"] == {"fence": 1, "trailing_comma": 1}


def test_a_used_up_budget_is_refused_before_the_call():
    usage = Usage(budget=10)
    generator = ScriptedGenerator([Completion("a", "m", 6, 3), Completion("b", "m", 1, 1), Completion("c", "m", 1, 1)])
    metered = usage.meter(generator, "one")
    metered.complete(QUESTION)
    metered.complete(QUESTION)
    with pytest.raises(BudgetError) as caught:
        usage.meter(generator, "two").complete(QUESTION)
    assert (caught.value.budget, caught.value.used) == (10, 11)
    assert isinstance(caught.value, GeneratorError)
    assert len(generator.calls) == 2
    assert [row["calls"] for row in usage.to_dict()["phases"]] == [2]


def test_the_account_holds_nothing_of_what_was_said():
    usage = Usage()
    metered = usage.meter(ScriptedGenerator(["private answer", '{"facts": ["private fact"]}']), "facts")
    metered.generate_json(QUESTION, schema=SCHEMA)
    assert "private" not in json.dumps(usage.to_dict())


def test_calls_of_many_threads_are_all_counted():
    usage = Usage()
    metered = usage.meter(ScriptedGenerator(lambda call: Completion('{"facts": []} ', "m", 2, 1)), "facts")
    threads = [
        threading.Thread(target=lambda: [metered.generate_json(QUESTION, schema=SCHEMA) for _ in range(50)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (row,) = usage.to_dict()["phases"]
    assert (row["calls"], row["input_tokens"], row["output_tokens"], usage.tokens) == (400, 800, 400, 1200)
    assert row["format_error_rate"] == 0


def test_a_phase_is_named_only_where_calls_are_counted():
    usage, plain = Usage(), ScriptedGenerator(["a"])
    assert in_phase(plain, "x") is plain
    in_phase(usage.meter(plain, "first"), "second").complete(QUESTION)
    assert [row["phase"] for row in usage.to_dict()["phases"]] == ["second"]
