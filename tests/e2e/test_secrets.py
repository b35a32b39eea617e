"""No key, token or password is to be found anywhere but in the requests to the server that it is for."""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.config.model import masked
from nanomem_core.config.sources import settings_of
from nanomem_core.errors import AuthenticationError, NanomemError
from nanomem_core.http import exchange, forget_unreachable_endpoints
from nanomem_core.registry.manager import PluginManager
from nanomem_core.system import MemorySystem
from tests.e2e.faulty_provider import said
from tests.scripted_server import Received, Reply, ScriptedServer

KEY = "sk-3f9a1c77d2e84b60"
TOKEN = "tok-88ab41c09d57ee12"
SIGNATURE = "sig-0d11f2a93bc47755"
PASSWORD = "pw-5e6f7a8b9c0d1e2f"
BASIC = base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
SECRETS = (KEY, TOKEN, SIGNATURE, PASSWORD, BASIC)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.002)
    forget_unreachable_endpoints()
    yield
    forget_unreachable_endpoints()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that any library logs, but for the headers of answers, which httpcore shows at DEBUG as they came."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(lambda record: "receive_response_headers" not in str(record.msg))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.setLevel(level)
    root.removeHandler(handler)


def gossip(request: Received) -> str:
    """Everything that the client sent, as a server might quote it in an error."""
    return f"bad request: {json.dumps(dict(request.headers))} {request.path}?{request.query}"


def broken_off(request: Received) -> bytes:
    """An error in the middle of a stream, in the form of the provider that was asked."""
    event = json.dumps({"type": "error", "error": {"message": gossip(request)}})
    return f"{event}\n".encode() if request.path.startswith("/api/") else f"data: {event}\n\n".encode()


FAULTS = {
    "401": lambda request: Reply({"error": {"message": gossip(request), "code": "invalid_api_key"}}, 401),
    "400": lambda request: Reply({"error": {"message": gossip(request)}}, 400),
    "500": lambda request: Reply(gossip(request), 500),
    "429": lambda request: Reply({"error": gossip(request)}, 429, {"retry-after-ms": "1"}),
    "redirect": lambda request: Reply(b"", 307, {"location": f"http://127.0.0.1:9/?sig={SIGNATURE}&k={KEY}"}),
    "no JSON": lambda request: Reply(gossip(request)),
    "another shape": lambda request: Reply({"error": gossip(request), "usage": gossip(request)}),
    "stream": lambda request: Reply([broken_off(request)]),
    "breaks off": lambda request: Reply(gossip(request), missing=100),
    "hangs": lambda request: Reply(wait=threading.Event()),
}


def component(url: str, use: str = "openai", **options: Any) -> dict[str, Any]:
    scheme, _, host = url.partition("://")
    return {
        "use": use,
        "base_url": f"{scheme}://ann:{PASSWORD}@{host}?sig={SIGNATURE}",
        "headers": {"X-Gateway": f"Token {TOKEN}", "Api-Key": KEY},
        "timeout": 0.5,
        "retries": 1,
    } | options


def assert_no_secret(found: str | bytes, where: str) -> None:
    content = found if isinstance(found, bytes) else found.encode()
    for secret in SECRETS:
        at = content.find(secret.encode())
        assert at < 0, f"{where} holds {secret}: {content[max(0, at - 60) : at + 60]!r}"


