import json

import pytest

from nanomem_core.errors import (
    BadResponseError,
    ConfigError,
    ContextLengthError,
    GeneratorError,
    RefusedError,
    ReplyError,
)
from nanomem_core.http import exchange, forget_unreachable_endpoints
from nanomem_plugins.openai.generator import OpenAIGenerator
from tests import providers
from tests.scripted_server import Reply, ScriptedServer

MESSAGES = [{"role": "user", "content": "What do you know?"}]
SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
    "required": ["facts"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.002)
    forget_unreachable_endpoints()


@pytest.fixture
def server():
    with ScriptedServer(providers.openai) as server:
        yield server


def generator(server, **options):
    return OpenAIGenerator("gpt-x", base_url=server.url, api_key=providers.KEY, **options)


def saying(content, **more):
    message = {"role": "assistant", "content": content} | more
    return Reply({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def refusing(word, status=400, param=None):
    """A server that refuses requests with `word` in a field's name or value."""

    def script(request):
        if word in json.dumps({key: value for key, value in request.body.items() if key != "messages"}):
            return Reply({"error": {"message": f"{word} is not supported", "param": param}}, status)
        return providers.openai(request)

    return script


def test_a_completion_has_the_text_the_model_and_the_counts(server):
    with generator(server) as given:
        completion = given.complete(MESSAGES, temperature=0.3, max_tokens=9)
    assert completion.text == providers.TEXT
    assert (completion.model, completion.input_tokens, completion.output_tokens) == ("gpt-x-2026", 11, 7)
    assert server.received[0].body == {
        "model": "gpt-x",
        "messages": MESSAGES,
        "temperature": 0.3,
        "max_tokens": 9,
    }


class TestJson:
    def test_it_is_asked_for_by_schema(self, server):
        with generator(server) as given:
            assert given.generate_json(MESSAGES, schema=SCHEMA) == {"facts": [providers.TEXT]}
        form = server.received[0].body["response_format"]
        assert form == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}

    def test_a_schema_that_openai_would_not_take_as_strict_is_not_called_so(self, server):
        loose = {"type": "object", "properties": {"facts": {"type": "array"}}}
        with generator(server) as given:
            given.generate_json(MESSAGES, schema=loose)
        assert server.received[0].body["response_format"]["json_schema"]["strict"] is False

    @pytest.mark.parametrize("status", [400, 422])
    def test_a_server_without_schemas_is_asked_for_an_object_and_that_is_remembered(self, status):
        with ScriptedServer(refusing("json_schema", status)) as server, generator(server) as given:
            for _ in range(2):
                assert given.generate_json(MESSAGES, schema=SCHEMA) == {"facts": [providers.TEXT]}
            kinds = [request.body["response_format"]["type"] for request in server.received]
            assert kinds == ["json_schema", "json_object", "json_object"]
            assert json.dumps(SCHEMA) in server.received[1].body["messages"][0]["content"]

    def test_a_server_without_any_json_mode_is_told_in_words(self):
        def script(request):
            if "response_format" in request.body:
                return Reply({"error": {"message": "extra fields", "param": "response_format"}}, 400)
            return saying('Here you are:\n```json\n{"facts": ["a"]}\n```')

        with ScriptedServer(script) as server, generator(server) as given:
            assert given.generate_json(MESSAGES, schema=SCHEMA) == {"facts": ["a"]}
            assert given.generate_json(MESSAGES, schema=SCHEMA) == {"facts": ["a"]}
            assert len(server.received) == 4

    def test_answers_that_are_never_json_end_after_the_second(self):
        with ScriptedServer([saying("I would rather talk.")]) as server, generator(server) as given:
            with pytest.raises(ReplyError):
                given.generate_json(MESSAGES, schema=SCHEMA)
            assert len(server.received) == 2


class TestWhatAServerDoesNotKnow:
    def test_max_tokens_has_another_name_for_newer_models(self):
        def script(request):
            if "max_tokens" in request.body:
                message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
                return Reply({"error": {"message": message, "param": "max_tokens"}}, 400)
            return providers.openai(request)

        with ScriptedServer(script) as server, generator(server) as given:
            for _ in range(2):
                given.complete(MESSAGES, max_tokens=5)
            assert [request.body.get("max_completion_tokens") for request in server.received] == [None, 5, 5]

    def test_a_temperature_that_a_model_does_not_take_is_left_out(self):
        with ScriptedServer(refusing("temperature", param="temperature")) as server, generator(server) as given:
            given.complete(MESSAGES)
            given.complete(MESSAGES)
            assert ["temperature" in request.body for request in server.received] == [True, False, False]

    def test_everything_at_once_is_still_bounded(self):
        def script(request):
            for name in ("temperature", "max_tokens", "response_format"):
                if name in request.body:
                    message = f"{name}: use max_completion_tokens" if name == "max_tokens" else name
                    return Reply({"error": {"message": message, "param": name}}, 400)
            return saying('{"facts": []}')

        with ScriptedServer(script) as server, generator(server) as given:
            assert given.complete(MESSAGES, max_tokens=5, schema=SCHEMA).text == '{"facts": []}'
            assert len(server.received) == 5

    def test_any_other_refusal_is_an_error_at_once(self):
        with ScriptedServer([Reply({"error": {"message": "no"}}, 400)]) as server, generator(server) as given:
            with pytest.raises(RefusedError):
                given.complete(MESSAGES, max_tokens=5, schema=SCHEMA)
            assert len(server.received) == 1

    def test_a_text_that_is_too_long_is_not_taken_for_one(self):
        message = "maximum context length is 100; 'max_tokens' or 'max_completion_tokens' is too large"
        with ScriptedServer([Reply({"error": {"message": message}}, 400)]) as server, generator(server) as given:
            with pytest.raises(ContextLengthError):
                given.complete(MESSAGES, max_tokens=5)
            assert len(server.received) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply({}),
        Reply([]),
        Reply({"choices": []}),
        Reply({"choices": [{"message": None}]}),
        Reply({"choices": "abc"}),
        saying(None),
        saying(5),
        saying([{"type": "text"}]),
    ],
)
def test_an_answer_of_another_shape_is_an_error(reply):
    with ScriptedServer([reply]) as server, generator(server) as given, pytest.raises(BadResponseError):
        given.complete(MESSAGES)


