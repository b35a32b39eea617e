"""Anthropic's own client and the plugin ask the stub for the same and get the same: all three agree on the shapes."""

import pytest

from nanomem_plugins.anthropic.generator import AnthropicGenerator
from tests import providers
from tests.scripted_server import ScriptedServer

anthropic = pytest.importorskip("anthropic", reason="Anthropic's own client is not installed (the extra dev has it)")

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What do you know?"}]


@pytest.fixture
def server():
    with ScriptedServer(providers.anthropic) as server:
        yield server


@pytest.fixture
def client(server):
    with anthropic.Anthropic(base_url=server.url, api_key=providers.KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def generator(server):
    with AnthropicGenerator("claude-x", base_url=server.url, api_key=providers.KEY) as generator:
        yield generator


ASKED = {"model": "claude-x", "max_tokens": 9, "system": "Be brief.", "messages": MESSAGES[1:]}


def test_requests_and_completions_agree(server, client, generator):
    theirs = client.messages.create(**ASKED, extra_body={"temperature": 0.3})
    ours = generator.complete(MESSAGES, temperature=0.3, max_tokens=9)
    assert server.received[0].body == server.received[1].body
    assert server.received[0].path == server.received[1].path
    assert ours.text == "".join(block.text for block in theirs.content)
    usage = theirs.usage
    assert ours.input_tokens == (usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens)
    assert (ours.model, ours.output_tokens) == (theirs.model, usage.output_tokens)


def test_streams_agree(server, client, generator):
    with client.messages.stream(**ASKED, extra_body={"temperature": 0.0}) as stream:
        theirs = list(stream.text_stream)
        message = stream.get_final_message()
    ours = generator.stream(MESSAGES, max_tokens=9)
    assert list(ours) == theirs
    assert server.received[0].body == server.received[1].body
    assert ours.completion.output_tokens == message.usage.output_tokens


def test_a_wrong_key_is_refused_to_both(server):
    with (
        anthropic.Anthropic(base_url=server.url, api_key="sk-wrong", max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError),
    ):
        client.messages.create(**ASKED)
