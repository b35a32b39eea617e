"""Faults of a server, on real sockets: how often it is asked, what the caller is told, what is left behind."""

import base64
import json
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from nanomem_core.errors import (
    AuthenticationError,
    BadResponseError,
    ClosedError,
    ConfigError,
    ContextLengthError,
    EmbedderError,
    EndpointTimeoutError,
    GeneratorError,
    RateLimitedError,
    RefusedError,
    UnreachableError,
)
from nanomem_core.http import Client, Endpoint, circuit, exchange, forget_unreachable_endpoints, parse_url
from tests.scripted_server import Reply, ScriptedServer

KEY = "sk-test-0123456789abcdef"


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.002)
    forget_unreachable_endpoints()
    yield
    forget_unreachable_endpoints()


def endpoint(url, **options):
    options.setdefault("headers", {"authorization": f"Bearer {KEY}"})
    options.setdefault("timeout", 5)
    return Endpoint("test", parse_url(url), **options)


def asking(*bodies):
    answers = []
    for body in bodies:
        answer = yield body
        answers.append(answer)
    return answers


def ask(url, *bodies, **options):
    with closing(Client(endpoint(url, **options))) as client:
        return client.run(asking(*(bodies or ({"n": 1},))))


@pytest.fixture
def dead_url():
    with socket.socket() as bound:  # bound but not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_bodies_and_answers_are_json_in_both_directions():
    with ScriptedServer(lambda request: Reply({"echo": request.body})) as server:
        sent = {"text": "Zoë 漢字 🫖\0", "half": "\ud83d"}
        assert ask(server.url, sent) == [{"echo": {"text": "Zoë 漢字 🫖\0", "half": "?"}}]
        assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.received[0].headers["content-type"] == "application/json"


def test_what_passes_is_tried_again():
    with ScriptedServer([Reply("busy", 503), Reply("slow down", 429), Reply({"ok": True})]) as server:
        assert ask(server.url) == [{"ok": True}]
        assert len(server.received) == 3


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_an_error_that_never_passes_is_asked_a_bounded_number_of_times(status):
    with ScriptedServer([Reply({"error": {"message": "no"}}, status)]) as server:
        with pytest.raises(RefusedError) as caught:
            ask(server.url, retries=2)
        assert len(server.received) == 3
        assert caught.value.status == status
        assert isinstance(caught.value, RateLimitedError) == (status == 429)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RefusedError),
        (401, AuthenticationError),
        (403, AuthenticationError),
        (404, RefusedError),
        (413, RefusedError),
        (422, RefusedError),
    ],
)
def test_what_is_hopeless_is_asked_once(status, kind):
    with ScriptedServer([Reply({"error": {"message": "no such thing", "code": "x"}}, status)]) as server:
        with pytest.raises(kind) as caught:
            ask(server.url)
        assert len(server.received) == 1
        assert (caught.value.status, caught.value.code, caught.value.url) == (status, "x", f"{server.url}")
        assert "no such thing" in str(caught.value)


def test_the_repetitions_are_counted_over_all_requests_of_a_call():
    with ScriptedServer(lambda request: Reply({}, 500 if len(server.received) % 2 else 200)) as server:
        with pytest.raises(RefusedError):
            ask(server.url, *({"n": n} for n in range(10)), retries=3)
        assert [request.body["n"] for request in server.received] == [0, 0, 1, 1, 2, 2, 3]


def test_a_quota_that_is_used_up_is_not_asked_for_again():
    reply = Reply({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, 429)
    with ScriptedServer([reply]) as server:
        with pytest.raises(RateLimitedError):
            ask(server.url)
        assert len(server.received) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}),
        (400, {"type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"}),
        (400, {"code": 400, "type": "exceed_context_size_error", "message": "the request exceeds the available size"}),
        (500, "the input length exceeds the context length"),
    ],
)
def test_a_text_that_is_too_long_for_the_model_has_an_error_of_its_own(status, error):
    with ScriptedServer([Reply({"error": error}, status)]) as server:
        with pytest.raises(ContextLengthError):
            ask(server.url)
        assert len(server.received) == 1


