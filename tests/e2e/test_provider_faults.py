"""Whatever a provider does, from the socket to the store: calls are bounded, and nothing is lost or stored twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from nanomem_core.errors import EndpointTimeoutError, GeneratorError, RateLimitedError, RefusedError, ReplyError
from nanomem_core.http import exchange, forget_unreachable_endpoints
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.system import MemorySystem
from nanomem_core.testing import HashEmbedder
from nanomem_plugins.lexical.embedder import LexicalEmbedder
from tests import providers
from tests.e2e.faulty_provider import (
    Fault,
    Provider,
    assert_all_is_done,
    assert_nothing_is_lost,
    opened,
    said,
    setting_for,
)
from tests.memories import storage_in, texts
from tests.scripted_server import Received, Reply, ScriptedServer

on_disk = pytest.mark.parametrize(
    ("store", "use"),
    [("arena", "openai"), ("jsonl", "openai"), ("markdown", "openai"), ("arena", "ollama"), ("arena", "anthropic")],
    ids=lambda name: name,
)
"""Every store, and every provider."""

HANGING = 0.3
"""Seconds that a client waits for a server that never answers."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.002)
    forget_unreachable_endpoints()
    yield
    forget_unreachable_endpoints()


def always(reply: Callable[[], Reply]) -> Fault:
    return lambda provider, kind, request: reply()


def saying(text: str) -> Fault:
    return lambda provider, kind, request: provider.saying(text)


def refusing(status: int, headers: dict[str, str] | None = None) -> Fault:
    return always(lambda: Reply({"error": {"message": "no", "type": "t"}}, status, headers or {}))


# By name: the fault, and the requests that it takes at least and at most until the work is given up. There are two
# calls to cut and to tell the messages, then three attempts to tell the episode and to draw its facts, two calls each:
# eight.
FAULTS: dict[str, tuple[Fault, int, int]] = {
    "text in place of JSON": (saying("I would rather not."), 16, 16),  # each is asked once more
    "JSON of another shape": (saying('{"episodes": 1, "title": [], "facts": 1}'), 16, 16),
    "an empty answer": (saying(""), 16, 16),
    "no completion": (always(lambda: Reply({"choices": []})), 8, 8),
    "400": (refusing(400), 8, 8),
    "500 for ever": (refusing(500), 16, 16),  # each is repeated once
    "an answer that breaks off": (always(lambda: Reply(b"{", missing=100)), 16, 16),
    # What says nothing about the episode ends the round, and no attempt counts. There is a round after the flush, and
    # another one when somebody waits after that one ended.
    "429 for ever": (refusing(429, {"retry-after-ms": "1"}), 6, 8),
    "429, come back in an hour": (refusing(429, {"retry-after": "3600"}), 3, 4),
    "401": (refusing(401), 3, 4),
    # After the third time-out in a row it is left alone.
    "hangs": (always(lambda: Reply(wait=threading.Event())), 3, 3),
    "drips": (always(lambda: Reply(drip=0.01, missing=1_000_000)), 3, 3),
}
HANGING_FAULTS = ("hangs", "drips")


@pytest.mark.parametrize("name", FAULTS)
@on_disk
def test_calls_are_bounded_and_all_is_done_once_the_provider_is_mended(
    tmp_path: Path, store: str, use: str, name: str
) -> None:
    fault, least, most = FAULTS[name]
    provider = Provider(use, fault)
    with ScriptedServer(provider) as server:
        system = opened(tmp_path, store, server.url, use, timeout=HANGING if name in HANGING_FAULTS else 30)
        with system.memory, system:
            assert len(system.add_messages(said())["added"]) == len(said())
            [episode] = system.flush()
            finished = system.wait(60)
            assert least <= len(server.received) <= most
            assert_nothing_is_lost(system)
            assert "fallback" in episode.metadata
            assert episode.content == "\n".join(f"{each['role']}: {each['content']}" for each in said())
            assert texts(system.memory.records()) == []
            status = system.status()
            assert not status["running"], "the lane is free"
            if finished:
                assert status["dead"], "given up, and said so"
                assert system.wait(60)
                assert len(server.received) <= most, "what was given up is not tried again unasked"
            else:
                assert status["pending"]
                assert status["error"]
        provider.fault = None
        forget_unreachable_endpoints()
        system = opened(tmp_path, store, server.url, use)
        with system.memory, system:
            assert_nothing_is_lost(system)
            system.retry()
            assert system.wait(60)
            assert_all_is_done(system)
            done = len(server.received)
            system.flush()
            assert system.wait(60)
            assert len(server.received) == done, "nothing is left to do"


