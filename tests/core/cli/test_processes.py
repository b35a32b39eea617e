"""The command in processes of its own: exit codes, streams, encodings, signals."""

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
from .memories import job_history

Spawn = Callable[..., "subprocess.CompletedProcess[bytes]"]
NANOMEM = [sys.executable, "-m", "nanomem_core"]


def test_exit_codes_and_streams(cwd: Path, spawn: Spawn) -> None:
    job_history()
    for arguments, code in (
        (["search", "work"], 0),
        (["get", "nope"], 1),
        (["search", "work", "--vault", "gone.dat"], 1),
        (["search"], 2),
        (["serach", "x"], 2),
    ):
        done = spawn(*arguments)
        assert done.returncode == code
        assert (done.stdout == b"") is (code != 0)
        assert (done.stderr == b"") is (code == 0)
        assert b"Traceback" not in done.stderr


def test_a_search_imports_no_component_that_it_does_not_use(cwd: Path) -> None:
    job_history()
    code = (
        "import sys\n"
        "from nanomem_core.cli import main\n"
        "try: main(['search', 'work', '--json'])\n"
        "except SystemExit: pass\n"
        "from nanomem_core.config.model import Settings\n"
        "print(Settings.__pydantic_complete__, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    validators_built, *modules = done.stderr.split()
    assert "nanomem_plugins.arena.storage" in modules
    used = ("arena", "lexical", "keyword")
    parts = {name for name in modules if name.count(".") > 1 and name.startswith("nanomem_plugins.")}
    assert {name for name in parts if name.split(".")[1] not in used} == set()
    assert not {"httpx", "nanomem_core.http", "nanomem_core.system", "rich", "ssl"} & set(modules)
    assert validators_built == "False"


@pytest.mark.parametrize("name", ["plugin", "embedder"])
def test_what_plugins_print_while_they_work_is_not_among_the_results(
    name: str, cwd: Path, site: Site, spawn: Spawn
) -> None:
    hook = """
        from nanomem_core.hookspecs import hookimpl

        @hookimpl
        def nanomem_before_commit(scope, changes):
            print("hello from the commit")

        @hookimpl
        def nanomem_searched(scope, query, results):
            print("hello from the search")
    """
    embedder = """
        from nanomem_core.hookspecs import hookimpl
        from nanomem_core.interfaces import Embedder

        class Loud(Embedder):
            name, id, dim = "loud", "loud-1", 2

            def encode(self, texts):
                print("hello from the embedder")
                return [[1.0, len(text)] for text in texts]

        @hookimpl
        def nanomem_register_embedder():
            return [Loud]
    """
    site.install("nanomem-loud", "loud", hook if name == "plugin" else embedder)
    setting = {} if name == "plugin" else {"NANOMEM_EMBEDDER": "loud"}
    added = spawn("add", "a fact", "--json", **setting)
    found = spawn("search", "fact", "--json", **setting)
    assert json.loads(found.stdout)["results"][0]["id"] == json.loads(added.stdout)["ids"][0]
    assert b"hello" in added.stderr
    assert b"hello" in found.stderr


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_narrow_encoding_ends_no_command(encoding: str, cwd: Path, spawn: Spawn) -> None:
    with Vault("memory.dat") as vault:
        vault.add("乌龙茶 and Zoë 🫖", entity="茶")
    narrow = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    for arguments in (["history", "--entity", "茶"], ["demo"]):
        done = spawn(*arguments, **narrow)
        assert (done.returncode, done.stderr) == (0, b"")
        done.stdout.decode(encoding)
    done = spawn("search", "Zoë", "--json", **narrow)
    assert json.loads(done.stdout.decode(encoding))["results"][0]["text"] == "乌龙茶 and Zoë 🫖"


def test_no_colours_reach_a_pipe_or_a_run_without_colour(cwd: Path, spawn: Spawn) -> None:
    job_history()
    for environ in ({}, {"NO_COLOR": "1", "TERM": "xterm-256color"}):
        for arguments in (["demo"], ["get", "nope"]):
            done = spawn(*arguments, **environ)
            assert b"\x1b" not in done.stdout + done.stderr


@pytest.mark.skipif(os.name == "nt", reason="a pipe whose reader has gone is told otherwise on Windows")
@pytest.mark.parametrize("arguments", [["changes"], ["changes", "--json"], ["demo"]])
def test_a_reader_that_has_gone_is_no_error_to_talk_about(arguments: list[str], cwd: Path) -> None:
    with Vault("memory.dat") as vault:
        vault.add_many(f"fact number {number} " + "x" * 200 for number in range(500))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run([*NANOMEM, *arguments], stdout=pipe, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert done.stderr == b""


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C can't be sent to a single process on Windows")
@pytest.mark.parametrize("arguments", [["add", "-"], ["forget", "Moved to Birch Labs"]])
def test_ctrl_c_ends_with_130_and_changes_nothing(arguments: list[str], cwd: Path) -> None:
    job_history()
    before = Path("memory.dat").read_bytes()
    program = (
        "import os, signal, sys\n"
        "class Stdin:\n"
        "    buffer = property(lambda self: self)\n"
        "    isatty = lambda self: False\n"
        "    def read(self, *a): os.kill(os.getpid(), signal.SIGINT)\n"
        "    readline = read\n"
        "sys.stdin = Stdin()\n"
        "from nanomem_core.cli import main\n"
        "main(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 130
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    assert Path("memory.dat").read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_on_a_terminal_long_work_shows_how_far_it_is_and_results_stay_clean(cwd: Path) -> None:
    import pty

    Path("facts.txt").write_text("".join(f"fact {number}\n" for number in range(600)), encoding="utf-8")
    master, slave = pty.openpty()
    with open("facts.txt", "rb") as facts:
        done = subprocess.run(
            [*NANOMEM, "add", "-", "--lines", "--json"],
            stdin=facts,
            stdout=subprocess.PIPE,
            stderr=slave,
            env=os.environ | {"TERM": "xterm"},
        )
    os.close(slave)
    shown = b""
    with os.fdopen(master, "rb", 0) as terminal:
        try:
            while part := terminal.read(4096):
                shown += part
        except OSError:  # Linux tells the end of a terminal so
            pass
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["ids"]) == 600
    assert b"remembering" in shown
    assert b"600/600" in shown


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
def test_what_was_printed_as_added_is_there_after_a_kill(cwd: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from nanomem_core.cli import main\n"
        "try: main(['add', 'a fact that was acknowledged'])\n"
        "except SystemExit: sys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    with Vault("memory.dat", read_only=True) as vault:
        entry = vault.get(done.stdout.decode().strip())
        assert entry is not None
        assert entry.text == "a fact that was acknowledged"


COUNTING = """
import os, pathlib, signal
from nanomem_core.hookspecs import hookimpl
from nanomem_core.interfaces import Embedder

class Counting(Embedder):
    name, id, dim = "counting", "counting-1", 3

    def __init__(self, die_after: int = 10**9) -> None:
        self.left = die_after

    def encode(self, texts):
        self.left -= len(texts)
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        with open("encoded.txt", "a") as log:
            log.writelines(text + chr(10) for text in texts)
        return [[1.0, len(text), len(text.split())] for text in texts]

@hookimpl
def nanomem_register_embedder():
    return [Counting]
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
def test_a_killed_reembed_leaves_the_old_vectors_in_use_and_goes_on_where_it_stopped(
    cwd: Path, site: Site, spawn: Spawn
) -> None:
    site.install("nanomem-counting", "counting", COUNTING)
    facts = [f"fact number {number}" for number in range(200)]
    with Vault("memory.dat") as vault:
        vault.add_many({"text": fact, "source": "notes.md"} for fact in facts)
    killed = spawn("reembed", "--to", '{"use": "counting", "die_after": 150}')
    assert killed.returncode == -signal.SIGKILL
    done_before = Path("encoded.txt").read_text(encoding="utf-8").splitlines()
    assert 0 < len(done_before) < 200
    assert spawn("search", "fact number 7").returncode == 0
    refused = spawn("search", "fact number 7", NANOMEM_EMBEDDER="counting")
    assert refused.returncode == 1
    assert b"lexical-1-512" in refused.stderr
    assert b"counting-1" in refused.stderr

    finished = spawn("reembed", "--to", "counting", "--json")
    assert json.loads(finished.stdout) == {
        "embedded": 200 - len(done_before),
        "embedder": "counting-1",
        "dim": 3,
    }
    assert sorted(Path("encoded.txt").read_text(encoding="utf-8").splitlines()) == sorted(facts)
    assert spawn("search", "fact number 7", NANOMEM_EMBEDDER="counting").returncode == 0
    assert spawn("search", "fact number 7").returncode == 1
