import base64

import numpy as np
import pytest

from nanomem_core import Memory
from nanomem_core.errors import (
    AuthenticationError,
    BadResponseError,
    ConfigError,
    EmbedderError,
    EmbedderMismatchError,
    RefusedError,
    UnreachableError,
    WidthError,
)
from nanomem_core.http import exchange, forget_unreachable_endpoints
from nanomem_core.testing import DictStorage
from nanomem_plugins.openai.embedder import OpenAIEmbedder
from tests import providers
from tests.scripted_server import Reply, ScriptedServer


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.002)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    forget_unreachable_endpoints()


@pytest.fixture
def server():
    with ScriptedServer(providers.openai) as server:
        yield server


def embedder(server, **options):
    return OpenAIEmbedder(**{"base_url": server.url, "api_key": providers.KEY} | options)


def answering(rows, **more):
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    return Reply({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1}} | more)


def test_rows_stand_in_the_order_of_the_texts_however_the_answer_is_ordered(server):
    with embedder(server) as given:
        np.testing.assert_allclose(given.encode(["a", "b", "c"]), providers.vectors(["a", "b", "c"], 12), atol=1e-6)


def test_vectors_may_travel_in_base64(server):
    with embedder(server, encoding_format="base64") as packed, embedder(server) as plain:
        np.testing.assert_array_equal(packed.encode(["a", "b"]), plain.encode(["a", "b"]))
    assert server.received[0].body["encoding_format"] == "base64"


def test_base64_is_read_also_where_numbers_were_asked_for():
    row = np.array([3.0, 4.0], "<f4")
    reply = answering([base64.b64encode(row.tobytes()).decode()])
    with ScriptedServer([reply]) as server, embedder(server) as given:
        np.testing.assert_allclose(given.embed("a"), [0.6, 0.8])


def test_texts_travel_in_batches_by_count(server):
    with embedder(server, batch_size=2) as given:
        rows = given.encode(["a", "b", "c", "d", "e"])
    assert [request.body["input"] for request in server.received] == [["a", "b"], ["c", "d"], ["e"]]
    np.testing.assert_allclose(rows, providers.vectors(list("abcde"), 12), atol=1e-6)
    assert given.input_tokens == 5


def test_texts_travel_in_batches_by_tokens_and_a_long_one_alone(server):
    with embedder(server, batch_tokens=10) as given:
        given.encode(["a", "b", "long " * 20, "c", "d"])
    assert [len(request.body["input"]) for request in server.received] == [2, 1, 2]


def test_a_batch_that_fails_fails_the_whole_call():
    def script(request):
        return Reply({}, 400) if "c" in request.body["input"] else providers.openai(request)

    with ScriptedServer(script) as server, embedder(server, batch_size=1) as given, pytest.raises(RefusedError):
        given.encode(["a", "b", "c"])


def test_prefixes_go_before_texts_and_questions(server):
    with embedder(server, document_prefix="passage: ", query_prefix="query: ") as given:
        given.embed("a")
        given.embed_query("a")
    assert [request.body["input"] for request in server.received] == [["passage: a"], ["query: a"]]


def test_an_empty_text_is_sent_as_a_blank(server):
    with embedder(server) as given:
        given.embed("")
    assert server.received[0].body["input"] == [" "]


class TestWidth:
    def test_it_is_asked_for_once_if_it_is_wanted_before_any_text(self, server):
        with embedder(server) as given:
            assert (given.dim, given.dim) == (12, 12)
        assert len(server.received) == 1

    def test_it_is_learned_from_the_first_answer(self, server):
        with embedder(server) as given:
            given.embed("a")
            assert given.dim == 12
        assert len(server.received) == 1

    def test_a_declared_one_is_not_asked_for(self, server):
        with embedder(server, dim=12) as given:
            assert given.dim == 12
        assert server.received == []

    def test_a_declared_one_that_is_wrong_is_an_error(self, server):
        with embedder(server, dim=768) as given, pytest.raises(WidthError) as caught:
            given.embed("a")
        assert (caught.value.expected, caught.value.found) == (768, 12)
        assert isinstance(caught.value, EmbedderError)

    def test_an_answer_of_another_width_than_before_is_an_error(self):
        with ScriptedServer([answering([[1, 2]]), answering([[1, 2, 3]])]) as server, embedder(server) as given:
            given.embed("a")
            with pytest.raises(WidthError, match="as before"):
                given.embed("b")

    def test_a_narrower_one_is_asked_for_by_dimensions(self, server):
        with embedder(server, dimensions=5) as given:
            assert given.dim == 5
            assert given.embed("a").shape == (5,)
        assert server.received[0].body["dimensions"] == 5

    def test_dim_and_dimensions_must_agree(self):
        with pytest.raises(ConfigError, match="dim: expected 5"):
            OpenAIEmbedder(dim=6, dimensions=5)

    def test_an_endpoint_that_is_down_gives_no_width(self):
        with (
            OpenAIEmbedder(base_url="http://127.0.0.1:9", api_key="k", retries=0) as given,
            pytest.raises(UnreachableError),
        ):
            _ = given.dim