class TestRetryAfter:
    def waits(self, headers, monkeypatch):
        slept = []
        monkeypatch.setattr(Client, "_wait", lambda self, seconds: slept.append(seconds))
        with ScriptedServer([Reply("", 429, headers), Reply({})]) as server:
            try:
                ask(server.url)
            except RateLimitedError as error:
                return slept, error
        return slept, None

    def test_seconds_are_waited(self, monkeypatch):
        assert self.waits({"retry-after": "7"}, monkeypatch) == ([7.0], None)
        assert self.waits({"retry-after-ms": "1500", "retry-after": "9"}, monkeypatch) == ([1.5], None)

    def test_a_date_is_waited_for(self, monkeypatch):
        monkeypatch.setattr("nanomem_core.http.answers.time.time", lambda: 1_790_000_000.0)
        slept, error = self.waits({"retry-after": "Mon, 21 Sep 2026 14:13:50 GMT"}, monkeypatch)
        assert (slept, error) == ([30.0], None)

    def test_a_date_that_is_past_is_not_waited_for(self, monkeypatch):
        (slept,), error = self.waits({"retry-after": "Mon, 21 Sep 2015 14:13:50 GMT"}, monkeypatch)
        assert slept <= 0.002
        assert error is None

    @pytest.mark.parametrize("value", ["soon", "-5", "1e9", "Mon, 99 Sep 2026 99:13:50 GMT", "nan"])
    def test_nonsense_is_as_good_as_nothing(self, value, monkeypatch):
        (slept,), error = self.waits({"retry-after": value}, monkeypatch)
        assert slept <= 0.002
        assert error is None

    def test_a_longer_wait_than_a_minute_is_the_caller_s_to_decide(self, monkeypatch):
        slept, error = self.waits({"retry-after": "3600"}, monkeypatch)
        assert slept == []
        assert error.retry_after == 3600
        assert "3600 s" in str(error)


class TestTime:
    def test_a_server_that_never_answers_is_left(self):
        with ScriptedServer([Reply({}, wait=threading.Event())]) as server:
            with pytest.raises(EndpointTimeoutError) as caught:
                ask(server.url, timeout=0.2, retries=1)
            assert len(server.received) <= 2
            assert isinstance(caught.value, TimeoutError)

    @pytest.mark.parametrize("headers", [False, True])
    def test_a_server_that_drips_is_left_though_no_single_wait_is_long(self, headers):
        reply = Reply({}, missing=1_000_000, drip=0.02, drip_headers=headers)
        with (
            ScriptedServer([reply]) as server,
            closing(Client(endpoint(server.url, timeout=0.4, read_timeout=0.3, retries=0))) as client,
        ):
            with pytest.raises(EndpointTimeoutError):
                client.run(asking({}))
            assert client._transport()._pool.connections == []

    def test_an_answer_that_comes_late_is_not_taken_for_the_next_one(self):
        late = threading.Event()

        def script(request):
            return Reply(request.body, wait=late if request.body["n"] == 1 else None)

        with (
            ScriptedServer(script) as server,
            closing(Client(endpoint(server.url, timeout=2, read_timeout=0.2, retries=0))) as client,
        ):
            with pytest.raises(EndpointTimeoutError):
                client.run(asking({"n": 1}))
            late.set()
            assert client.run(asking({"n": 2})) == [{"n": 2}]

    def test_an_endpoint_nobody_listens_at_is_unreachable(self, dead_url):
        with pytest.raises(UnreachableError) as caught:
            ask(dead_url, retries=0)
        assert isinstance(caught.value, ConnectionError)
        assert caught.value.url == dead_url


