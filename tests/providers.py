"""Stand-ins for the servers of the providers, as strict as their published interfaces.

A request with a field of a wrong type, an unknown field, a wrong path or no key is refused in the provider's own way.
What they answer is made up, but in the published shape; the providers' own clients are run against the same stubs.
"""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nanomem_core.testing import HashEmbedder
from tests.scripted_server import Received, Reply

KEY = "sk-test-0123456789abcdef"
TEXT = "Meets Zoë at Café Müller 🫖 on Fridays."
WIDTH = 12


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def vectors(texts: list[str], width: int) -> np.ndarray:
    return HashEmbedder(width).encode(texts)


def problem_of(shape: Any, body: Any) -> str | None:
    """What is wrong with a request, or None."""
    try:
        shape.model_validate_json(json.dumps(body))
    except ValidationError as error:
        return str(error)
    return None


# OpenAI, https://github.com/openai/openai-openapi


class _Message(_Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: str


class _JsonSchema(_Strict):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class _SchemaFormat(_Strict):
    type: Literal["json_schema"]
    json_schema: _JsonSchema


class _PlainFormat(_Strict):
    type: Literal["json_object", "text"]


class _StreamOptions(_Strict):
    include_usage: bool


class OpenAIChat(_Strict):
    model: str = Field(min_length=1)
    messages: list[_Message] = Field(min_length=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    response_format: Annotated[_SchemaFormat | _PlainFormat, Field(discriminator="type")] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


class OpenAIEmbeddings(_Strict):
    model: str = Field(min_length=1)
    input: list[Annotated[str, Field(min_length=1)]] | Annotated[str, Field(min_length=1)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    user: str | None = None


def _openai_error(status: int, message: str, code: str | None = None, param: str | None = None) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Reply({"error": error}, status)


def sse(*data: Any, names: bool = False) -> list[bytes]:
    """Server-sent events, cut at awkward places."""
    text = ""
    for datum in data:
        name = f"event: {datum['type']}\n" if names else ""
        text += f"{name}data: {datum if isinstance(datum, str) else json.dumps(datum, ensure_ascii=False)}\n\n"
    content = text.encode()
    return [content[i : i + 7] for i in range(0, len(content), 7)]


def openai(request: Received, *, key: str | None = f"Bearer {KEY}", header: str = "authorization") -> Reply:
    if key is not None and request.headers.get(header) != key:
        return _openai_error(401, f"Incorrect API key provided: {request.headers.get(header)}", "invalid_api_key")
    if request.path.endswith("/embeddings"):
        return _openai_embeddings(request)
    if not request.path.endswith("/chat/completions"):
        return _openai_error(404, f"Invalid URL (POST {request.path})")
    if problem := problem_of(OpenAIChat, request.body):
        return _openai_error(400, problem)
    body = request.body
    if (body.get("response_format") or {}).get("type") == "json_object" and "json" not in json.dumps(
        body["messages"]
    ).lower():
        return _openai_error(400, "'messages' must contain the word 'json' in some form", param="messages")
    text = TEXT if body.get("response_format") is None else json.dumps({"facts": [TEXT]}, ensure_ascii=False)
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    common = {"id": "chatcmpl-1", "created": 1_790_000_000, "model": f"{body['model']}-2026"}
    if not body.get("stream"):
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return Reply({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
    chunk = {**common, "object": "chat.completion.chunk"}
    pieces = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}
        for delta, finish in [
            ({"role": "assistant", "content": ""}, None),
            *(({"content": text[i : i + 5]}, None) for i in range(0, len(text), 5)),
            ({}, "stop"),
        ]
    ]
    if (body.get("stream_options") or {}).get("include_usage"):
        pieces.append({**chunk, "choices": [], "usage": usage})
    return Reply(sse(*pieces, "[DONE]"), headers={"content-type": "text/event-stream"})


def _openai_embeddings(request: Received) -> Reply:
    if problem := problem_of(OpenAIEmbeddings, request.body):
        return _openai_error(400, problem)
    body = request.body
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    rows = vectors(texts, body.get("dimensions") or WIDTH)
    packed = body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode() if packed else row.tolist(),
        }
        for index, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    return Reply({"object": "list", "data": data[::-1], "model": body["model"], "usage": usage})


def azure(request: Received) -> Reply:
    """Azure's: the key in a header of its own, the version in the query, the deployment in the path."""
    if request.path.startswith("/openai/deployments/") and request.query != "api-version=2024-10-21":
        return Reply({"error": {"code": "404", "message": "Resource not found"}}, 404)
    return openai(request, key=KEY, header="api-key")


# Ollama, https://github.com/ollama/ollama/blob/main/docs/api.md


class _OllamaMessage(_Strict):
    role: Literal["system", "user", "assistant", "tool"]
    content: str


class OllamaChat(_Strict):
    model: str = Field(min_length=1)
    messages: list[_OllamaMessage]
    stream: bool = True
    format: Literal["", "json"] | dict[str, Any] | None = None
    options: dict[str, float | int | str | list[str]] | None = None
    tools: list[Any] | None = None
    keep_alive: float | str | None = None


class OllamaEmbed(_Strict):
    model: str = Field(min_length=1)
    input: list[str] | str
    truncate: bool | None = None
    options: dict[str, float | int] | None = None
    keep_alive: float | str | None = None
    dimensions: int | None = None


def ollama(request: Received) -> Reply:
    shape = {"/api/chat": OllamaChat, "/api/embed": OllamaEmbed}.get(request.path)
    if shape is None:
        return Reply("404 page not found", 404)
    if problem := problem_of(shape, request.body):
        return Reply({"error": problem}, 400)
    body = request.body
    if body["model"] == "missing":
        return Reply({"error": "model 'missing' not found"}, 404)
    if shape is OllamaEmbed:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        rows = vectors(texts, body.get("dimensions") or WIDTH).tolist()
        counts = {"total_duration": 14143917, "load_duration": 1019500, "prompt_eval_count": len(texts)}
        return Reply({"model": body["model"], "embeddings": rows, **counts})
    text = json.dumps({"facts": [TEXT]}, ensure_ascii=False) if body.get("format") else TEXT
    common = {"model": body["model"], "created_at": "2026-11-30T12:00:00.123Z"}
    counts = {
        "done": True,
        "done_reason": "stop",
        "total_duration": 4883583458,
        "prompt_eval_count": 11,
        "eval_count": 7,
    }
    if not body.get("stream", True):
        return Reply({**common, "message": {"role": "assistant", "content": text}, **counts})
    lines = [
        {**common, "message": {"role": "assistant", "content": text[i : i + 5]}, "done": False}
        for i in range(0, len(text), 5)
    ]
    lines.append({**common, "message": {"role": "assistant", "content": ""}, **counts})
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    return Reply([content[i : i + 9] for i in range(0, len(content), 9)])


# Anthropic, https://docs.claude.com/en/api/messages


class _Turn(_Strict):
    role: Literal["user", "assistant"]
    content: str


class AnthropicMessages(_Strict):
    model: str = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    messages: list[_Turn] = Field(min_length=1)
    system: str | None = Field(default=None, min_length=1)
    temperature: float | None = Field(default=None, ge=0, le=1)
    stream: bool | None = None


def anthropic(request: Received) -> Reply:
    def refuse(status: int, kind: str, message: str) -> Reply:
        return Reply({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}, status)

    # Their newer clients send the key as a bearer, and name a newer version.
    if KEY not in (request.headers.get("x-api-key"), request.headers.get("authorization", "").removeprefix("Bearer ")):
        return refuse(401, "authentication_error", "invalid x-api-key")
    if request.headers.get("anthropic-version") not in ("2023-06-01", "2026-10-21"):
        return refuse(400, "invalid_request_error", "anthropic-version: header is required")
    if request.path != "/v1/messages":
        return refuse(404, "not_found_error", "Not found")
    if problem := problem_of(AnthropicMessages, request.body):
        return refuse(400, "invalid_request_error", problem)
    body = request.body
    asked_for_json = "JSON Schema" in (body.get("system") or "")
    text = "```json\n" + json.dumps({"facts": [TEXT]}, ensure_ascii=False) + "\n```" if asked_for_json else TEXT
    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 4,
        "output_tokens": 7,
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
    if not body.get("stream"):
        content = [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]
        return Reply({**message, "content": content, "stop_reason": "end_turn", "usage": usage})
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text[i : i + 5]}}
            for i in range(0, len(text), 5)
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]
    return Reply(sse(*events, names=True), headers={"content-type": "text/event-stream"})
