"""The command as a whole: what it imports, how it finds commands, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from nanomem_core import __version__
from nanomem_core.cli import COMMANDS, main

from ..conftest import Site
from .conftest import Nanomem

Spawn = Callable[..., "subprocess.CompletedProcess[bytes]"]

HEAVY = ("httpx", "nanomem_plugins", "numpy", "pluggy", "pydantic", "rich", "stevedore", "yaml")


def command(site: Site, name: str, source: str, distribution: str = "nanomem-extra") -> None:
    site.install(distribution, f"{name}:run", "import click\n" + source, group="nanomem.commands")


# Start-up.


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], [], ["no-such-command"]])
def test_help_and_version_import_nothing_heavy(arguments: list[str], cwd: Path, site: Site) -> None:
    site.install("nanomem-loud", "loud", "raise RuntimeError('imported')")
    command(site, "loud", "raise RuntimeError('imported')", "nanomem-loud-command")
    code = (
        "import json, sys\n"
        "from nanomem_core.cli import main\n"
        "try: main(json.loads(sys.argv[1]))\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        env=os.environ | {"PYTHONPATH": str(site.folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "click" in loaded
    assert sorted(loaded & {*HEAVY, "nanomem_loud_loud", "nanomem_loud_command_loud"}) == []


def test_garbage_is_looked_for_seldom_in_a_command_and_as_before_after_it(site: Site) -> None:
    command(site, "thresholds", "import gc; run = click.Command('x', callback=lambda: print(gc.get_threshold()[0]))")
    code = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > frozen))\n"
        "gc.set_threshold(123, 4, 5)\n"
        "frozen = gc.get_freeze_count()  # of CPython itself, 3.12 and later\n"
        "from nanomem_core.cli import main\n"
        "try: main(['thresholds'])\n"
        "except SystemExit: pass\n"
        "print(gc.get_threshold()[0], gc.get_freeze_count() - frozen)"
    )
    environ = os.environ | {"PYTHONPATH": str(site.folder)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["50000", "123", "0", "True"]


def test_the_version_is_printed(nanomem: Nanomem) -> None:
    result = nanomem("--version")
    assert (result.exit_code, result.stdout) == (0, f"nanomem {__version__}\n")


def test_without_a_command_the_help_is_printed(nanomem: Nanomem) -> None:
    assert (nanomem().exit_code, nanomem().stdout) == (0, nanomem("--help").stdout)


def test_the_help_lists_every_command(nanomem: Nanomem) -> None:
    listed = nanomem("--help").stdout.partition("Commands:")[2]
    for name, (_, text) in COMMANDS.items():
        assert name in listed
        assert " ".join(text.split()) in " ".join(listed.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there_and_has_help(name: str, nanomem: Nanomem) -> None:
    result = nanomem(name, "--help")
    assert result.exit_code == 0
    assert f"nanomem {name}" in result.stdout
    found = main.get_command(click.Context(main), name)
    assert found is not None
    assert found.name == name
    assert found.help


# Commands of other distributions.


def test_a_command_of_another_distribution_is_listed_and_run(site: Site, nanomem: Nanomem) -> None:
    command(site, "greet", "@click.command()\n@click.argument('who')\ndef run(who): click.echo(f'hello {who}')")
    assert "greet" in nanomem("--help").stdout
    assert "From nanomem-extra." in nanomem("--help").stdout
    assert nanomem("greet", "ann").stdout == "hello ann\n"


def test_a_command_of_another_distribution_gets_the_session(site: Site, nanomem: Nanomem) -> None:
    source = """
from nanomem_core.cli.common import echo_json, json_option, pass_session
@click.command()
@json_option
@pass_session
def run(session, as_json):
    echo_json({"scope": session.scope, "path": session.settings.storage["path"]})