class TestBrokenAnswers:
    def test_one_that_breaks_off_is_asked_for_again_and_then_an_error(self):
        with ScriptedServer([Reply({"a": 1}, missing=10)]) as server:
            with pytest.raises(BadResponseError) as caught:
                ask(server.url)
            assert len(server.received) == 3
            assert caught.value.status is None
        with ScriptedServer([Reply({"a": 1}, missing=10), Reply({"a": 2})]) as server:
            assert ask(server.url) == [{"a": 2}]

    @pytest.mark.parametrize("body", ["", "<html>Please log in</html>", '{"a": ', "[" * 100_000, b"\xff\xfe\x00"])
    def test_one_that_is_no_json_is_an_error_at_once(self, body):
        with ScriptedServer([Reply(body)]) as server:
            with pytest.raises(BadResponseError):
                ask(server.url)
            assert len(server.received) == 1

    def test_one_that_is_too_large_is_left(self, monkeypatch):
        monkeypatch.setattr("nanomem_core.http.transport.LARGEST", 1 << 20)
        with ScriptedServer([Reply([b" " * 65536] * 64)]) as server, pytest.raises(BadResponseError, match="1 MiB"):
            ask(server.url)

    def test_numbers_that_are_none_are_missing(self):
        with ScriptedServer([Reply('{"a": [NaN, Infinity, -Infinity]}')]) as server:
            assert ask(server.url) == [{"a": [None, None, None]}]

    def test_a_redirect_is_not_followed(self):
        with ScriptedServer([Reply("", 307, {"location": "http://127.0.0.1:1/steal?x=1"})]) as server:
            with pytest.raises(RefusedError, match=r"redirects to http://127\.0\.0\.1:1/steal"):
                ask(server.url)
            assert len(server.received) == 1

    def test_what_a_server_says_is_shown_on_one_line_and_not_whole(self):
        reply = Reply({"error": "a\n\x1b[31m" + "b" * 10_000}, 400)
        with ScriptedServer([reply]) as server, pytest.raises(RefusedError) as caught:
            ask(server.url)
        assert len(str(caught.value)) < 500
        assert str(caught.value).isprintable()

    @pytest.mark.parametrize(
        ("body", "shown"),
        [
            ({"error": {"message": "m1"}}, "m1"),
            ({"error": "m2"}, "m2"),
            ({"object": "error", "message": "m3"}, "m3"),
            ({"detail": [{"loc": ["body", "input"], "msg": "m4"}]}, "m4"),
            ("plain m5", "m5"),
            ([1, "m6"], "m6"),
        ],
    )
    def test_every_server_s_way_of_complaining_is_read(self, body, shown):
        reply = Reply(body if isinstance(body, str) else json.dumps(body), 400)
        with ScriptedServer([reply]) as server, pytest.raises(RefusedError, match=shown):
            ask(server.url)


class TestDeadEndpoints:
    def test_after_three_failures_nobody_waits_for_it_any_more(self, dead_url):
        with pytest.raises(UnreachableError, match="can't be reached"):
            ask(dead_url, retries=2)
        with pytest.raises(UnreachableError, match="left alone"):
            ask(f"{dead_url}/another/path")

    def test_it_is_tried_again_by_one_after_a_while(self, dead_url, monkeypatch):
        with pytest.raises(UnreachableError):
            ask(dead_url)
        later = circuit.time.monotonic() + circuit.PAUSE + 1
        monkeypatch.setattr(circuit.time, "monotonic", lambda: later)
        assert circuit.seconds_to_wait(dead_url) is None
        assert circuit.seconds_to_wait(dead_url) == circuit.PAUSE

    def test_any_answer_closes_the_circuit(self):
        with ScriptedServer([Reply("", 400)]) as server:
            circuit.failed(server.url)
            circuit.failed(server.url)
            with pytest.raises(RefusedError):
                ask(server.url)
            circuit.failed(server.url)
            assert circuit.seconds_to_wait(server.url) is None

    def test_a_server_that_answers_with_errors_is_not_dead(self):
        with ScriptedServer([Reply("", 500)]) as server:
            for _ in range(3):
                with pytest.raises(RefusedError):
                    ask(server.url)
            assert len(server.received) == 9

    def test_it_can_be_forgotten(self, dead_url):
        with pytest.raises(UnreachableError):
            ask(dead_url)
        forget_unreachable_endpoints()
        with pytest.raises(UnreachableError, match="can't be reached"):
            ask(dead_url)

    def test_another_server_is_none_of_its_business(self, dead_url):
        with pytest.raises(UnreachableError):
            ask(dead_url)
        with ScriptedServer([Reply({})]) as server:
            assert ask(server.url) == [{}]


