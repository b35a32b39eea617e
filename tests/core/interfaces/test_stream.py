import pytest

from nanomem_core.errors import BudgetError, GeneratorError
from nanomem_core.interfaces import Completion, Generator, Stream
from nanomem_core.pipeline.usage import Usage
from nanomem_core.testing import ScriptedGenerator

MESSAGES = [{"role": "user", "content": "What do you know?"}]


class Talker(Generator):
    """Streams two words, and fails between them if it is told to."""

    name = "talker"

    def __init__(self, failing=False):
        self.failing = failing
        self.left = False

    def complete(self, messages, *, temperature=0.0, max_tokens=None, schema=None):
        return Completion("one two", "talk-1", 3, 2)

    def stream(self, messages, *, temperature=0.0, max_tokens=None):
        def pieces():
            try:
                yield "one "
                if self.failing:
                    raise GeneratorError("it broke")
                yield "two"
                return self.complete(messages)
            finally:
                self.left = True

        return Stream(pieces())


def test_a_generator_that_can_t_stream_gives_its_answer_in_one_piece():
    stream = ScriptedGenerator(["one two"]).stream(MESSAGES)
    assert list(stream) == ["one two"]
    assert stream.completion == Completion("one two")


def test_nothing_is_asked_before_the_first_piece_is_taken():
    generator = ScriptedGenerator(["one"])
    with generator.stream(MESSAGES):
        pass
    assert generator.calls == []


def test_the_completion_is_there_at_the_end_and_stays():
    stream = Talker().stream(MESSAGES)
    assert next(stream) == "one "
    with pytest.raises(GeneratorError, match="not read to its end"):
        _ = stream.completion
    assert list(stream) == ["two"]
    assert list(stream) == []
    assert stream.completion.text == "one two"


def test_a_stream_that_is_closed_ends_the_work_for_it():
    generator = Talker()
    with generator.stream(MESSAGES) as stream:
        next(stream)
    assert generator.left
    assert list(stream) == []


class TestOnAnAccount:
    def phase(self, usage):
        (row,) = usage.to_dict()["phases"]
        return row["calls"], row["errors"], row["input_tokens"], row["output_tokens"], row["model"]

    def test_a_stream_is_counted_as_one_call(self):
        usage = Usage()
        stream = usage.meter(Talker(), "chat").stream(MESSAGES)
        assert list(stream) == ["one ", "two"]
        assert stream.completion.model == "talk-1"
        assert self.phase(usage) == (1, 0, 3, 2, "talk-1")

    @pytest.mark.parametrize("failing", [True, False])
    def test_one_that_breaks_or_is_left_is_an_error_of_unknown_cost(self, failing):
        usage, talker = Usage(), Talker(failing)
        stream = usage.meter(talker, "chat").stream(MESSAGES)
        next(stream)
        if failing:
            with pytest.raises(GeneratorError, match="it broke"):
                next(stream)
        else:
            stream.close()
        assert talker.left
        assert self.phase(usage) == (1, 1, None, None, "talker")

    def test_a_budget_that_is_used_up_stops_it_before_the_model_is_asked(self):
        usage = Usage(budget=5)
        generator = usage.meter(Talker(), "chat")
        list(generator.stream(MESSAGES))
        with pytest.raises(BudgetError):
            list(generator.stream(MESSAGES))
