"""The generator ``openai`` asks the real llama.cpp."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from nanomem_core.aio import AsyncGenerator
from nanomem_core.errors import ContextLengthError, EndpointTimeoutError, GeneratorError, ReplyError
from nanomem_core.interfaces import ChatMessage, Generator
from nanomem_core.memory import Memory
from nanomem_core.pipeline import consolidate, distil, episodes
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing import DictStorage, GeneratorContract, HashEmbedder
from nanomem_plugins.batch import segmenter
from nanomem_plugins.openai.generator import OpenAIGenerator
from tests.real.models import CHAT_MODEL, Brief, Slots, bounded, make_generator
from tests.services.serve import CONTEXT

pytestmark = pytest.mark.real

MESSAGES: list[ChatMessage] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Name a city. 🫖"},
]
ENDLESS = 1400
"""Tokens of an answer that nobody waits for."""

TOO_LONG: list[ChatMessage] = [{"role": "user", "content": "word " * (CONTEXT + 100)}]
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 12},
        "size": {"type": "string", "enum": ["small", "large"]},
        "streets": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
    },
    "required": ["city", "size", "streets"],
    "additionalProperties": False,
}


class TestContract(GeneratorContract):
    @pytest.fixture
    def make_generator(self, chat_url: str) -> partial[Generator]:
        return partial(make_generator, chat_url, Brief)

    @pytest.fixture
    def make_failing_generator(self) -> partial[Generator]:
        return partial(make_generator, "http://127.0.0.1:9/v1", retries=0)


def test_an_answer_tells_its_model_and_its_tokens(generator: OpenAIGenerator) -> None:
    found = generator.complete(MESSAGES, max_tokens=12)
    assert found.model == CHAT_MODEL
    assert found.text
    assert found.input_tokens is not None
    assert found.input_tokens > 10
    assert found.output_tokens == 12


def test_a_stream_comes_in_pieces_and_is_what_the_whole_answer_is(generator: OpenAIGenerator) -> None:
    whole = generator.complete(MESSAGES, max_tokens=24)
    with generator.stream(MESSAGES, max_tokens=24) as stream:
        pieces = list(stream)
    assert len(pieces) > 10
    assert "".join(pieces) == stream.completion.text == whole.text
    assert stream.completion == whole, "the counts of tokens and the model too"


def test_openai_s_own_client_gets_the_same(chat_url: str, generator: OpenAIGenerator) -> None:
    openai = pytest.importorskip("openai", reason="OpenAI's own client is not installed (the extra dev has it)")
    with openai.OpenAI(base_url=chat_url, api_key="none") as client:
        theirs = client.chat.completions.create(model=CHAT_MODEL, messages=MESSAGES, max_tokens=24, temperature=0.0)
    ours = generator.complete(MESSAGES, max_tokens=24)
    assert ours.text == theirs.choices[0].message.content
    assert theirs.usage is not None
    assert (ours.input_tokens, ours.output_tokens) == (theirs.usage.prompt_tokens, theirs.usage.completion_tokens)


def test_awaiting_gives_the_same_as_blocking(chat_url: str, generator: OpenAIGenerator) -> None:
    async def main() -> tuple[object, list[str], object]:
        async with AsyncGenerator(make_generator(chat_url)) as given:
            whole = await given.complete(MESSAGES, max_tokens=24)
            async with given.stream(MESSAGES, max_tokens=24) as stream:
                return whole, [piece async for piece in stream], stream.completion

    whole, pieces, streamed = asyncio.run(main())
    assert whole == streamed == generator.complete(MESSAGES, max_tokens=24)
    assert len(pieces) > 10


class TestSchemas:
    def test_an_answer_follows_the_schema(self, generator: OpenAIGenerator) -> None:
        completion = generator.complete(MESSAGES, schema=SCHEMA, max_tokens=200)
        found = json.loads(completion.text)
        assert list(found) == ["city", "size", "streets"]
        assert 2 <= len(found["city"]) <= 12
        assert found["size"] in ("small", "large")
        assert [type(street) for street in found["streets"]] == [int, int]
        assert generator.generate_json(MESSAGES, schema=SCHEMA, max_tokens=200) == found

    @pytest.mark.parametrize(
        "schema", [module._SCHEMA for module in (segmenter, episodes, distil, consolidate)], ids=lambda s: str(s)[:60]
    )
    def test_the_schemas_of_the_pipeline_are_understood(self, generator: OpenAIGenerator, schema: object) -> None:
        found = json.loads(generator.complete(MESSAGES, schema=bounded(schema), max_tokens=400).text)
        assert list(found)[: len(schema["required"])] == schema["required"]  # type: ignore[index]

    def test_an_answer_that_is_cut_off_is_asked_for_once_more(self, chat_url: str) -> None:
        asked = []

        class Counting(OpenAIGenerator):
            def body(self, *arguments):  # type: ignore[no-untyped-def]
                asked.append(arguments)
                return super().body(*arguments)

        with make_generator(chat_url, Counting) as given, pytest.raises(ReplyError):
            given.generate_json(MESSAGES, schema=SCHEMA, max_tokens=12)
        assert len(asked) == 2


class TestTooLongTexts:
    def test_a_text_that_does_not_fit_is_an_error_of_its_own(self, generator: OpenAIGenerator) -> None:
        with pytest.raises(ContextLengthError, match="exceeds the available context size") as caught:
            generator.complete(TOO_LONG)
        assert caught.value.status == 400
        with pytest.raises(ContextLengthError):
            list(generator.stream(TOO_LONG))

    def test_a_question_with_too_many_facts_is_asked_with_fewer(self, chat_url: str) -> None:
        memory = Memory(DictStorage(), HashEmbedder(), taggers=(), plugins=PluginManager())
        with memory, make_generator(chat_url, Brief) as generator:
            memory.add_many([f"Fact {number} on tea: {'word ' * 100}" for number in range(20)])
            with memory.ask_stream("What about tea?", generator, top_k=20, max_tokens=8000) as stream:
                pieces = list(stream)
            answer = stream.answer
        assert pieces
        assert answer.retrieval["overflows"] == 1
        assert (answer.retrieval["returned"], answer.retrieval["shown"]) == (20, 10)
        assert answer.incomplete


class TestTime:
    def test_an_answer_that_takes_too_long_is_left(self, chat_url: str) -> None:
        with (
            make_generator(chat_url, timeout=0.5, retries=0) as generator,
            pytest.raises(EndpointTimeoutError, match=r"timeout: 0.5 s"),
        ):
            generator.complete(MESSAGES, max_tokens=300)
        # llama.cpp goes on with the answer, as it has none to send that would tell it that nobody listens.
        with make_generator(chat_url) as generator:
            assert generator.complete(MESSAGES, max_tokens=4).text

    def test_a_stream_that_takes_too_long_breaks_off_and_frees_its_slot(self, chat_url: str, slots: Slots) -> None:
        assert slots.wait_until(busy=0)
        with make_generator(chat_url, timeout=1.0, retries=0) as generator:
            stream = generator.stream(MESSAGES, max_tokens=ENDLESS)
            with pytest.raises(EndpointTimeoutError):
                list(stream)
            with pytest.raises(GeneratorError, match="not read to its end"):
                _ = stream.completion
        assert slots.wait_until(busy=0)

    def test_a_stream_that_is_left_early_frees_its_slot(self, generator: OpenAIGenerator, slots: Slots) -> None:
        assert slots.wait_until(busy=0)
        with closing(generator.stream(MESSAGES, max_tokens=ENDLESS)) as stream:
            assert next(stream)
            assert slots.busy() == 1
        assert slots.wait_until(busy=0)

    def test_an_awaited_stream_that_is_cancelled_frees_its_slot(self, chat_url: str, slots: Slots) -> None:
        async def read() -> None:
            async with (
                AsyncGenerator(make_generator(chat_url)) as generator,
                generator.stream(MESSAGES, max_tokens=ENDLESS) as stream,
            ):
                async for _ in stream:
                    pass

        async def main() -> None:
            reading = asyncio.create_task(read())
            assert await asyncio.to_thread(slots.wait_until, 1)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading

        assert slots.wait_until(busy=0)
        asyncio.run(main())
        assert slots.wait_until(busy=0)

    def test_more_threads_than_slots_are_all_served(self, chat_url: str) -> None:
        found: dict[int, str] = {}
        with make_generator(chat_url) as generator:

            def ask(number: int) -> None:
                found[number] = generator.complete(MESSAGES, max_tokens=8).text

            threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(found) == list(range(5))
        assert all(found.values())


def test_a_message_is_stored_though_the_model_has_no_room_for_it(chat_url: str, tmp_path: Path) -> None:
    memory = Memory(DictStorage(), HashEmbedder(), taggers=(), plugins=PluginManager())
    with memory, make_generator(chat_url) as generator:
        with pytest.raises(ContextLengthError) as caught:
            memory.chat("I like tea. " + "word " * (CONTEXT + 100), generator, store=True)
        [stored] = memory.records()
        assert stored["id"] in "".join(caught.value.__notes__)