@on_disk
def test_a_provider_that_asks_for_patience_gets_it(tmp_path: Path, store: str, use: str) -> None:
    def busy(provider: Provider, kind: str, request: Received) -> Reply | None:
        if provider.asked.count(kind) > 1:
            return None
        return Reply({"error": {"message": "slow down"}}, 429, {"retry-after": "0"})

    provider = Provider(use, busy)
    with ScriptedServer(provider) as server:
        system = opened(tmp_path, store, server.url, use)
        with system.memory, system:
            system.add_messages(said())
            system.flush()
            assert system.wait(60)
            assert_all_is_done(system)
    assert provider.asked == ["episodes", "episodes", "title", "title", "facts", "facts"]


@on_disk
def test_an_answer_that_comes_too_late_is_nobody_s(tmp_path: Path, store: str, use: str) -> None:
    late = threading.Event()

    def slow(provider: Provider, kind: str, request: Received) -> Reply | None:
        if kind != "facts" or provider.asked.count(kind) > 1:
            return None
        text = json.dumps({"facts": [{"text": "Ann is late"}]})
        return Reply(provider.saying(text).body, wait=late)

    provider = Provider(use, slow)
    with ScriptedServer(provider) as server:
        system = opened(tmp_path, store, server.url, use, timeout=2)
        with system.memory, system:
            system.add_messages(said())
            system.flush()
            assert system.wait(60)
            assert_all_is_done(system)
            late.set()
            assert system.wait(60)
            assert_all_is_done(system)
    assert provider.asked.count("facts") == 2


@on_disk
def test_an_answer_that_comes_after_closing_is_nobody_s(tmp_path: Path, store: str, use: str) -> None:
    asked, late = threading.Event(), threading.Event()

    def slow(provider: Provider, kind: str, request: Received) -> Reply | None:
        if kind != "facts":
            return None
        asked.set()
        return Reply(provider.saying(json.dumps({"facts": [{"text": "Ann is late"}]})).body, wait=late)

    provider = Provider(use, slow)
    with ScriptedServer(provider) as server:
        system = opened(tmp_path, store, server.url, use)
        with system.memory:
            system.add_messages(said())
            system.flush()
            assert asked.wait(60)
            assert not system.close(timeout=0), "work was cut off"
        late.set()
        provider.fault = None
        system = opened(tmp_path, store, server.url, use)
        with system.memory, system:
            assert_nothing_is_lost(system)
            assert system.wait(60)
            assert_all_is_done(system)


# Asking and chatting.


@pytest.mark.parametrize(
    ("fault", "error", "requests"),
    [
        (saying("<think>hm</think>"), ReplyError, 1),
        (refusing(400), RefusedError, 1),
        (refusing(429, {"retry-after": "3600"}), RateLimitedError, 1),
        (refusing(500), RefusedError, 3),
        (always(lambda: Reply(wait=threading.Event())), EndpointTimeoutError, 3),
    ],
    ids=["a thought alone", "400", "429", "500", "hangs"],
)
@on_disk
def test_a_message_is_stored_once_though_the_answer_to_it_fails(
    tmp_path: Path, store: str, use: str, fault: Fault, error: type[GeneratorError], requests: int
) -> None:
    provider = Provider(use, fault)
    timeout = HANGING if error is EndpointTimeoutError else 30
    memory = Memory(storage_in(tmp_path, store), HashEmbedder(), taggers=(), plugins=PluginManager.discover())
    with ScriptedServer(provider) as server, memory:
        with (
            memory.build("generator", setting_for(server.url, use, timeout=timeout)) as generator,
            pytest.raises(error) as caught,
        ):
            memory.chat("I live in Oslo", generator, store=True)
        assert len(server.received) == requests
        [stored] = memory.records()
        assert stored["id"] in "".join(caught.value.__notes__)
        provider.fault = None
        forget_unreachable_endpoints()
        with memory.build("generator", setting_for(server.url, use)) as generator:
            assert memory.chat("I live in Oslo", generator, store=False).reply is not None
        assert texts(memory.records()) == ["I live in Oslo"]


# Embedding.