class TestClient:
    def test_an_error_is_caught_as_one_of_a_generator_and_of_an_embedder(self, dead_url):
        for kind in (GeneratorError, EmbedderError):
            with pytest.raises(kind):
                ask(dead_url, retries=0)

    def test_an_error_survives_being_sent_to_another_process(self):
        reply = Reply("", 429, {"retry-after": "3600"})
        with ScriptedServer([reply]) as server, pytest.raises(RateLimitedError) as caught:
            ask(server.url)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.status, again.retry_after) == (str(caught.value), 429, 3600)

    def test_a_closed_client_says_so_and_may_be_closed_again(self):
        client = Client(endpoint("http://127.0.0.1:1"))
        client.close()
        client.close()
        with pytest.raises(ClosedError):
            client.run(asking({}))

    @pytest.mark.parametrize(
        "reply",
        [
            lambda: Reply(wait=threading.Event()),
            lambda: Reply(drip=0.01, missing=1_000_000),
            lambda: Reply("", 429, {"retry-after": "60"}),
        ],
        ids=["silence", "drops", "a wait"],
    )
    def test_closing_it_ends_the_calls_of_other_threads(self, reply):
        asked, ended = threading.Event(), []

        def script(request):
            asked.set()
            return reply()

        def call(client):
            try:
                client.run(asking({}))
            except Exception as error:
                ended.append(error)

        with ScriptedServer(script) as server:
            client = Client(endpoint(server.url, timeout=600))
            thread = threading.Thread(target=call, args=(client,))
            thread.start()
            assert asked.wait(60)
            client.close()
            thread.join(60)
            assert [type(error) for error in ended] == [ClosedError]
            assert circuit.seconds_to_wait(server.url) is None, "the endpoint is not to blame"

    def test_closing_it_ends_the_streams_of_other_threads(self):
        taken, ended = threading.Event(), []

        def read(client):
            try:
                for _ in client.lines(asking({})):
                    taken.set()
            except Exception as error:
                ended.append(error)

        def endless():
            while True:
                yield b"line\n"
                time.sleep(0.01)

        with ScriptedServer(lambda request: Reply(endless())) as server:
            client = Client(endpoint(server.url, timeout=600))
            thread = threading.Thread(target=read, args=(client,))
            thread.start()
            assert taken.wait(60)
            client.close()
            thread.join(60)
            assert [type(error) for error in ended] == [ClosedError]
            assert server.gone.wait(60)

    def test_threads_share_one_client(self):
        with (
            ScriptedServer(lambda request: Reply(request.body)) as server,
            closing(Client(endpoint(server.url))) as client,
        ):
            found = {}

            def work(number):
                found[number] = [client.run(asking({"n": number, "k": k})) for k in range(10)]

            threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert found == {number: [[{"n": number, "k": k}] for k in range(10)] for number in range(8)}

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    def test_a_forked_process_has_connections_of_its_own(self):
        with (
            ScriptedServer(lambda request: Reply(request.body)) as server,
            closing(Client(endpoint(server.url))) as client,
        ):
            assert client.run(asking({"who": "parent"})) == [{"who": "parent"}]
            results = multiprocessing.get_context("fork").SimpleQueue()
            child = multiprocessing.get_context("fork").Process(
                target=lambda: results.put(client.run(asking({"who": "child"})))
            )
            child.start()
            assert results.get() == [{"who": "child"}]
            child.join()
            assert client.run(asking({"who": "parent"})) == [{"who": "parent"}]

    def test_a_call_that_stops_early_frees_the_connection(self):
        lines = [b'{"n": %d}\n' % n for n in range(100_000)]
        with ScriptedServer([Reply(lines)]) as server, closing(Client(endpoint(server.url))) as client:
            taken = client.lines(asking({}))
            assert [next(taken), next(taken)] == ['{"n": 0}', '{"n": 1}']
            taken.close()
            assert server.gone.wait(10)

    @pytest.mark.skipif(os.name == "nt", reason="a process can't be sent Ctrl-C alone there")
    def test_ctrl_c_ends_a_call_at_once_and_frees_the_connection(self):
        code = (
            "import sys\n"
            "from nanomem_core.http import *\n"
            "client = Client(Endpoint('test', parse_url(sys.argv[1]), timeout=600))\n"
            "def call():\n"
            "    yield {}\n"
            "try:\n"
            "    client.run(call())\n"
            "except KeyboardInterrupt:\n"
            "    pool = client._transport()._pool\n"
            "    print(len(pool.connections))\n"
        )
        asked = threading.Event()

        def hang(request):
            asked.set()
            return Reply({}, wait=threading.Event())

        with ScriptedServer(hang) as server:
            process = subprocess.Popen([sys.executable, "-c", code, server.url], stdout=subprocess.PIPE, text=True)
            assert asked.wait(60)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[0].strip() == "0"

    def test_a_proxy_is_used_if_it_is_named(self):
        with ScriptedServer(lambda request: Reply({"path": request.path})) as proxy:
            # What a proxy is asked for is a whole URL.
            assert ask("http://model.example/v1", proxy=proxy.url) == [{"path": "http://model.example/v1"}]

    def test_a_proxy_of_the_environment_is_used_but_never_for_this_machine(self, monkeypatch):
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        with ScriptedServer(lambda request: Reply({"path": request.path})) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url)
            assert ask("http://model.example/v1") == [{"path": "http://model.example/v1"}]
            with ScriptedServer([Reply({"direct": True})]) as server:
                assert ask(server.url) == [{"direct": True}]
            monkeypatch.setenv("no_proxy", "model.example")
            with pytest.raises((UnreachableError, EndpointTimeoutError)):
                ask("http://model.example/v1", retries=0, connect_timeout=1, timeout=2)


