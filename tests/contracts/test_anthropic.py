"""The generator ``anthropic`` keeps the contract of generators, against a stub of the published interface."""

from functools import partial

import pytest

from nanomem_core.testing import GeneratorContract
from nanomem_plugins.anthropic.generator import AnthropicGenerator
from tests import providers
from tests.scripted_server import ScriptedServer


@pytest.fixture
def server():
    with ScriptedServer(providers.anthropic) as server:
        yield server


class TestAnthropicGenerator(GeneratorContract):
    @pytest.fixture
    def make_generator(self, server):
        return partial(AnthropicGenerator, "claude-x", base_url=server.url, api_key=providers.KEY)

    @pytest.fixture
    def make_failing_generator(self, server):
        return partial(AnthropicGenerator, "claude-x", base_url=server.url, api_key="sk-wrong")