@pytest.mark.parametrize(
    "fault",
    [
        lambda: Reply({"error": {"message": "no"}}, 500),
        lambda: Reply({"data": [{"index": 0, "embedding": [1.0, 2.0]}], "embeddings": [[1.0, 2.0]]}),
        lambda: Reply(b'{"data": [', missing=10),
        lambda: Reply(wait=threading.Event()),
    ],
    ids=["500", "too few rows", "breaks off", "hangs"],
)
@pytest.mark.parametrize("use", ["openai", "ollama"])
def test_texts_whose_vectors_fail_half_way_are_stored_not_at_all_and_then_once(
    tmp_path: Path, use: str, fault: Callable[[], Reply]
) -> None:
    calls: list[Any] = []

    def provider(request: Received) -> Reply:
        calls.append(request.body["input"])
        strict = providers.openai if use == "openai" else providers.ollama
        return fault() if broken and len(calls) > 1 else strict(request)

    broken = True
    with ScriptedServer(provider) as server:

        def memory(**options: Any) -> Memory:
            embedder = setting_for(server.url, use, batch_size=2, retries=1, **options)
            return Memory(storage_in(tmp_path, "arena"), embedder, taggers=(), plugins=PluginManager.discover())

        facts = [f"fact {number}" for number in range(6)]
        with memory(timeout=2.0) as first:
            with pytest.raises(GeneratorError):
                first.add_many(facts)
            assert len(calls) <= 3, "one batch that works, and one that is tried twice"
            assert first.records() == []
        broken = False
        forget_unreachable_endpoints()
        with memory() as second:
            second.add_many(facts)
            assert sorted(texts(second.records())) == facts
            assert texts(second.search("fact 3", 1, mode="vector")) == ["fact 3"]


# Ctrl-C.

INTERRUPTED = dedent("""
    import json, sys
    from nanomem_core.system import MemorySystem

    settings = json.loads(sys.argv[1])
    with MemorySystem.open(**settings) as system:
        try:
            system.add_messages(json.loads(sys.argv[2]))
            if sys.argv[3] == "flush":
                system.flush()
            system.wait(120)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        else:
            print("not interrupted", flush=True)
        sys.stdin.readline()
        system.flush()
        print(json.dumps(system.wait(120)), flush=True)
""")


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C to consoles, not to processes")
@pytest.mark.parametrize("phase", ["episodes", "facts"])
@on_disk
def test_after_ctrl_c_the_same_process_goes_on(tmp_path: Path, store: str, use: str, phase: str) -> None:
    asked, never = threading.Event(), threading.Event()

    def hang_once(provider: Provider, kind: str, request: Received) -> Reply | None:
        if kind != phase or provider.asked.count(kind) > 1:
            return None
        asked.set()
        return Reply(wait=never)

    path = {"arena": "memory.dat", "jsonl": "lines", "markdown": "notes"}[store]
    with ScriptedServer(Provider(use, hang_once)) as server:
        settings = {
            "storage": {"use": store, "path" if store == "arena" else "root": str(tmp_path / path)},
            "embedder": "lexical",
            "taggers": [],
            "generator": setting_for(server.url, use, timeout=5),
        }
        arguments = [json.dumps(settings), json.dumps(said()), "flush"]
        with subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert asked.wait(60)
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            output, _ = process.communicate("\n", timeout=120)
        assert (process.returncode, output) == (0, "true\n")
        with MemorySystem.open(**settings) as system:
            assert_all_is_done(system)


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C to consoles, not to processes")
@pytest.mark.parametrize("phase", ["episodes", "facts"])
@pytest.mark.parametrize("use", ["openai", "ollama", "anthropic"])
def test_ctrl_c_ends_a_command_at_once_and_the_next_one_does_the_rest(tmp_path: Path, use: str, phase: str) -> None:
    asked, never = threading.Event(), threading.Event()

    def hang(provider: Provider, kind: str, request: Received) -> Reply | None:
        if kind != phase:
            return None
        asked.set()
        return Reply(wait=never)

    provider = Provider(use, hang)
    with ScriptedServer(provider) as server:
        keep = {key: value for key, value in os.environ.items() if not key.startswith("NANOMEM_")}
        environment = keep | {
            "NANOMEM_CONFIG": "",
            "NANOMEM_TAGGERS": "",
            "NANOMEM_GENERATOR__USE": use,
            "NANOMEM_GENERATOR__MODEL": "m",
            "NANOMEM_GENERATOR__BASE_URL": server.url,
            "NANOMEM_GENERATOR__API_KEY": providers.KEY,
            "NANOMEM_GENERATOR__TIMEOUT": "3600",
        }

        def start(*arguments: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [sys.executable, "-m", "nanomem_core", "conversation", *arguments],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        with start("add", "-") as adding:
            adding.communicate("\n".join(map(json.dumps, said())), timeout=60)
        assert adding.returncode == 0
        with start("flush") as process:
            assert asked.wait(60)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in errors
        provider.fault = None
        with start("flush") as process:
            process.communicate(timeout=60)
        assert process.returncode == 0
        plugins = PluginManager.discover()
        memory = Memory(storage_in(tmp_path, "arena"), LexicalEmbedder(), taggers=(), plugins=plugins)
        with memory, MemorySystem(memory) as system:
            assert_all_is_done(system)