class TestSecrets:
    def test_no_key_is_in_errors_reprs_or_logs(self, caplog, dead_url):
        caplog.set_level(logging.DEBUG)
        secrets = {
            "bearer": KEY,
            "header": "custom-header-secret",
            "password": "url-password-1",
            "query": "query-secret-1",
        }
        told = []

        def echo(request):
            return Reply({"error": {"message": f"bad {dict(request.headers)} {request.query} {request.path}"}}, 401)

        with ScriptedServer(echo) as server:
            for base in (server.url, dead_url):
                host = base.removeprefix("http://")
                url = f"http://someone:{secrets['password']}@{host}/v1?api-version=1&code={secrets['query']}"
                made = endpoint(url, headers={"x-custom": secrets["header"], "authorization": f"Bearer {KEY}"})
                with closing(Client(made)) as client, pytest.raises((RefusedError, UnreachableError)) as caught:
                    client.run(asking({}))
                error = caught.value
                while error is not None:
                    told += [str(error), repr(error), repr(vars(error))]
                    error = error.__cause__ or error.__context__
                told += [repr(made), repr(client), str(made)]
            assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
            assert "code=query-secret-1" in server.received[0].query
        everything = "\n".join([*told, caplog.text])
        assert "httpcore" in caplog.text  # so that its DEBUG lines were looked at too
        for secret in secrets.values():
            assert secret not in everything

    def test_a_password_in_the_url_is_not_shown_though_the_server_says_it(self):
        def echo(request):
            return Reply({"error": request.headers["authorization"]}, 401)

        with ScriptedServer(echo) as server:
            url = server.url.replace("://", "://ann:pass%20word-1@")
            with pytest.raises(AuthenticationError) as caught:
                ask(url, headers={})
        sent = server.received[0].headers["authorization"]
        assert base64.b64decode(sent.removeprefix("Basic ")) == b"ann:pass word-1"
        assert sent.removeprefix("Basic ") not in str(caught.value)

    @pytest.mark.parametrize("key", ["two\nlines", "schlüssel", "a\0b"])
    def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(self, key):
        from nanomem_core.http import reveal

        with pytest.raises(ConfigError) as caught:
            reveal(key)
        assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"timeout": 0}, "timeout"),
        ({"connect_timeout": -1}, "connect_timeout"),
        ({"read_timeout": float("nan")}, "read_timeout"),
        ({"retries": -1}, "retries"),
        ({"headers": {"a": "b\nc"}}, "headers"),
        ({"headers": {"": "b"}}, "headers"),
        ({"proxy": "nowhere"}, "proxy"),
    ],
)
def test_a_wrong_setting_is_named(options, key):
    with pytest.raises(ConfigError) as caught:
        endpoint("http://h", **options)
    assert caught.value.key == key


def test_nothing_of_httpx_is_imported_before_the_first_request():
    code = (
        "import sys; from nanomem_core.http import *; import nanomem_core.aio;"
        "from nanomem_plugins.openai.generator import OpenAIGenerator;"
        "OpenAIGenerator('x', base_url='http://127.0.0.1:1');"
        "print([m for m in ('httpx', 'httpcore', 'pydantic') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