def assert_no_secret_in_files(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert_no_secret(path.read_bytes() + os.fsencode(path), str(path))


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize(
    ("store", "use", "embedder"),
    [("arena", "openai", "openai"), ("jsonl", "ollama", "ollama"), ("markdown", "anthropic", "openai")],
    ids=["openai", "ollama", "anthropic"],
)
def test_nothing_that_can_be_seen_of_a_failure_holds_a_secret(
    tmp_path: Path, store: str, use: str, embedder: str, name: str, log: io.StringIO
) -> None:
    path = {"path": "memory.dat"} if store == "arena" else {"root": "memory"}
    with ScriptedServer(FAULTS[name]) as server:
        settings = settings_of(
            None,
            {
                "data_dir": str(tmp_path),
                "storage": {"use": store, **path},
                "generator": component(server.url, use, model="m"),
                "embedder": component(server.url, embedder, model="e", api_key=None, dim=12),
                "taggers": [],
            },
        )
        dumps = [repr(settings), str(dict(settings)), str(settings.model_dump()), settings.model_dump_json()]
        assert_no_secret("".join([*dumps, json.dumps(masked(settings))]), "the settings")
        seen = []
        with MemorySystem.open(settings) as system:
            memory = system.memory
            assert_no_secret(repr(system.generator) + repr(memory.embedder) + repr(system) + repr(memory), "a repr")
            system.add_messages(said())
            for attempt in (
                system.flush,
                lambda: system.wait(60),
                lambda: memory.add("Ann lives in Oslo"),
                lambda: memory.chat("Hello", store=False),
                lambda: list(memory.ask_stream("Where?", conversation=[])),
            ):
                forget_unreachable_endpoints()
                try:
                    attempt()
                except NanomemError as error:
                    seen.append("".join(traceback.format_exception(error)) + repr(error) + repr(vars(error)))
            forget_unreachable_endpoints()
            told = [system.status(), system.stats(), system.health(ask=True), memory.records(kind=None)]
            told += [episode.to_dict() for episode in system.episodes()]
        for text in seen:
            assert_no_secret(text, "an error")
        assert_no_secret(json.dumps(told, default=str), "a report")
        assert_no_secret(log.getvalue(), "the log")
        assert_no_secret_in_files(tmp_path)
        # That the secrets were sent, and something was seen of the failures, shows that there was something to find.
        assert seen
        sent = json.dumps([dict(each.headers) for each in server.received]) + server.received[0].query
        assert all(secret in sent for secret in (KEY, TOKEN, SIGNATURE, BASIC))


def test_no_command_prints_a_secret(tmp_path: Path) -> None:
    config, data = tmp_path / "nanomem.yaml", tmp_path / "data"
    data.mkdir()
    with ScriptedServer(FAULTS["401"]) as server:
        given = component(server.url, model="m")
        config.write_text(json.dumps({"generator": {key: given[key] for key in ("use", "model", "headers")}}), "utf-8")
        keep = {key: value for key, value in os.environ.items() if not key.startswith("NANOMEM_")}
        environment = keep | {
            "NANOMEM_CONFIG": str(config),
            "NANOMEM_DATA_DIR": str(data),
            "NANOMEM_GENERATOR__BASE_URL": given["base_url"],
            "NANOMEM_GENERATOR__API_KEY": KEY,
        }
        malformed = {"NANOMEM_GENERATOR__HEADERS": json.dumps(given["headers"])}
        for arguments, code, more in (
            (["config", "show", "--origin"], 0, {}),
            (["config", "show", "--json"], 0, {}),
            (["config", "show", "--origin"], 0, malformed),
            (["plugins", "list"], 0, {}),
            (["--debug", "add", "Ann lives in Oslo"], 0, {}),
            (["--debug", "ask", "Where does Ann live?"], 1, {}),
            (["--debug", "ask", "Where does Ann live?"], 1, malformed),
            (["ask", "Where does Ann live?", "--stream"], 1, {}),
            (["--debug", "conversation", "add", "Hello"], 0, {}),
            (["--debug", "conversation", "flush"], 1, {}),
            (["conversation", "status", "--json"], 0, {}),
            (["stats", "--json"], 0, {}),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "nanomem_core", *arguments],
                cwd=data,
                env=environment | more,
                capture_output=True,
                stdin=subprocess.DEVNULL,
            )
            assert_no_secret(done.stdout + done.stderr, " ".join(arguments))
            assert done.returncode == code, done.stderr.decode()
    assert any(TOKEN in json.dumps(dict(each.headers)) for each in server.received)
    assert_no_secret_in_files(data)


@pytest.mark.parametrize(
    ("use", "variable", "address"),
    [
        ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("ollama", "OLLAMA_API_KEY", "OLLAMA_HOST"),
        ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    ],
)
def test_the_key_of_a_provider_goes_to_no_other_server_and_an_error_does_not_advise_it(
    use: str, variable: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = PluginManager.discover()
    with ScriptedServer([Reply({"error": {"message": "who are you?"}}, 401)]) as server:
        monkeypatch.setenv(variable, KEY)
        spec = {"use": use, "model": "m"}
        with (
            plugins.build("generator", {**spec, "base_url": server.url}) as elsewhere,
            pytest.raises(AuthenticationError, match=rf"give one as api_key \({variable} is not sent to this server"),
        ):
            elsewhere.complete([{"role": "user", "content": "Hello"}])
        assert KEY not in json.dumps(dict(server.received[-1].headers))
        monkeypatch.setenv(address, server.url)
        with (
            plugins.build("generator", spec) as own,
            pytest.raises(AuthenticationError, match=f"give one as api_key, or set {variable}$"),
        ):
            own.complete([{"role": "user", "content": "Hello"}])
        assert KEY in json.dumps(dict(server.received[-1].headers))
