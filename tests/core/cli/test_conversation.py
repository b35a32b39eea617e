"""``nanomem conversation``: messages in, episodes out."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.core.pipeline.test_chats import conversation
from tests.scripted_server import Received, Reply, ScriptedServer

from .conftest import Nanomem
from .memories import answer


def test_a_message_waits_until_it_is_flushed(nanomem: Nanomem) -> None:
    assert nanomem("conversation", "add", "We leave for Rome on Friday").stdout == "Added 1 message; 1 waiting.\n"
    assert "1 message waiting, 0 episodes, 0 facts." in nanomem("conversation", "status").stdout
    (episode,) = answer(nanomem("conversation", "flush", "--json"))["results"]
    assert episode["original_messages"][0]["content"] == "We leave for Rome on Friday"
    assert nanomem("conversation", "flush").stdout == "No message was waiting.\n"
    listed = nanomem("conversation", "episodes", "--messages").stdout
    assert episode["episode_id"] in listed
    assert "user: We leave for Rome on Friday" in listed
    assert [each["kind"] for each in answer(nanomem("search", "Rome", "--kind", "episode", "--json"))["results"]]


def test_role_time_and_metadata_of_a_message_are_given_as_options(nanomem: Nanomem) -> None:
    options = ("--role", "assistant", "--timestamp", "2026-03-01", "--metadata", "source=app", "--user", "ann")
    nanomem("conversation", "add", "Have a good trip!", *options)
    (episode,) = answer(nanomem("conversation", "flush", "--json", "--user", "ann"))["results"]
    (message,) = episode["original_messages"]
    assert (message["role"], message["timestamp"]) == ("assistant", "2026-03-01T00:00:00Z")
    assert message["metadata"] == {"source": "app"}
    assert episode["user_id"] == "ann"


def test_enough_messages_from_standard_input_become_episodes_at_once(nanomem: Nanomem) -> None:
    lines = "\n".join(json.dumps({"role": "user", "content": f"about the garden, {n}"}) for n in range(20))
    report = answer(nanomem("conversation", "add", "-", "--json", input=lines))
    assert (len(report["added"]), report["skipped"], report["waiting"]) == (20, 0, 0)
    again = answer(nanomem("conversation", "add", "-", "--json", input='{"role": "user", "content": "about, 0"}'))
    assert again["skipped"] == 0
    assert sum(e["message_count"] for e in answer(nanomem("conversation", "episodes", "--json"))["results"]) == 20
    assert len(answer(nanomem("conversation", "episodes", "--json", "--limit", "1"))["results"]) == 1


@pytest.mark.parametrize(
    ("arguments", "input", "problem"),
    [
        (("add", "-"), "{", "standard input, line 1: expected a JSON object"),
        (("add", "-"), b"\xff", "standard input: expected UTF-8; found byte 0xff at 0"),
        (("add", "-"), "", "TEXT: expected a message; found none"),
        (("add", "-"), '{"role": "user", "content": "x", "timestamp": "soon"}', "message 0: timestamp: expected"),
        (("add", "x", "--role", " "), None, "role: expected a text"),
        (("import", "gone.json"), None, "gone.json: there is no such file"),
        (("flush",), None, "there is no memory at"),
    ],
)
def test_what_is_wrong_is_told_and_stores_nothing(
    nanomem: Nanomem, cwd: Path, arguments: tuple[str, ...], input: str | bytes | None, problem: str
) -> None:
    result = nanomem("conversation", *arguments, input=input)
    assert result.exit_code == 1
    assert problem in result.stderr
    if (cwd / "memory.dat").exists():
        assert answer(nanomem("conversation", "status", "--json"))["waiting"] == 0


def test_an_export_is_taken_in_once(nanomem: Nanomem, cwd: Path) -> None:
    (cwd / "conversations.json").write_text(json.dumps([conversation()]))
    report = answer(nanomem("conversation", "import", "conversations.json", "--json"))
    assert report == {"chats": 1, "added": 3, "skipped": 1, "episodes": 1}
    told = nanomem("conversation", "import", "conversations.json").stdout
    assert told == "Imported 0 messages of 1 chat as 0 episodes; 4 skipped.\n"
    (cwd / "chat.txt").write_text('{"role": "user", "content": "hi"}\n')
    assert nanomem("conversation", "import", "chat.txt").exit_code == 1
    assert answer(nanomem("conversation", "import", "chat.txt", "--format", "jsonl", "--json"))["added"] == 1


def test_a_retry_of_what_was_not_given_up_says_so(nanomem: Nanomem) -> None:
    nanomem("conversation", "add", "hi")
    assert nanomem("conversation", "retry").stdout == "0 of 0 episodes done.\n"
    result = nanomem("conversation", "retry", "e-1")
    assert (result.exit_code, "no episode 'e-1' was given up" in result.stderr) == (1, True)


def told_by_ollama(request: Received) -> Reply:
    """A model behind Ollama's interface; it tells, and draws facts from, what it is asked about Oslo."""
    kind = next(iter(request.body["format"]["properties"]))
    fact = {"text": "Ann lives in Oslo", "entity": "home_city", "category": "identity", "confidence": 1, "since": None}
    answers = {"title": {"title": "A move to Oslo", "content": "Ann moved."}, "facts": {"facts": [fact]}}
    message = {"role": "assistant", "content": json.dumps(answers[kind])}
    counts = {"done": True, "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7}
    return Reply({"model": "m", "created_at": "2026-11-30T12:00:00Z", "message": message, **counts})


def test_what_a_model_that_was_down_left_undone_is_done_by_the_next_flush(nanomem: Nanomem) -> None:
    def model(url: str) -> dict[str, str]:
        options = {"USE": "ollama", "MODEL": "m", "BASE_URL": url, "RETRIES": "0"}
        return {f"NANOMEM_GENERATOR__{name}": value for name, value in options.items()}

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = model(f"http://127.0.0.1:{free.getsockname()[1]}")
        nanomem("conversation", "add", "I moved to Oslo")
        down = nanomem("conversation", "flush", **nobody)
    assert (down.exit_code, "not all was done: UnreachableError" in down.stderr) == (1, True)
    assert "user: I moved to Oslo" in down.stdout
    shown = nanomem("conversation", "status", **nobody).stdout
    assert "0 messages waiting, 1 episode, 0 facts." in shown
    assert "account and facts" in shown
    with ScriptedServer(told_by_ollama) as server:
        done = nanomem("conversation", "flush", **model(server.url))
        assert (done.exit_code, done.stdout, done.stderr) == (0, "No message was waiting.\n", "")
        assert len(server.received) == 2
        report = answer(nanomem("conversation", "status", "--json", **model(server.url)))
    assert (report["pending"], report["dead"], report["stats"]["facts"]) == ([], [], 1)
    assert "A move to Oslo" in nanomem("conversation", "episodes").stdout
    assert answer(nanomem("current", "--json"))["results"][0]["entity"] == "home_city"


def test_a_message_can_not_steer_the_terminal(nanomem: Nanomem) -> None:
    nanomem("conversation", "add", "red \x1b[31m alert")
    nanomem("conversation", "flush")
    shown = nanomem("conversation", "episodes", "--messages").stdout
    assert "\x1b" not in shown
    assert "red \\x1b[31m alert" in shown
