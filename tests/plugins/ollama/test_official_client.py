"""Ollama's own client and the plugin ask the stub for the same and get the same, so all three agree on the shapes."""

import json

import numpy as np
import pytest

from nanomem_plugins.ollama.embedder import OllamaEmbedder
from nanomem_plugins.ollama.generator import OllamaGenerator
from tests import providers
from tests.scripted_server import ScriptedServer

ollama = pytest.importorskip("ollama", reason="Ollama's own client is not installed (the extra dev has it)")

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What do you know?"}]
SCHEMA = {"type": "object", "properties": {"facts": {"type": "array"}}, "required": ["facts"]}
OPTIONS = {"temperature": 0.3, "num_predict": 9}


@pytest.fixture
def server():
    with ScriptedServer(providers.ollama) as server:
        yield server


@pytest.fixture
def client(server):
    client = ollama.Client(host=server.url)
    yield client
    client._client.close()


def without_extras(body):
    """A request without the fields that their client adds though they are empty."""
    return {key: value for key, value in body.items() if value not in ([], None, "")}


def test_requests_and_completions_agree(server, client):
    theirs = client.chat(model="llama-x", messages=MESSAGES, options=OPTIONS)
    with OllamaGenerator("llama-x", base_url=server.url) as generator:
        ours = generator.complete(MESSAGES, temperature=0.3, max_tokens=9)
    assert without_extras(server.received[0].body) == server.received[1].body
    assert server.received[0].path == server.received[1].path
    assert ours.text == theirs.message.content
    assert (ours.model, ours.input_tokens) == (theirs.model, theirs.prompt_eval_count)
    assert ours.output_tokens == theirs.eval_count


def test_requests_for_json_agree(server, client):
    theirs = client.chat(model="llama-x", messages=MESSAGES, format=SCHEMA, options={"temperature": 0.0})
    with OllamaGenerator("llama-x", base_url=server.url) as generator:
        ours = generator.generate_json(MESSAGES, schema=SCHEMA)
    assert without_extras(server.received[0].body) == server.received[1].body
    assert ours == json.loads(theirs.message.content)


def test_streams_agree(server, client):
    chunks = list(client.chat(model="llama-x", messages=MESSAGES, stream=True, options={"temperature": 0.0}))
    with OllamaGenerator("llama-x", base_url=server.url) as generator:
        stream = generator.stream(MESSAGES)
        assert list(stream) == [chunk.message.content for chunk in chunks if chunk.message.content]
    assert without_extras(server.received[0].body) == server.received[1].body
    assert stream.completion.output_tokens == chunks[-1].eval_count


def test_embeddings_agree(server, client):
    theirs = client.embed(model="emb", input=["a", "b"], dimensions=5)
    with OllamaEmbedder("emb", base_url=server.url, dimensions=5) as embedder:
        ours = embedder.encode(["a", "b"])
        tokens = embedder.input_tokens
    assert without_extras(server.received[0].body) == server.received[1].body
    np.testing.assert_allclose(ours, theirs.embeddings, atol=1e-6)
    assert tokens == theirs.prompt_eval_count


def test_a_model_that_is_not_there_is_refused_to_both(client):
    with pytest.raises(ollama.ResponseError, match="not found"):
        client.embed(model="missing", input="a")
