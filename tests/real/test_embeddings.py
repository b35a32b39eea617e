"""The embedder ``openai`` asks a real server of embeddings."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from nanomem_core.aio import AsyncEmbedder
from nanomem_core.errors import EmbedderMismatchError, WidthError
from nanomem_core.interfaces import Embedder
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing import DictStorage, EmbedderContract
from nanomem_plugins.openai.embedder import OpenAIEmbedder
from tests.memories import storage_in, texts
from tests.real.models import PASSAGES, QUESTIONS, make_embedder

pytestmark = pytest.mark.real

WIDTH = 384
SAID = [
    "Ann drinks oolong tea every morning.",
    "Ann's sister plays the violin in an orchestra.",
    "用户最近在学习机器学习算法。",
    "Ann is allergic to peanuts.",
    "Ann works as a backend engineer.",
]


class TestContract(EmbedderContract):
    @pytest.fixture
    def make_embedder(self, embeddings_url: str) -> partial[Embedder]:
        return partial(make_embedder, embeddings_url)


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_openai_s_own_client_gets_the_same(embeddings_url: str, encoding: str) -> None:
    openai = pytest.importorskip("openai", reason="OpenAI's own client is not installed (the extra dev has it)")
    with openai.OpenAI(base_url=embeddings_url, api_key="none") as client:
        theirs = client.embeddings.create(model=PASSAGES, input=SAID)
    with make_embedder(embeddings_url, encoding_format=encoding) as embedder:
        np.testing.assert_allclose(embedder.encode(SAID), [each.embedding for each in theirs.data], atol=1e-6)
        assert embedder.input_tokens == theirs.usage.prompt_tokens


def test_the_width_is_learned_and_a_wrong_one_refused(embeddings_url: str) -> None:
    with make_embedder(embeddings_url) as embedder:
        assert embedder.dim == WIDTH
    with make_embedder(embeddings_url, dim=768) as embedder, pytest.raises(WidthError) as caught:
        embedder.embed("a")
    assert (caught.value.expected, caught.value.found) == (768, WIDTH)


def test_texts_in_several_batches_get_the_rows_of_one(embeddings_url: str, embedder: OpenAIEmbedder) -> None:
    with make_embedder(embeddings_url, batch_size=2) as small:
        np.testing.assert_allclose(small.embed_batch(SAID), embedder.embed_batch(SAID), atol=1e-6)


def test_awaiting_gives_the_same_as_blocking(embeddings_url: str, embedder: OpenAIEmbedder) -> None:
    async def main() -> object:
        async with AsyncEmbedder(make_embedder(embeddings_url)) as given:
            return await given.embed_batch(SAID)

    np.testing.assert_allclose(asyncio.run(main()), embedder.embed_batch(SAID), atol=1e-6)


def test_meaning_is_found_without_a_word_in_common(embedder: OpenAIEmbedder) -> None:
    with Memory(DictStorage(), embedder, taggers=(), plugins=PluginManager()) as memory:
        memory.add_many(SAID)
        for question, answer in (
            ("What is her favourite hot beverage?", 0),
            ("What has the user been learning lately?", 2),
            ("What is her job?", 4),
        ):
            assert texts(memory.search(question, 1, mode="vector")) == [SAID[answer]]


def test_vectors_of_two_models_are_never_compared(
    tmp_path: Path, embeddings_url: str, embedder: OpenAIEmbedder
) -> None:
    def opened(embedder: Embedder) -> Memory:
        return Memory(storage_in(tmp_path, "arena"), embedder, taggers=(), plugins=PluginManager())

    with opened(embedder) as memory:
        memory.add_many(SAID)
    with (
        make_embedder(embeddings_url, QUESTIONS) as other,
        pytest.raises(EmbedderMismatchError, match="reembed"),
        opened(other) as memory,
    ):
        memory.search("tea")