"""
    command(site, "whose", source)
    result = nanomem("--vault", "x.dat", "--user", "ann", "--agent", "bot", "whose", "--json")
    assert json.loads(result.stdout) == {"scope": {"user": "ann", "agent": "bot"}, "path": os.path.abspath("x.dat")}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('no such library')", "ImportError: no such library"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("", "AttributeError"),
        ("run = 3", "expected a click command"),
    ],
)
def test_a_broken_command_is_an_error_only_when_it_is_run(
    source: str, reason: str, site: Site, nanomem: Nanomem
) -> None:
    command(site, "broken", source)
    assert nanomem("--help").exit_code == 0
    assert nanomem("config", "path").exit_code == 0
    result = nanomem("broken")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nanomem: the command 'broken' of nanomem-extra 1.0 can't be used: " in result.stderr
    assert reason in result.stderr


def test_a_command_that_two_distributions_bring_is_an_error_that_names_both(site: Site, nanomem: Nanomem) -> None:
    for distribution in ("nanomem-one", "nanomem-two"):
        command(site, "greet", "@click.command()\ndef run(): ...", distribution)
    result = nanomem("greet")
    assert result.exit_code == 1
    assert "nanomem-one 1.0 and nanomem-two 1.0" in result.stderr


def test_a_command_of_the_core_can_not_be_replaced(site: Site, nanomem: Nanomem) -> None:
    command(site, "config", "raise RuntimeError('imported')")
    assert nanomem("config", "path").exit_code == 0
    assert nanomem("--help").stdout.count("config  ") == 1


def test_completion_lists_commands_without_importing_them(site: Site, spawn: Spawn) -> None:
    command(site, "plump", "raise RuntimeError('imported')")
    done = spawn(_NANOMEM_COMPLETE="bash_complete", COMP_WORDS="nanomem pl", COMP_CWORD="1")
    assert done.stdout.split() == [b"plain,plugins", b"plain,plump"]


# How a run ends.


def failing(statement: str) -> str:
    return f"@click.command()\ndef run():\n    {statement}"


def test_an_unknown_command_is_a_usage_error_with_the_nearest_name(nanomem: Nanomem) -> None:
    result = nanomem("plugin")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no command 'plugin'; did you mean 'plugins'?" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["--no-such-option"], ["config", "show", "--no-such-option"], ["plugins", "show"]]
)
def test_a_wrong_use_of_the_command_line_ends_with_2(arguments: list[str], nanomem: Nanomem) -> None:
    result = nanomem(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: nanomem" in result.stderr


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("from nanomem_core.errors import InputError; raise InputError('top_k: expected 1')", "top_k: expected 1"),
        ("open('absent.txt')", "[Errno 2] No such file or directory: 'absent.txt'"),
        ("{}['x']", "unexpected KeyError: 'x'; --debug shows where"),
        ("raise click.ClickException('own words')", None),
    ],
)
def test_an_error_is_a_message_on_stderr_and_ends_with_1(
    statement: str, message: str | None, site: Site, nanomem: Nanomem
) -> None:
    command(site, "fail", failing(statement))
    result = nanomem("fail")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (f"nanomem: {message}\n" if message else "Error: own words\n")


def test_debug_shows_the_traceback(site: Site, spawn: Spawn) -> None:
    command(site, "fail", failing("{}['x']"))
    done = spawn("--debug", "fail")
    assert done.returncode == 1
    assert b"Traceback" in done.stderr
    assert b"KeyError: 'x'" in done.stderr
    assert b"Traceback" not in spawn("fail").stderr


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("click.get_current_context().exit(5)", 5),
        ("raise SystemExit(6)", 6),
        ("return 7", 0),
        ("raise KeyboardInterrupt", 130),
        ("raise click.Abort", 1),
    ],
)
def test_the_exit_code_is_what_the_command_ended_with(statement: str, code: int, site: Site, nanomem: Nanomem) -> None:
    command(site, "end", failing(statement))
    result = nanomem("end")
    assert result.exit_code == code
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_gone_is_no_error_to_talk_about(lines: int, site: Site, cwd: Path) -> None:
    command(site, "talk", failing(f"click.echo('line\\n' * {lines})"))
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "nanomem_core", "talk"],
        env=os.environ | {"PYTHONPATH": str(site.folder)},
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_what_an_encoding_lacks_is_escaped_and_json_stays_exact(site: Site, spawn: Spawn) -> None:
    text = "naïve 漢字 🫖 \udc80"
    source = f"""
from nanomem_core.cli.common import console, echo_json
@click.command()
@click.option("--json", "as_json", is_flag=True)
def run(as_json):
    text = {text!a}
    if as_json:
        echo_json([text])
    else:
        click.echo(text)
        console().print(text)
"""
    command(site, "say", source)
    for encoding in ("ascii", "cp1252", "utf-8"):
        done = spawn("say", PYTHONIOENCODING=encoding)
        assert (done.returncode, done.stderr) == (0, b"")
        # click writes UTF-8 where the encoding is ASCII, which it takes for a locale that was never set.
        assert done.stdout.decode("utf-8" if encoding == "ascii" else encoding).startswith("na")
        assert json.loads(spawn("say", "--json", PYTHONIOENCODING=encoding).stdout.decode(encoding)) == [text]
    assert "naïve 漢字 🫖" in spawn("say", PYTHONIOENCODING="utf-8").stdout.decode()


def test_a_warning_of_the_library_is_one_line_on_stderr(site: Site, nanomem: Nanomem, caplog: Any) -> None:
    source = """
import logging
@click.command()
def run():
    try:
        raise RuntimeError("no network")
    except RuntimeError:
        logging.getLogger("nanomem").exception("plugin 'x' failed")
    logging.getLogger("nanomem").info("unimportant")
"""
    command(site, "log", source)
    for _ in range(2):
        result = nanomem("log")
        assert (result.stdout, result.stderr) == ("", "nanomem: plugin 'x' failed\n")
    debugged = nanomem("--debug", "log").stderr
    assert "RuntimeError: no network" in debugged
    assert "unimportant" in debugged


def test_tables_are_not_wrapped_or_coloured_off_a_terminal(site: Site, spawn: Spawn) -> None:
    source = """
from rich.table import Table
from nanomem_core.cli.common import console
@click.command()
def run():
    table = Table("a", "b")
    table.add_row("x" * 300, "[bold]as it is[/bold] :smile:")
    console().print(table)
"""
    command(site, "table", source)
    text = spawn("table").stdout.decode()
    assert "x" * 300 in text
    assert "[bold]as it is[/bold] :smile:" in text
    assert "\x1b" not in text