class TestBadAnswers:
    @pytest.mark.parametrize(
        ("reply", "problem"),
        [
            (Reply({"embeddings": [[1, 2], [3, 4]]}), "expected data"),
            (Reply([1]), "expected data"),
            (Reply({"data": [{"index": 0}, {"index": 1}]}), "expected embedding"),
            (Reply({"data": "x"}), "expected 2 vectors"),
            (answering([[1, 2]]), "found 1"),
            (answering([[1, 2], [3, 4], [5, 6]]), "found 3"),
            (answering([]), "expected 2 vectors"),
            (answering([[1, 2], [3]]), "one width"),
            (answering([["a"], ["b"]]), "one width"),
            (answering([[[1]], [[2]]]), "shape"),
            (answering(["!", "?"]), "base64"),
            (answering(["AAA=", "AAA="]), "base64"),
            (Reply({"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}), "each index"),
            (Reply({"data": [{"index": 1, "embedding": [1]}, {"index": 2, "embedding": [1]}]}), "each index"),
            (Reply({"data": [{"index": "0", "embedding": [1]}, {"index": 1, "embedding": [1]}]}), "each index"),
        ],
    )
    def test_an_answer_of_another_shape_is_an_error(self, reply, problem):
        with ScriptedServer([reply]) as server, embedder(server) as given:
            with pytest.raises(BadResponseError, match=problem):
                given.embed_batch(["a", "b"])
            assert len(server.received) == 1

    @pytest.mark.parametrize("row", ["[NaN, 1]", "[1e999, 1]", "[null, 1]", "[0, 0]"])
    def test_numbers_that_are_none_are_an_error(self, row):
        reply = Reply('{"data": [{"index": 0, "embedding": ' + row + "}]}")
        with ScriptedServer([reply]) as server, embedder(server) as given, pytest.raises(EmbedderError):
            given.embed("a")

    def test_an_answer_without_indices_keeps_the_order(self):
        reply = Reply({"data": [{"embedding": [1, 0]}, {"embedding": [0, 1]}]})
        with ScriptedServer([reply]) as server, embedder(server) as given:
            assert given.embed_batch(["a", "b"]).tolist() == [[1, 0], [0, 1]]


class TestId:
    def test_whatever_changes_the_vectors_changes_it(self):
        options = [
            {},
            {"model": "other"},
            {"dimensions": 5},
            {"document_prefix": "a"},
            {"query_prefix": "a"},
            {"document_prefix": "a", "query_prefix": "a"},
            {"document_prefix": "a query='b'"},
        ]
        assert len({OpenAIEmbedder(**each).id for each in options}) == len(options)

    def test_what_does_not_change_them_does_not(self):
        for options in ({"dim": 12}, {"batch_size": 3}, {"base_url": "http://h"}, {"encoding_format": "base64"}):
            assert OpenAIEmbedder(**options).id == "openai:text-embedding-3-small"


class TestUrlAndKey:
    @pytest.mark.parametrize(
        ("base", "path"),
        [
            ("", "/v1/embeddings"),
            ("/v1", "/v1/embeddings"),
            ("/openai/v1/", "/openai/v1/embeddings"),
            ("/any/embeddings", "/any/embeddings"),
            ("/v1beta/openai", "/v1beta/openai/embeddings"),
        ],
    )
    def test_a_base_url_is_completed(self, base, path, server):
        with OpenAIEmbedder(base_url=f"{server.url}{base}", api_key=providers.KEY) as given:
            given.embed("a")
        assert server.received[0].path == path

    def test_the_endpoint_of_chats_is_refused(self):
        with pytest.raises(ConfigError, match="/embeddings, or a base URL"):
            OpenAIEmbedder(base_url="http://h/v1/chat/completions")

    def test_a_key_may_be_a_secret_of_pydantic(self, server):
        from pydantic import SecretStr

        with embedder(server, api_key=SecretStr(providers.KEY)) as given:
            given.embed("a")

    def test_the_key_of_the_environment_goes_to_its_own_server_only(self, server, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", providers.KEY)
        assert OpenAIEmbedder().endpoint.headers == {"authorization": f"Bearer {providers.KEY}"}
        with OpenAIEmbedder(base_url=server.url) as given, pytest.raises(AuthenticationError, match="OPENAI_API_KEY"):
            given.embed("a")
        assert "authorization" not in server.received[0].headers

    def test_the_url_and_the_key_may_both_come_from_the_environment(self, server, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", providers.KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with OpenAIEmbedder() as given:
            assert given.embed("a").shape == (12,)

    def test_headers_are_sent_and_go_before_ours(self, server):
        with embedder(
            server, api_key=None, headers={"Authorization": f"Bearer {providers.KEY}", "X-Team": "a"}
        ) as given:
            given.embed("a")
        assert server.received[0].headers["x-team"] == "a"


class TestAzure:
    def test_a_full_url_is_asked_with_its_version_and_the_key_in_azure_s_header(self, monkeypatch):
        # Azure is told by its host, which a test can't be; the proxy stands in for its network.
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", providers.KEY)

        def script(request):
            assert request.path.startswith("http://team.openai.azure.com/")
            path = request.path.removeprefix("http://team.openai.azure.com")
            return providers.azure(type(request)("POST", path, request.query, request.headers, request.body))

        with ScriptedServer(script) as proxy:
            for base in (
                "http://team.openai.azure.com/openai/deployments/emb/embeddings?api-version=2024-10-21",
                "http://team.openai.azure.com/openai/deployments/emb?api-version=2024-10-21",
                "http://team.openai.azure.com",
            ):
                with OpenAIEmbedder("emb", base_url=base, proxy=proxy.url) as given:
                    assert given.embed("a").shape == (12,)
            assert [request.path.partition("azure.com")[2] for request in proxy.received] == [
                "/openai/deployments/emb/embeddings",
                "/openai/deployments/emb/embeddings",
                "/openai/v1/embeddings",
            ]
            assert all("authorization" not in request.headers for request in proxy.received)


class TestInAMemory:
    """What a fault leaves behind: nothing stored twice, nothing lost."""

    @pytest.mark.parametrize(
        "fault",
        [Reply({}, 500), Reply({}, 429), Reply({}, 400), Reply("no"), Reply({}, missing=3), answering([[1, 2, 3]])],
    )
    def test_what_could_not_be_embedded_is_not_stored_and_can_be_added_again(self, fault, tmp_path):
        broken = False

        def script(request):
            return fault if broken else providers.openai(request)

        with ScriptedServer(script) as server, embedder(server) as given:
            memory = Memory({"use": "arena", "path": tmp_path / "memory.dat"}, given, taggers=[])
            memory.add("Lives in Oslo", entity="city")
            broken = True
            with pytest.raises(EmbedderError):
                memory.add("Moved to Bergen", entity="city")
            broken = False
            memory.add("Moved to Bergen", entity="city")
            assert [value.text for value in memory.history(entity="city")] == ["Lives in Oslo", "Moved to Bergen"]
            memory.close()

    def test_a_store_without_vectors_takes_texts_while_the_server_is_down(self):
        broken = True

        def script(request):
            return Reply({}, 500) if broken else providers.openai(request)

        with ScriptedServer(script) as server, embedder(server) as given:
            memory = Memory(DictStorage(), given, taggers=[])
            memory.add("Lives in Oslo", entity="city")
            with pytest.raises(EmbedderError):
                memory.search("Where?", mode="vector")
            broken = False
            assert [hit.text for hit in memory.search("Where?", mode="vector")] == ["Lives in Oslo"]

    def test_history_needs_no_server(self):
        with ScriptedServer(providers.openai) as server, embedder(server) as given:
            storage = DictStorage()
            Memory(storage, given, taggers=[]).add("Lives in Oslo", entity="city")
        with OpenAIEmbedder(base_url="http://127.0.0.1:9", api_key="k") as down:
            memory = Memory(DictStorage(storage), down, taggers=[])
            assert [value.text for value in memory.history(entity="city")] == ["Lives in Oslo"]

    def test_vectors_of_two_models_are_never_mixed(self, server, tmp_path):
        path = tmp_path / "memory.dat"
        storage = {"use": "arena", "path": path}
        with embedder(server) as first, Memory(storage, first, taggers=[]) as memory:
            memory.add("Lives in Oslo")
        with (
            embedder(server, model="other") as second,
            Memory(storage, second, taggers=[]) as memory,
            pytest.raises(EmbedderMismatchError, match="openai:other"),
        ):
            memory.search("where?", mode="vector")
