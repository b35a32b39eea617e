"""The components ``openai`` keep their contracts, against a stub of the published interface."""

from functools import partial

import pytest

from nanomem_core.testing import EmbedderContract, GeneratorContract
from nanomem_plugins.openai.embedder import OpenAIEmbedder
from nanomem_plugins.openai.generator import OpenAIGenerator
from tests import providers
from tests.scripted_server import ScriptedServer


@pytest.fixture
def server():
    with ScriptedServer(providers.openai) as server:
        yield server


class TestOpenAIEmbedder(EmbedderContract):
    @pytest.fixture
    def make_embedder(self, server):
        return partial(OpenAIEmbedder, base_url=server.url, api_key=providers.KEY)


class TestOpenAIGenerator(GeneratorContract):
    @pytest.fixture
    def make_generator(self, server):
        return partial(OpenAIGenerator, "gpt-x", base_url=server.url, api_key=providers.KEY)

    @pytest.fixture
    def make_failing_generator(self, server):
        return partial(OpenAIGenerator, "gpt-x", base_url=server.url, api_key="sk-wrong")
