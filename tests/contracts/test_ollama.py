"""The components ``ollama`` keep their contracts, against a stub of the published interface."""

from functools import partial

import pytest

from nanomem_core.testing import EmbedderContract, GeneratorContract
from nanomem_plugins.ollama.embedder import OllamaEmbedder
from nanomem_plugins.ollama.generator import OllamaGenerator
from tests import providers
from tests.scripted_server import ScriptedServer


@pytest.fixture
def server():
    with ScriptedServer(providers.ollama) as server:
        yield server


class TestOllamaEmbedder(EmbedderContract):
    @pytest.fixture
    def make_embedder(self, server):
        return partial(OllamaEmbedder, base_url=server.url)


class TestOllamaGenerator(GeneratorContract):
    @pytest.fixture
    def make_generator(self, server):
        return partial(OllamaGenerator, "llama-x", base_url=server.url)

    @pytest.fixture
    def make_failing_generator(self, server):
        return partial(OllamaGenerator, "missing", base_url=server.url)
