"""An emulator of Ollama's interface in front of two servers that speak OpenAI's.

It is not Ollama. Requests are held against the published interface (`tests.providers`), and answers have its shapes;
what a real Ollama does beside that (load and unload models, cut texts that are too long) this does not.
https://github.com/ollama/ollama/blob/main/docs/api.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx

from tests.providers import OllamaChat, OllamaEmbed, problem_of
from tests.scripted_server import Received, Reply

__all__ = ["Ollama"]

_AT = "2026-11-30T12:00:00.123Z"


class Ollama:
    """Answers requests, as a script of `tests.scripted_server.ScriptedServer`.

    Args:
        chat_url, embeddings_url: base URLs of the two servers.
        chat_model, embeddings_model: the names of their models, and here.
    """

    def __init__(self, chat_url: str, chat_model: str, embeddings_url: str, embeddings_model: str) -> None:
        self._urls = {chat_model: chat_url, embeddings_model: embeddings_url}
        self._client = httpx.Client(timeout=300)

    def close(self) -> None:
        self._client.close()

    def __call__(self, request: Received) -> Reply:
        if request.path == "/api/tags":
            return Reply({"models": [{"name": name, "model": name, "modified_at": _AT} for name in self._urls]})
        answer = {"/api/chat": (OllamaChat, self._chat), "/api/embed": (OllamaEmbed, self._embed)}.get(request.path)
        if answer is None:
            return Reply("404 page not found", 404)
        shape, serve = answer
        if problem := problem_of(shape, request.body):
            return Reply({"error": problem}, 400)
        body = request.body
        if body["model"] not in self._urls:
            return Reply({"error": f"model '{body['model']}' not found"}, 404)
        return serve(body, self._urls[body["model"]])

    def _embed(self, body: dict[str, Any], url: str) -> Reply:
        answer = self._client.post(f"{url}/embeddings", json={"model": body["model"], "input": body["input"]})
        if not answer.is_success:
            return _refused(answer)
        found = answer.json()
        rows = [each["embedding"] for each in found["data"]]
        count = found["usage"]["prompt_tokens"]
        return Reply({"model": body["model"], "embeddings": rows, "total_duration": 1, "prompt_eval_count": count})

    def _chat(self, body: dict[str, Any], url: str) -> Reply:
        options = body.get("options") or {}
        asked: dict[str, Any] = {"model": body["model"], "messages": body["messages"]}
        for theirs, ours in (("num_predict", "max_tokens"), ("temperature", "temperature"), ("seed", "seed")):
            if theirs in options:
                asked[ours] = options[theirs]
        if form := body.get("format"):
            schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}
            asked["response_format"] = {"type": "json_object"} if form == "json" else schema
        if body.get("stream", True):
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
            answer = self._client.send(
                self._client.build_request("POST", f"{url}/chat/completions", json=asked), stream=True
            )
            if not answer.is_success:
                answer.read()
                return _refused(answer)
            return Reply(_lines(body["model"], answer))
        answer = self._client.post(f"{url}/chat/completions", json=asked)
        if not answer.is_success:
            return _refused(answer)
        found = answer.json()
        [choice] = found["choices"]
        return Reply(_turn(body["model"], choice["message"]["content"], choice["finish_reason"], found["usage"]))


def _lines(model: str, answer: httpx.Response) -> Iterator[bytes]:
    """One JSON object a line, the last one with the counts. Leaving it early leaves the other server, too."""
    reason, usage = "stop", {}
    with closing(answer):
        for line in answer.iter_lines():
            data = line.removeprefix("data:").strip()
            if not data or data == "[DONE]":
                continue
            event = json.loads(data)
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                reason = choice["finish_reason"] or reason
                if piece := choice["delta"].get("content"):
                    yield _line(_turn(model, piece))
    yield _line(_turn(model, "", reason, usage))


def _line(turn: dict[str, Any]) -> bytes:
    return json.dumps(turn, ensure_ascii=False).encode() + b"\n"


def _turn(model: str, text: str, reason: str | None = None, usage: dict[str, int] | None = None) -> dict[str, Any]:
    turn = {"model": model, "created_at": _AT, "message": {"role": "assistant", "content": text}, "done": False}
    if usage is None:
        return turn
    counts = {"prompt_eval_count": usage["prompt_tokens"], "eval_count": usage["completion_tokens"]}
    return {**turn, "done": True, "done_reason": reason, "total_duration": 1, **counts}


def _refused(answer: httpx.Response) -> Reply:
    return Reply({"error": answer.json()["error"]["message"]}, answer.status_code)
