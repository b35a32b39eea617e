"""``nanomem ask`` and ``chat``, with a model of another distribution."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nanomem_core import Vault

from ..conftest import Site
from .conftest import Nanomem
from .memories import answer, job_history

PARROT = """
    import re
    from nanomem_core.errors import UnreachableError
    from nanomem_core.hookspecs import hookimpl
    from nanomem_core.interfaces import Completion, Generator, Stream

    class Parrot(Generator):
        '''Says what it was told to say, word by word, or how much it was shown.'''

        name = "parrot"

        def __init__(self, model: str = "grey", says: str = "", fails: bool = False, hangs: bool = False) -> None:
            self.model, self.says, self.fails, self.hangs = model, says, fails, hangs

        def complete(self, messages, *, temperature=0.0, max_tokens=None, schema=None):
            if self.fails:
                raise UnreachableError("nobody at home")
            if schema is not None:
                return Completion('{"store": false, "reason": "the parrot is bored"}', self.model, 5, 5)
            facts = re.findall(r"^\\\\[\\\\d+\\\\]", messages[-1]["content"], re.MULTILINE)
            text = self.says or f"I am {self.model}, with {len(facts)} facts and {len(messages) - 2} turns."
            return Completion(text, self.model, 10, 3)

        def stream(self, messages, *, temperature=0.0, max_tokens=None):
            def pieces():
                whole = self.complete(messages)
                for number, piece in enumerate(re.findall(r"\\\\S+\\\\s*", whole.text)):
                    yield piece
                    while self.hangs:
                        time.sleep(0.05)
                return whole
            import time
            return Stream(pieces())

    @hookimpl
    def nanomem_register_generator():
        return (Parrot,)
