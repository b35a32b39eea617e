import subprocess
import sys

import numpy as np
import pytest

from nanomem_core.changes import Put
from nanomem_core.errors import ClosedError, GeneratorError, TimeError
from nanomem_core.interfaces import Completion
from nanomem_core.records import Record, Scope
from nanomem_core.testing import (
    DictStorage,
    EmbedderContract,
    FrozenClock,
    GeneratorContract,
    HashEmbedder,
    ScriptedGenerator,
)


class TestHashEmbedder(EmbedderContract):
    @pytest.fixture
    def make_embedder(self):
        return HashEmbedder


class TestScriptedGenerator(GeneratorContract):
    @pytest.fixture
    def make_generator(self):
        return lambda: ScriptedGenerator(["Zoë", "at the Café"])

    @pytest.fixture
    def make_failing_generator(self):
        return ScriptedGenerator


def test_a_frozen_clock_moves_only_when_told():
    clock = FrozenClock("2026-03-10T09:00:00Z")
    assert clock() == clock() == 1_773_133_200.0
    assert clock.advance(90.5) == clock() == 1_773_133_290.5
    assert FrozenClock(5)() == 5.0
    with pytest.raises(TimeError):
        FrozenClock("yesterday")


def test_hash_vectors_depend_on_text_and_id_and_nothing_else():
    vectors = HashEmbedder(8).embed_batch(["a", "b", "a"])
    assert (vectors[0] == vectors[2]).all()
    assert abs(float(vectors[0] @ vectors[1])) < 0.9
    assert not np.allclose(HashEmbedder(8, "another").embed("a"), vectors[0])
    assert HashEmbedder(8).id == "hash-8"


def test_hash_vectors_do_not_depend_on_the_hash_seed_of_python():
    code = "from nanomem_core.testing import HashEmbedder; print(HashEmbedder(4).embed('a').tolist())"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert answers == {f"{HashEmbedder(4).embed('a').tolist()}\n"}


def test_a_scripted_generator_gives_its_answers_and_keeps_the_calls():
    generator = ScriptedGenerator(["one", Completion("two", "m", 3, 4), ValueError("three")])
    assert generator.generate("hello", temperature=0.5, max_tokens=9) == "one"
    assert generator.complete([{"role": "user", "content": "x"}], schema={"type": "object"}) == Completion(
        "two", "m", 3, 4
    )
    with pytest.raises(ValueError, match="three"):
        generator.generate("again")
    with pytest.raises(GeneratorError, match="at most 3 calls"):
        generator.generate("too often")
    assert [call.messages[0]["content"] for call in generator.calls] == ["hello", "x", "again", "too often"]
    assert (generator.calls[0].temperature, generator.calls[0].max_tokens) == (0.5, 9)
    assert generator.calls[1].schema == {"type": "object"}


def test_a_scripted_generator_may_answer_by_what_it_is_asked():
    def answer(call):
        text = call.messages[-1]["content"]
        return GeneratorError("no") if text == "fail" else text.upper()

    generator = ScriptedGenerator(answer)
    assert [generator.generate(text) for text in ("one", "two")] == ["ONE", "TWO"]
    with pytest.raises(GeneratorError, match="no"):
        generator.generate("fail")
    assert len(generator.calls) == 3


def test_a_dict_storage_shares_its_contents_but_not_its_end():
    scope = Scope("ann")
    first = DictStorage()
    second = DictStorage(shared=first)
    first.commit(scope, [Put(Record("a", "text"))])
    first.close()
    assert second.get(scope, "a").text == "text"
    with pytest.raises(ClosedError):
        first.get(scope, "a")
