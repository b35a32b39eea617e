import json

import numpy as np
import pytest

from nanomem_core.errors import BadResponseError, ConfigError, EmbedderError, RefusedError, WidthError
from nanomem_core.http import exchange, forget_unreachable_endpoints
from nanomem_plugins.ollama.embedder import OllamaEmbedder
from nanomem_plugins.ollama.generator import OllamaGenerator
from tests import providers
from tests.scripted_server import Reply, ScriptedServer

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What do you know?"}]
SCHEMA = {"type": "object", "properties": {"facts": {"type": "array"}}, "required": ["facts"]}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.002)
    for name in ("OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    forget_unreachable_endpoints()


@pytest.fixture
def server():
    with ScriptedServer(providers.ollama) as server:
        yield server


class TestEmbedder:
    def test_texts_become_vectors_in_order(self, server):
        with OllamaEmbedder(base_url=server.url, batch_size=2) as given:
            expected = providers.vectors(["a", "b", "c"], 12)
            np.testing.assert_allclose(given.encode(["a", "b", "c"]), expected, atol=1e-6)
            assert given.input_tokens == 3
        assert [request.body["input"] for request in server.received[:2]] == [["a", "b"], ["c"]]

    def test_width_and_dimensions(self, server):
        with OllamaEmbedder(base_url=server.url, dimensions=5) as given:
            assert given.embed("a").shape == (5,)
        with OllamaEmbedder(base_url=server.url, dim=768) as given, pytest.raises(WidthError):
            given.embed("a")

    def test_the_id_names_provider_and_model_and_prefixes(self):
        given = OllamaEmbedder("nomic-embed-text:latest", document_prefix="search_document: ", query_prefix="q: ")
        assert given.id == "ollama:nomic-embed-text document='search_document: ' query='q: '"
        assert OllamaEmbedder("bge-m3:567m").id == "ollama:bge-m3:567m"

    def test_a_model_that_is_not_there_is_named(self, server):
        with OllamaEmbedder("missing", base_url=server.url) as given:
            with pytest.raises(RefusedError, match="model 'missing' not found"):
                given.embed("a")
            assert len(server.received) == 1

    @pytest.mark.parametrize(
        "reply",
        [Reply({"data": []}), Reply({"embeddings": [[1, 2], [3, 4]]}), Reply({"embeddings": [[float("nan")]]})],
    )
    def test_a_bad_answer_is_an_error(self, reply):
        with (
            ScriptedServer([reply]) as server,
            OllamaEmbedder(base_url=server.url) as given,
            pytest.raises(EmbedderError),
        ):
            given.embed("a")


class TestGenerator:
    def test_a_completion_has_the_text_the_model_and_the_counts(self, server):
        with OllamaGenerator("llama-x", base_url=server.url, num_ctx=4096) as given:
            completion = given.complete(MESSAGES, temperature=0.3, max_tokens=9)
        assert completion.text == providers.TEXT
        assert (completion.model, completion.input_tokens, completion.output_tokens) == ("llama-x", 11, 7)
        assert server.received[0].body == {
            "model": "llama-x",
            "messages": MESSAGES,
            "stream": False,
            "options": {"temperature": 0.3, "num_predict": 9, "num_ctx": 4096},
        }

    def test_json_is_asked_for_by_schema(self, server):
        with OllamaGenerator("llama-x", base_url=server.url) as given:
            assert given.generate_json(MESSAGES, schema=SCHEMA) == {"facts": [providers.TEXT]}
        assert server.received[0].body["format"] == SCHEMA

    def test_pieces_of_a_stream_make_the_completion(self, server):
        with OllamaGenerator("llama-x", base_url=server.url) as given:
            stream = given.stream(MESSAGES)
            pieces = list(stream)
            assert len(pieces) > 3
            assert "".join(pieces) == providers.TEXT
            assert stream.completion == given.complete(MESSAGES)

    @pytest.mark.parametrize(
        "more", [[], [{"error": "out of memory"}], [{"message": {"content": "x"}, "done": "true"}], ["nonsense"]]
    )
    def test_a_stream_that_ends_before_the_answer_is_an_error(self, more):
        lines = [{"message": {"content": "half"}, "done": False}, *more]
        body = [(json.dumps(line) + "\n").encode() for line in lines]
        with ScriptedServer([Reply(body)]) as server, OllamaGenerator("x", base_url=server.url) as given:
            stream = given.stream(MESSAGES)
            assert next(stream) == "half"
            with pytest.raises(BadResponseError):
                list(stream)

    @pytest.mark.parametrize("body", [{}, [], {"message": "x"}, {"message": {"content": None}}, {"response": "x"}])
    def test_a_bad_answer_is_an_error(self, body):
        with (
            ScriptedServer([Reply(body)]) as server,
            OllamaGenerator("x", base_url=server.url) as given,
            pytest.raises(BadResponseError),
        ):
            given.complete(MESSAGES)


class TestUrl:
    @pytest.mark.parametrize(
        ("base", "complete"),
        [
            ("http://h:1", "http://h:1/api/embed"),
            ("http://h:1/api", "http://h:1/api/embed"),
            ("http://h:1/api/embed", "http://h:1/api/embed"),
            ("https://h/ollama/", "https://h/ollama/api/embed"),
        ],
    )
    def test_a_base_url_is_completed(self, base, complete):
        assert OllamaEmbedder(base_url=base).endpoint.shown == complete

    @pytest.mark.parametrize(
        ("host", "complete"),
        [
            (None, "http://localhost:11434/api/embed"),
            ("", "http://localhost:11434/api/embed"),
            ("gpu-box", "http://gpu-box:11434/api/embed"),
            ("gpu-box:8080", "http://gpu-box:8080/api/embed"),
            ("0.0.0.0", "http://localhost:11434/api/embed"),
            ("[::1]:5000", "http://[::1]:5000/api/embed"),
            ("https://gpu-box/ollama", "https://gpu-box/ollama/api/embed"),
        ],
    )
    def test_the_environment_s_host_is_read_as_ollama_does(self, host, complete, monkeypatch):
        if host is not None:
            monkeypatch.setenv("OLLAMA_HOST", host)
        assert OllamaEmbedder().endpoint.shown == complete

    def test_a_server_that_rather_speaks_openai_s_interface_is_told(self, monkeypatch):
        monkeypatch.setattr("nanomem_core.http.urls._OPENAI_PORTS", range(65536))
        with (
            ScriptedServer([Reply("", 404)]) as server,
            OllamaEmbedder(base_url=server.url) as given,
            pytest.raises(RefusedError, match="interface of the plugin 'openai'"),
        ):
            given.embed("a")

    @pytest.mark.parametrize("host", ["gpu-box:80a0", "http://gpu-box:port"])
    def test_a_malformed_port_is_a_clear_error(self, host, monkeypatch):
        monkeypatch.setenv("OLLAMA_HOST", host)
        with pytest.raises(ConfigError):
            OllamaEmbedder()

    def test_a_url_of_openai_s_interface_is_sent_to_that_plugin(self):
        with pytest.raises(ConfigError, match="use: openai"):
            OllamaGenerator("x", base_url="http://localhost:11434/v1")

    def test_the_key_of_the_environment_stays_with_its_own_server(self, monkeypatch):
        monkeypatch.setenv("OLLAMA_API_KEY", "key-of-ollama")
        assert OllamaEmbedder(base_url="https://ollama.com").endpoint.headers
        assert not OllamaEmbedder(base_url="https://other.example").endpoint.headers