""".replace("\\\\", "\\")


@pytest.fixture
def parrot(site: Site) -> str:
    site.install("nanomem-parrot", "parrot", PARROT)
    return "parrot"


def saying(text: str) -> str:
    return json.dumps({"use": "parrot", "says": text})


# Ask.


def test_an_answer_is_printed_with_its_sources(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    job_history()
    result = nanomem("ask", "peanuts ill?", "-k", "1", "--generator", saying("Not peanuts [1]."))
    assert result.exit_code == 0
    assert result.stdout == "Not peanuts [1].\n  [1] 2025-03-01, cli: Peanuts make me ill\n"
    assert result.stderr == ""


def test_what_speaks_against_an_answer_is_told_on_stderr(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    job_history()
    result = nanomem("ask", "work?", "--entity", "employer", "--generator", saying("At Alder [2], or Mars [9]."))
    assert result.exit_code == 0
    assert "[2] is SUPERSEDED" in result.stderr
    assert "cites [9], which is no fact" in result.stderr
    assert "[9]" not in result.stdout.splitlines()[1]


@pytest.mark.parametrize("form", [[], ["--stream"]])
def test_an_answer_can_not_steer_the_terminal(form: list[str], parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    job_history()
    result = nanomem("ask", "peanuts?", "--generator", saying("\x1b[2Jgone [1]"), *form)
    assert "\x1b" not in result.stdout
    assert "\\x1b[2Jgone [1]" in result.stdout


def test_a_streamed_answer_is_the_same_text(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    job_history()
    arguments = ("ask", "peanuts ill?", "--generator", saying("Not peanuts, I am afraid [1]."))
    assert nanomem(*arguments, "--stream").stdout == nanomem(*arguments).stdout


def test_json_of_an_answer_has_its_citations_and_its_usage(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    ids = job_history()
    found = answer(nanomem("ask", "peanuts ill?", "--generator", saying("Not peanuts [1], [7]."), "--json"))
    assert found["citations"][0]["id"] == ids[2]
    assert found["invented_citations"] == [7]
    assert found["usage"]["phases"][0]["input_tokens"] == 10


def test_a_model_that_fails_ends_the_command_with_its_message(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    job_history()
    result = nanomem("ask", "peanuts?", "--generator", '{"use": "parrot", "fails": true}')
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "nanomem: nobody at home\n"


def test_where_there_are_only_conversations_it_is_said_how_to_ask_of_them(
    parrot: str, cwd: Path, nanomem: Nanomem
) -> None:
    with Vault("memory.dat") as vault:
        vault.add("ann: The hut has no stove", kind="episode")
    asked = ("ask", "stove?", "--generator", saying("None [1]."))
    nothing = nanomem(*asked)
    assert nothing.exit_code == 0
    assert "1 episode, which --kind episode or --kind all searches" in nothing.stderr
    assert "ann: The hut has no stove" in nanomem(*asked, "--kind", "all").stdout
    for options in ((), ("--generator", parrot)):
        told = nanomem("chat", "--gate", "none", *options, input="stove?\n")
        assert "1 episode, which --kind episode" in told.stderr
        told = nanomem("chat", "--gate", "none", "--kind", "all", *options, input="stove?\n")
        assert "--kind" not in told.stderr
        assert "no stove" in told.stdout or "1 facts" in told.stdout


@pytest.mark.parametrize("command", ["search", "ask", "chat", "as-of"])
def test_searching_and_talking_have_the_same_options_for_how_to_search(command: str, nanomem: Nanomem) -> None:
    help = nanomem(command, "--help").stdout
    for option in ("--top-k", "--mode", "--min-score", "--neighbours / --no-neighbours", "--multihop"):
        assert option in help


def test_chat_looks_up_as_it_is_told(cwd: Path, nanomem: Nanomem) -> None:
    with Vault("memory.dat") as vault:
        vault.add("I like tea")
    assert "I like tea" in nanomem("chat", "--gate", "none", input="coffee?\n").stdout
    assert "I like tea" not in nanomem("chat", "--gate", "none", "--mode", "text", input="coffee?\n").stdout


# Chat.


def talk(nanomem: Nanomem, *lines: str, options: tuple[str, ...] = ()) -> list[dict[str, object]]:
    turns: list[dict[str, object]] = answer(nanomem("chat", *options, "--json", input="\n".join(lines)))["turns"]
    return turns


def test_a_conversation_remembers_and_answers(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    result = nanomem("chat", "--generator", parrot, input="I live in Oslo\n\nthanks\nwhere do I live?\n")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "I am grey, with 0 facts and 0 turns.",
        "I am grey, with 1 facts and 2 turns.",
        "I am grey, with 1 facts and 4 turns.",
    ]
    assert result.stderr.splitlines() == [
        "Remembered: nothing speaks against it.",
        "Not remembered: it is small talk.",
        "Not remembered: it only asks.",
    ]
    with Vault("memory.dat", read_only=True) as vault:
        assert [(record.text, record.source) for record in vault.records()] == [("I live in Oslo", "chat_session")]


def test_without_a_model_it_is_a_shell_of_the_memory(cwd: Path, nanomem: Nanomem) -> None:
    result = nanomem("chat", input="I live in Oslo\nwhere do I live?\n")
    assert result.exit_code == 0
    assert "No model is set" in result.stderr
    assert result.stdout.startswith("Nothing is known of it yet.\n")
    assert "current    location   I live in Oslo" in result.stdout


def test_json_tells_what_became_of_each_message(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    one, two = talk(nanomem, "I live in Oslo", "thanks", options=("--generator", parrot))
    assert (one["stored"], one["error"]) == (True, None)
    assert isinstance(one["reply"], dict)
    assert one["reply"]["answer"] == "I am grey, with 0 facts and 0 turns."
    assert (two["id"], two["reason"]) == (None, "it is small talk")


@pytest.mark.parametrize(
    ("gate", "stored"),
    [("rules", [True, False]), ("model", [False, False]), ("all", [True, True]), ("none", [False, False])],
)
def test_the_gate_decides_what_is_stored(
    gate: str, stored: list[bool], parrot: str, cwd: Path, nanomem: Nanomem
) -> None:
    turns = talk(nanomem, "I live in Oslo", "thanks", options=("--generator", parrot, "--gate", gate))
    assert [turn["stored"] for turn in turns] == stored


def test_a_gate_without_its_model_is_told(cwd: Path, nanomem: Nanomem) -> None:
    assert "--gate model" in nanomem("chat", "--gate", "model", input="").stderr
    assert "--gate" not in nanomem("chat", input="").stderr


def test_a_line_that_fails_is_told_and_the_rest_served(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    broken = '{"use": "parrot", "fails": true}'
    result = nanomem("chat", "--generator", broken, input="I live in Oslo\n/provider parrot\nHello\n")
    assert result.exit_code == 1
    assert "nanomem: nobody at home" in result.stderr
    assert "1 line could not be served" in result.stderr
    # What was not answered is remembered, and is no part of the conversation.
    assert result.stdout.splitlines() == ["parrot answers.", "I am grey, with 1 facts and 0 turns."]


def test_a_model_of_the_settings_can_be_sent_away(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    lines = "/provider none\nI live in Oslo\nwhere do I live?\n"
    result = nanomem("chat", input=lines, NANOMEM_GENERATOR="parrot")
    assert result.exit_code == 0
    assert "I am grey" not in result.stdout
    assert "I live in Oslo" in result.stdout


def test_the_length_of_a_conversation_is_bounded(parrot: str, cwd: Path, nanomem: Nanomem) -> None:
    lines = nanomem("chat", "--generator", parrot, "--gate", "none", input="hi\n" * 30).stdout.splitlines()
    assert lines[5].endswith("10 turns.")
    assert lines[-1].endswith("40 turns.")


def test_the_commands_do_what_the_help_says(cwd: Path, nanomem: Nanomem, parrot: str) -> None:
    (cwd / "notes.md").write_text("# Garden\n\nThe shed key hangs left of the door.\n", encoding="utf-8")
    chat = {"role": "user", "content": "We fly to Rome on Friday"}
    (cwd / "chat.jsonl").write_text(json.dumps(chat) + "\n", encoding="utf-8")
    result = nanomem(
        "chat",
        input="\n".join(
            [
                "/help",
                "I live in Oslo",
                "/user create ann",
                "I live in Rome",
                "/users",
                "/user switch default",
                "/inspect thanks a lot",
                "/inspect",
                "/stats",
                "/cite off",
                "/ingest notes.md",
                "/import chat.jsonl",
                "/dump 1",
                "/forget I live in Oslo",
                "y",
                "/dump",
                "/provider parrot says=Hello!",
                "/model green",
                "hi",
                "/provider none",
                "/quit",
                "I am not read",
            ]
        ),
    )
    assert result.exit_code == 0, result.stderr
    out = result.stdout
    assert "/forget TEXT" in out
    assert "* ann\n  default\n" in out
    assert "Not to be remembered: it is small talk (says gate)." in out
    assert "Citations are off." in out
    assert "Read 1 section." in out
    assert "Imported 1 message of 1 chat as 1 episode; 0 skipped." in out
    assert "The newest 1 of 2 records." in out
    assert "Deleted 1 record." in out
    assert "parrot (says Hello!, model green) answers." in out
    assert "\nHello!\n" in out
    assert "No model is set." in out
    with Vault("memory.dat", read_only=True) as vault:
        assert [record.source for record in vault.records()] == ["notes.md:1-3"]
        assert [record.text for record in vault.records(user="ann")] == ["I live in Rome"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/fourget x", "did you mean 'forget'?"),
        ("/", "there is no command /"),
        ("/user", "/user create NAME"),
        ("/user switch nobody", "no memory here"),
        ("/user create default", "has a memory already"),
        ("/dump many", "found 'many'"),
        ("/cite maybe", "found 'maybe'"),
        ("/forget", "what to forget"),
        ("/ingest", "found nothing"),
        ("/ingest gone.md", "gone.md"),
        ("/import gone.json", "gone.json"),
        ("/model big", "no provider is set"),
        ("/provider parot", "parot"),
        ("/provider ollama model", "OPTION=VALUE"),
    ],
)
def test_a_wrong_command_is_told_and_changes_nothing(line: str, message: str, cwd: Path, nanomem: Nanomem) -> None:
    job_history()
    result = nanomem("chat", input=f"{line}\n/users\n")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stdout == "* default\n"


def test_to_forget_asks_first(cwd: Path, nanomem: Nanomem) -> None:
    ids = job_history()
    result = nanomem("chat", input="/forget Peanuts make me ill\nno\n")
    assert result.exit_code == 1
    assert "nothing was changed" in result.stderr
    with Vault("memory.dat", read_only=True) as vault:
        assert vault.exists(ids[2])


def test_a_key_of_a_provider_is_not_shown(cwd: Path, nanomem: Nanomem) -> None:
    result = nanomem("chat", input="/provider openai model=m api_key=sk-hush base_url=http://127.0.0.1:9/v1\n")
    assert "openai" in result.stdout
    assert "sk-hush" not in result.stdout + result.stderr


def test_what_is_no_text_ends_the_conversation_and_keeps_what_was_said(cwd: Path, nanomem: Nanomem) -> None:
    result = nanomem("chat", input=b"I live in Oslo\n" + b"\xff\xfe" * 9000 + b"\n")
    assert result.exit_code == 1
    assert "standard input: expected utf-8" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_stops_a_reply_and_the_conversation_goes_on(
    parrot: str, cwd: Path, site: Site, spawn: Callable[..., object]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nanomem_core", "chat", "--generator", '{"use": "parrot", "hangs": true}'],
        env=os.environ | {"PYTHONPATH": str(site.folder), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("I live in Oslo\n")
    process.stdin.flush()
    assert process.stdout.read(2) == "I "
    process.send_signal(signal.SIGINT)
    out, err = process.communicate("/dump\n", timeout=60)
    assert process.returncode == 0, err
    assert "Stopped." in err
    assert "I live in Oslo" in out
