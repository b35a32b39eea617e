import pytest

from nanomem_core.errors import (
    AuthenticationError,
    BadResponseError,
    ConfigError,
    ContextLengthError,
    GeneratorError,
    RefusedError,
)
from nanomem_core.http import exchange, forget_unreachable_endpoints
from nanomem_plugins.anthropic.generator import AnthropicGenerator
from tests import providers
from tests.scripted_server import Reply, ScriptedServer

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What do you know?"},
    {"role": "system", "content": "Be kind."},
]
SCHEMA = {"type": "object", "properties": {"facts": {"type": "array"}}, "required": ["facts"]}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.002)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    forget_unreachable_endpoints()


@pytest.fixture
def server():
    with ScriptedServer(providers.anthropic) as server:
        yield server


def generator(server, **options):
    return AnthropicGenerator("claude-x", base_url=server.url, api_key=providers.KEY, **options)


def test_what_the_system_says_stands_at_the_top(server):
    with generator(server) as given:
        completion = given.complete(MESSAGES, temperature=1.5)
    assert completion.text == providers.TEXT
    assert (completion.model, completion.input_tokens, completion.output_tokens) == ("claude-x", 11, 7)
    assert server.received[0].headers["x-api-key"] == providers.KEY
    assert server.received[0].headers["anthropic-version"] == "2023-06-01"
    assert server.received[0].body == {
        "model": "claude-x",
        "max_tokens": 4096,
        "system": "Be brief.\n\nBe kind.",
        "messages": [{"role": "user", "content": "What do you know?"}],
        "temperature": 1.0,
    }


def test_a_conversation_of_system_turns_alone_is_asked_as_the_user(server):
    with generator(server, max_tokens=50) as given:
        given.complete(MESSAGES[:1])
    body = server.received[0].body
    assert (body["messages"], body["max_tokens"]) == ([{"role": "user", "content": "Be brief."}], 50)
    assert "system" not in body


def test_json_is_asked_for_in_words_and_read_by_the_parser(server):
    with generator(server) as given:
        assert given.generate_json(MESSAGES, schema=SCHEMA) == {"facts": [providers.TEXT]}
        assert given.generate_json(MESSAGES[1:2], schema=SCHEMA) == {"facts": [providers.TEXT]}


def test_pieces_of_a_stream_make_the_completion(server):
    with generator(server) as given:
        stream = given.stream(MESSAGES)
        pieces = list(stream)
        assert len(pieces) > 3
        assert "".join(pieces) == providers.TEXT
        assert stream.completion == given.complete(MESSAGES)


@pytest.mark.parametrize(
    "more",
    [
        [],
        [{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}],
        [{"type": "message_delta", "delta": {"stop_reason": "refusal"}}],
    ],
)
def test_a_stream_that_ends_before_the_answer_is_an_error(more):
    half = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "half"}}
    body = providers.sse(half, {"type": "content_block_delta", "delta": None}, *more, names=True)
    with ScriptedServer([Reply(body)]) as server, generator(server) as given:
        stream = given.stream(MESSAGES)
        assert next(stream) == "half"
        with pytest.raises(GeneratorError):
            list(stream)


@pytest.mark.parametrize("body", [{}, [], {"content": [{"type": "text"}]}, {"content": None}])
def test_a_bad_answer_is_an_error(body):
    with ScriptedServer([Reply(body)]) as server, generator(server) as given, pytest.raises(BadResponseError):
        given.complete(MESSAGES)


def test_a_model_that_declines_is_an_error():
    reply = Reply({"content": [], "stop_reason": "refusal"})
    with ScriptedServer([reply]) as server, generator(server) as given, pytest.raises(GeneratorError, match="declines"):
        given.complete(MESSAGES)


def test_a_temperature_that_a_model_does_not_take_is_left_out():
    def script(request):
        if "temperature" in request.body:
            message = "`temperature` is deprecated for this model."
            return Reply({"type": "error", "error": {"type": "invalid_request_error", "message": message}}, 400)
        return providers.anthropic(request)

    with ScriptedServer(script) as server, generator(server) as given:
        given.complete(MESSAGES)
        given.complete(MESSAGES)
        assert len(server.received) == 3


def test_an_overloaded_server_is_asked_again_and_a_wrong_key_is_not():
    replies = [Reply({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529)]
    script = lambda request: replies.pop() if replies else providers.anthropic(request)  # noqa: E731
    with ScriptedServer(script) as server, generator(server) as given:
        assert given.complete(MESSAGES).text == providers.TEXT
        assert len(server.received) == 2
        with (
            AnthropicGenerator("claude-x", base_url=server.url, api_key="sk-wrong") as wrong,
            pytest.raises(AuthenticationError, match="ANTHROPIC_API_KEY"),
        ):
            wrong.complete(MESSAGES)
        assert len(server.received) == 3


def test_a_prompt_that_is_too_long_has_an_error_of_its_own():
    error = {"type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"}
    with (
        ScriptedServer([Reply({"type": "error", "error": error}, 400)]) as server,
        generator(server) as given,
        pytest.raises(ContextLengthError) as caught,
    ):
        given.complete(MESSAGES)
    assert isinstance(caught.value, RefusedError)


@pytest.mark.parametrize(
    ("base", "complete"),
    [
        ("https://h", "https://h/v1/messages"),
        ("https://h/v1/", "https://h/v1/messages"),
        ("https://h/claude", "https://h/claude/v1/messages"),
        ("https://h/any/messages", "https://h/any/messages"),
    ],
)
def test_a_base_url_is_completed(base, complete):
    assert AnthropicGenerator("x", base_url=base).endpoint.shown == complete


def test_the_key_of_the_environment_stays_with_its_own_server(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", providers.KEY)
    assert AnthropicGenerator("x").endpoint.headers["x-api-key"] == providers.KEY
    assert "x-api-key" not in AnthropicGenerator("x", base_url="https://other.example").endpoint.headers


def test_an_answer_needs_a_limit():
    with pytest.raises(ConfigError, match="max_tokens"):
        AnthropicGenerator("x", max_tokens=0)
