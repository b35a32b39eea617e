"""The plugin ``ollama`` and Ollama's own client ask an emulator of it, behind which real models answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from nanomem_core.errors import ContextLengthError, RefusedError
from nanomem_core.interfaces import ChatMessage
from nanomem_plugins.ollama.embedder import OllamaEmbedder
from nanomem_plugins.ollama.generator import OllamaGenerator
from nanomem_plugins.openai.embedder import OpenAIEmbedder
from nanomem_plugins.openai.generator import OpenAIGenerator
from tests.real.models import CHAT_MODEL, PASSAGES, Slots
from tests.real.test_chat import ENDLESS, MESSAGES, SCHEMA, TOO_LONG
from tests.real.test_embeddings import SAID
from tests.scripted_server import ScriptedServer
from tests.services.ollama import Ollama

pytestmark = pytest.mark.real

ollama = pytest.importorskip("ollama", reason="Ollama's own client is not installed (the extra dev has it)")


@pytest.fixture
def url(chat_url: str, embeddings_url: str) -> Iterator[str]:
    with (
        closing(Ollama(chat_url, CHAT_MODEL, embeddings_url, PASSAGES)) as emulator,
        ScriptedServer(emulator) as server,
    ):
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    client = ollama.Client(host=url)
    yield client
    client._client.close()


@pytest.fixture
def plugin(url: str) -> Iterator[OllamaGenerator]:
    with OllamaGenerator(CHAT_MODEL, base_url=url) as generator:
        yield generator


def test_a_completion_is_the_same_by_every_way(
    client: Any, plugin: OllamaGenerator, generator: OpenAIGenerator
) -> None:
    theirs = client.chat(model=CHAT_MODEL, messages=MESSAGES, options={"temperature": 0.0, "num_predict": 16})
    ours = plugin.complete(MESSAGES, max_tokens=16)
    assert ours.text == theirs.message.content == generator.complete(MESSAGES, max_tokens=16).text
    assert (ours.model, ours.input_tokens, ours.output_tokens) == (CHAT_MODEL, theirs.prompt_eval_count, 16)


def test_a_stream_is_the_same_by_every_way(client: Any, plugin: OllamaGenerator) -> None:
    options = {"temperature": 0.0, "num_predict": 16}
    theirs = [each.message.content for each in client.chat(CHAT_MODEL, MESSAGES, stream=True, options=options)]
    with plugin.stream(MESSAGES, max_tokens=16) as stream:
        ours = list(stream)
    assert ours == [piece for piece in theirs if piece]
    assert len(ours) > 8
    assert stream.completion == plugin.complete(MESSAGES, max_tokens=16)


def test_an_answer_follows_the_schema(client: Any, plugin: OllamaGenerator) -> None:
    options = {"temperature": 0.0, "num_predict": 200}
    theirs = client.chat(CHAT_MODEL, MESSAGES, format=SCHEMA, options=options)
    found = plugin.generate_json(MESSAGES, schema=SCHEMA, max_tokens=200)
    assert found == json.loads(theirs.message.content or "")
    assert list(found) == ["city", "size", "streets"]


def test_vectors_are_the_same_by_every_way(url: str, client: Any, embedder: OpenAIEmbedder) -> None:
    with OllamaEmbedder(PASSAGES, base_url=url) as plugin:
        rows = plugin.encode(SAID)
        assert plugin.input_tokens
    np.testing.assert_allclose(rows, client.embed(PASSAGES, SAID).embeddings, atol=1e-6)
    np.testing.assert_allclose(rows, embedder.encode(SAID), atol=1e-6)


def test_a_stream_that_is_left_early_frees_the_slot_behind(plugin: OllamaGenerator, slots: Slots) -> None:
    assert slots.wait_until(busy=0)
    with plugin.stream(MESSAGES, max_tokens=ENDLESS) as stream:
        assert next(stream)
        assert slots.busy() == 1
    assert slots.wait_until(busy=0)


def test_refusals_are_typed(client: Any, url: str, plugin: OllamaGenerator) -> None:
    messages: list[ChatMessage] = TOO_LONG
    with pytest.raises(ContextLengthError):
        plugin.complete(messages)
    with pytest.raises(ContextLengthError):
        list(plugin.stream(messages))
    with OllamaGenerator("missing", base_url=url) as missing, pytest.raises(RefusedError, match="not found"):
        missing.complete(MESSAGES)
    with pytest.raises(ollama.ResponseError, match="not found"):
        client.chat("missing", MESSAGES)
    assert {model.model for model in client.list().models} == {CHAT_MODEL, PASSAGES}
