"""The twins that await do what those that block do, in the loop of their caller."""

import asyncio
import threading
from contextlib import closing

import numpy as np
import pytest

from nanomem_core.aio import AsyncClient, AsyncEmbedder, AsyncGenerator
from nanomem_core.errors import (
    BadResponseError,
    ClosedError,
    EndpointTimeoutError,
    GeneratorError,
    RefusedError,
    ReplyError,
    UnreachableError,
    WidthError,
)
from nanomem_core.http import Endpoint, exchange, forget_unreachable_endpoints, parse_url
from nanomem_core.testing import HashEmbedder, ScriptedGenerator
from nanomem_plugins.ollama.embedder import OllamaEmbedder
from nanomem_plugins.ollama.generator import OllamaGenerator
from tests import providers
from tests.scripted_server import Reply, ScriptedServer

MESSAGES = [{"role": "user", "content": "What do you know?"}]
SCHEMA = {"type": "object", "properties": {"facts": {"type": "array"}}, "required": ["facts"]}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.002)
    forget_unreachable_endpoints()
    yield
    forget_unreachable_endpoints()


@pytest.fixture
def server():
    with ScriptedServer(providers.ollama) as server:
        yield server


def call(body=None):
    answer = yield {} if body is None else body
    return answer


async def ask(url, **options):
    async with AsyncClient(Endpoint("test", parse_url(url), **{"timeout": 5} | options)) as client:
        return await client.run(call())


def test_an_embedder_gives_what_it_gives_by_blocking(server):
    async def main(embedder):
        async with AsyncEmbedder(embedder) as given:
            return await given.embed_batch(["a", "b", "c"]), await given.embed("a"), await given.embed_query("q")

    with OllamaEmbedder(base_url=server.url, query_prefix="query: ", batch_size=2) as embedder:
        rows, row, query = asyncio.run(main(embedder))
        np.testing.assert_array_equal(rows, embedder.embed_batch(["a", "b", "c"]))
        np.testing.assert_array_equal(row, embedder.embed("a"))
        np.testing.assert_array_equal(query, embedder.embed_query("q"))


def test_a_generator_gives_what_it_gives_by_blocking(server):
    async def main(generator):
        async with AsyncGenerator(generator) as given, given.stream(MESSAGES) as stream:
            pieces = [piece async for piece in stream]
            return (
                await given.complete(MESSAGES, max_tokens=9),
                await given.generate_json(MESSAGES, schema=SCHEMA),
                pieces,
                stream.completion,
            )

    with OllamaGenerator("llama-x", base_url=server.url) as generator:
        completion, value, pieces, streamed = asyncio.run(main(generator))
        assert completion == generator.complete(MESSAGES, max_tokens=9)
        assert value == generator.generate_json(MESSAGES, schema=SCHEMA)
        assert pieces == list(generator.stream(MESSAGES))
        assert streamed == completion


def test_what_is_no_http_client_runs_in_a_thread():
    threads = []

    def answer(call):
        threads.append(threading.current_thread())
        return '{"facts": []}'

    async def main():
        async with AsyncGenerator(ScriptedGenerator(answer)) as generator, AsyncEmbedder(HashEmbedder()) as embedder:
            stream = generator.stream(MESSAGES)
            assert [piece async for piece in stream] == ['{"facts": []}']
            assert stream.completion.text == '{"facts": []}'
            assert await generator.generate_json(MESSAGES, schema=SCHEMA) == {"facts": []}
            assert (await embedder.embed_batch([])).shape == (0, 16)
            return await embedder.embed_batch(["a"]), await embedder.embed("a"), await embedder.embed_query("a")

    rows, row, query = asyncio.run(main())
    np.testing.assert_array_equal(rows[0], row)
    np.testing.assert_array_equal(row, query)
    assert threading.main_thread() not in threads


def test_calls_at_the_same_time_wait_at_the_same_time():
    everybody = threading.Barrier(5)

    def script(request):
        everybody.wait(30)  # breaks unless all five are asked at once
        return Reply({"n": request.body["n"]})

    async def main(url):
        async with AsyncClient(Endpoint("test", parse_url(url))) as client:
            return await asyncio.gather(*(client.run(call({"n": n})) for n in range(5)))

    with ScriptedServer(script) as server:
        assert asyncio.run(main(server.url)) == [{"n": n} for n in range(5)]