def test_a_model_that_declines_is_an_error_and_not_an_empty_answer():
    reply = saying(None, refusal="I can't.")
    with (
        ScriptedServer([reply]) as server,
        generator(server) as given,
        pytest.raises(GeneratorError, match="declines"),
    ):
        given.complete(MESSAGES)


def test_counts_that_are_none_are_unknown():
    reply = Reply({"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": "9"}, "model": 5})
    with ScriptedServer([reply]) as server, generator(server) as given:
        completion = given.complete(MESSAGES)
    assert (completion.model, completion.input_tokens, completion.output_tokens) == (None, None, None)


class TestStreams:
    def test_pieces_come_one_by_one_and_make_the_completion(self, server):
        with generator(server) as given, given.stream(MESSAGES, max_tokens=9) as stream:
            pieces = list(stream)
            assert len(pieces) > 3
            assert "".join(pieces) == providers.TEXT
            assert stream.completion == given.complete(MESSAGES)
        assert server.received[0].body["stream"] is True

    def test_nothing_is_asked_before_the_first_piece_is_taken(self, server):
        with generator(server) as given, given.stream(MESSAGES) as stream, pytest.raises(GeneratorError):
            _ = stream.completion
        assert server.received == []

    def test_a_server_without_usage_in_streams_is_asked_without(self):
        with ScriptedServer(refusing("stream_options")) as server, generator(server) as given:
            stream = given.stream(MESSAGES)
            assert "".join(stream) == providers.TEXT
            assert stream.completion.input_tokens is None
            assert len(server.received) == 2

    def test_an_error_before_the_first_piece_is_tried_again(self):
        replies = [Reply({}, 503), Reply({}, 503)]
        script = lambda request: replies.pop() if replies else providers.openai(request)  # noqa: E731
        with ScriptedServer(script) as server, generator(server) as given:
            assert "".join(given.stream(MESSAGES)) == providers.TEXT

    @pytest.mark.parametrize(
        "body",
        [
            providers.sse({"choices": [{"delta": {"content": "half"}}]}),
            providers.sse({"choices": [{"delta": {"content": "half"}}]}, {"error": {"message": "overloaded"}}),
            providers.sse({"choices": [{"delta": {"content": "half"}}]}, "{not json"),
        ],
    )
    def test_one_that_ends_before_the_answer_is_an_error_after_its_pieces(self, body):
        with ScriptedServer([Reply(body)]) as server, generator(server) as given:
            stream = given.stream(MESSAGES)
            assert next(stream) == "half"
            with pytest.raises(BadResponseError):
                next(stream)
            with pytest.raises(GeneratorError):
                _ = stream.completion

    def test_one_whose_connection_breaks_is_an_error(self):
        body = providers.sse({"choices": [{"delta": {"content": "half"}, "finish_reason": "stop"}]})
        with (
            ScriptedServer([Reply(body, missing=1)]) as server,
            generator(server) as given,
            pytest.raises(BadResponseError, match="breaks off"),
        ):
            list(given.stream(MESSAGES))

    def test_nonsense_in_it_is_passed_over(self):
        body = providers.sse(
            {"choices": [None]}, [], 5, {"choices": {"delta": 1}}, {"choices": [{"delta": {"content": "a"}}]}, "[DONE]"
        )
        with ScriptedServer([Reply(body)]) as server, generator(server) as given:
            assert list(given.stream(MESSAGES)) == ["a"]

    def test_one_that_is_left_frees_the_connection(self):
        chunk = {"choices": [{"delta": {"content": "word " * 100}}]}
        body = providers.sse(chunk)
        with ScriptedServer([Reply(body * 20_000)]) as server, generator(server) as given:
            with given.stream(MESSAGES) as stream:
                next(stream)
            assert server.gone.wait(10)


def test_the_endpoint_of_embeddings_is_refused():
    with pytest.raises(ConfigError, match="/chat/completions, or a base URL"):
        OpenAIGenerator("x", base_url="http://h/v1/embeddings")


def test_a_model_needs_a_name():
    with pytest.raises(ConfigError, match="model"):
        OpenAIGenerator(" ")
