"""OpenAI's own client and the plugin ask the stub for the same and get the same, so all three agree on the shapes."""

import json

import numpy as np
import pytest

from nanomem_plugins.openai.embedder import OpenAIEmbedder
from nanomem_plugins.openai.generator import OpenAIGenerator
from tests import providers
from tests.scripted_server import ScriptedServer

openai = pytest.importorskip("openai", reason="OpenAI's own client is not installed (the extra dev has it)")

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What do you know?"}]
SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
    "required": ["facts"],
    "additionalProperties": False,
}


@pytest.fixture
def server():
    with ScriptedServer(providers.openai) as server:
        yield server


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=providers.KEY, max_retries=0) as client:
        yield client


def test_requests_and_completions_agree(server, client):
    theirs = client.chat.completions.create(model="gpt-x", messages=MESSAGES, temperature=0.3, max_tokens=9)
    with OpenAIGenerator("gpt-x", base_url=server.url, api_key=providers.KEY) as generator:
        ours = generator.complete(MESSAGES, temperature=0.3, max_tokens=9)
    assert server.received[0].body == server.received[1].body
    assert server.received[0].path == server.received[1].path
    assert ours.text == theirs.choices[0].message.content
    assert (ours.model, ours.input_tokens) == (theirs.model, theirs.usage.prompt_tokens)
    assert ours.output_tokens == theirs.usage.completion_tokens
    # The stub's answer has every field that their model of it demands, of the right type.
    type(theirs).model_validate(theirs.model_dump(), strict=True)


def test_requests_for_json_agree(server, client):
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    theirs = client.chat.completions.create(model="gpt-x", messages=MESSAGES, temperature=0.0, response_format=form)
    with OpenAIGenerator("gpt-x", base_url=server.url, api_key=providers.KEY) as generator:
        ours = generator.generate_json(MESSAGES, schema=SCHEMA)
    assert server.received[0].body == server.received[1].body
    assert ours == json.loads(theirs.choices[0].message.content)


def test_streams_agree(server, client):
    chunks = client.chat.completions.create(
        model="gpt-x", messages=MESSAGES, temperature=0.0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(chunks)
    theirs = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    with OpenAIGenerator("gpt-x", base_url=server.url, api_key=providers.KEY) as generator:
        stream = generator.stream(MESSAGES)
        assert list(stream) == theirs
    assert server.received[0].body == server.received[1].body
    assert stream.completion.input_tokens == chunks[-1].usage.prompt_tokens


def test_embeddings_agree(server, client):
    theirs = client.embeddings.create(model="emb", input=["a", "b"], dimensions=5)  # their default is base64
    with OpenAIEmbedder(
        "emb", base_url=server.url, api_key=providers.KEY, dimensions=5, encoding_format="base64"
    ) as embedder:
        ours = embedder.encode(["a", "b"])
        tokens = embedder.input_tokens
    assert server.received[0].body == server.received[1].body
    rows = [item.embedding for item in sorted(theirs.data, key=lambda item: item.index)]
    np.testing.assert_allclose(ours, rows, atol=1e-6)
    assert tokens == theirs.usage.prompt_tokens


def test_azure_s_client_asks_what_the_plugin_asks():
    with ScriptedServer(lambda request: providers.azure(request)) as server:
        with openai.AzureOpenAI(
            azure_endpoint=server.url, api_key=providers.KEY, api_version="2024-10-21", max_retries=0
        ) as client:
            theirs = client.chat.completions.create(model="dep", messages=MESSAGES, temperature=0.0)
        url = f"{server.url}/openai/deployments/dep?api-version=2024-10-21"
        with OpenAIGenerator("dep", base_url=url, headers={"api-key": providers.KEY}) as generator:
            assert generator.complete(MESSAGES).text == theirs.choices[0].message.content
        first, second = server.received
        assert (first.path, first.query, first.body) == (second.path, second.query, second.body)


def test_a_wrong_key_is_refused_to_both(server):
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.chat.completions.create(model="gpt-x", messages=MESSAGES)