class TestFaults:
    def test_a_bounded_number_of_times(self):
        with ScriptedServer([Reply({}, 500)]) as server:
            with pytest.raises(RefusedError):
                asyncio.run(ask(server.url))
            assert len(server.received) == 3

    def test_what_is_hopeless_once(self):
        with ScriptedServer([Reply({}, 401)]) as server:
            with pytest.raises(RefusedError):
                asyncio.run(ask(server.url))
            assert len(server.received) == 1

    def test_a_server_that_never_answers_is_left(self):
        with ScriptedServer([Reply({}, wait=threading.Event())]) as server, pytest.raises(EndpointTimeoutError):
            asyncio.run(ask(server.url, timeout=0.1, retries=0))

    @pytest.mark.parametrize("headers", [False, True])
    def test_a_server_that_drips_is_left(self, headers):
        reply = Reply({}, missing=1_000_000, drip=0.02, drip_headers=headers)
        with ScriptedServer([reply]) as server, pytest.raises(EndpointTimeoutError):
            asyncio.run(ask(server.url, timeout=0.2, retries=0))

    def test_an_answer_that_breaks_off_is_an_error(self):
        with ScriptedServer([Reply({}, missing=5)]) as server, pytest.raises(BadResponseError):
            asyncio.run(ask(server.url))

    def test_a_dead_endpoint_is_known_to_both_kinds_of_clients(self):
        with pytest.raises(UnreachableError, match="can't be reached"):
            asyncio.run(ask("http://127.0.0.1:9"))
        with (
            closing(OllamaGenerator("x", base_url="http://127.0.0.1:9")) as generator,
            pytest.raises(UnreachableError, match="left alone"),
        ):
            generator.complete(MESSAGES)

    def test_answers_that_are_never_json_end_after_the_second(self):
        async def main(url):
            async with AsyncGenerator(OllamaGenerator("x", base_url=url)) as generator:
                await generator.generate_json(MESSAGES, schema=SCHEMA)

        with ScriptedServer([Reply({"message": {"content": "No."}})]) as server:
            with pytest.raises(ReplyError):
                asyncio.run(main(server.url))
            assert len(server.received) == 2

    def test_a_wrong_width_is_an_error(self, server):
        async def main():
            async with AsyncEmbedder(OllamaEmbedder(base_url=server.url, dim=3)) as embedder:
                await embedder.embed("a")

        with pytest.raises(WidthError):
            asyncio.run(main())

    def test_a_call_that_is_cancelled_frees_its_connection(self):
        asked = threading.Event()

        def script(request):
            asked.set()
            return Reply({}, missing=1_000_000, drip=0.02)

        async def main(url):
            async with AsyncClient(Endpoint("test", parse_url(url))) as client:
                task = asyncio.create_task(client.run(call()))
                await asyncio.to_thread(asked.wait, 30)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await asyncio.to_thread(server.gone.wait, 10)

        with ScriptedServer(script) as server:
            asyncio.run(main(server.url))

    def test_a_stream_that_is_left_frees_its_connection(self):
        async def main(url):
            async with AsyncGenerator(OllamaGenerator("x", base_url=url)) as generator:
                async with generator.stream(MESSAGES) as stream:
                    await anext(stream)
                    with pytest.raises(GeneratorError):
                        _ = stream.completion
                assert await asyncio.to_thread(server.gone.wait, 10)

        line = b'{"message": {"content": "word"}}\n'
        with ScriptedServer([Reply([line * 50] * 20_000)]) as server:
            asyncio.run(main(server.url))

    def test_a_closed_client_says_so(self):
        async def main():
            client = AsyncClient(Endpoint("test", parse_url("http://127.0.0.1:9")))
            await client.close()
            await client.close()
            await client.run(call())

        with pytest.raises(ClosedError):
            asyncio.run(main())
