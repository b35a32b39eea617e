"""Writes docs/reference/cli.md from the commands: ``python -m tests.cli_reference``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from nanomem_core.cli import COMMANDS, main
from nanomem_core.cli.options import Command
from nanomem_core.results import Entry

__all__ = ["PAGE", "reference"]

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/cli.md"

_HEAD = """\
# The command line

<!-- Written by `python -m tests.cli_reference` from the commands themselves. -->

`nanomem COMMAND`, or `python -m nanomem_core COMMAND`. Results go to standard output; messages, questions and progress
go to standard error, progress only on a terminal. No command prints a traceback unless `--debug` asks for it.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | an error, told on standard error; also: damage or a problem was found, or a question was not answered with yes |
| 2 | the command line is wrong |
| 130 | interrupted (Ctrl-C) |

* **WHEN** is a date or time in ISO 8601 (`2026-03-01`, `2026-03-01T09:30:00Z`, `20260301`) or a number of unix seconds.
  What names no zone is UTC. Tables show UTC, to the minute; midnight is shown as the date alone.
* **KEY=VALUE|JSON** of a filter is a pair, or a [filter](filters.md) as JSON. Of several, all must match. A value that
  is `true`, `false`, `null`, a list or an object in JSON is taken as that.
* **KEY=VALUE|JSON** of metadata is a pair, or an object as JSON. A value that is valid JSON is stored as that, anything
  else as a text: `n=5` stores a number, `n='"5"'` a text.
* **--json** prints one JSON document. Times in it are unix seconds. {entry}
  Added is `label`, the warning of a value that no longer holds, or an empty text.
"""


def reference() -> str:
    """The page as it should be."""
    entry = inspect.getdoc(Entry) or ""
    fields = " ".join(entry.partition("Keys: ")[2].replace("``", "`").split())
    head = _HEAD.format(entry=f"Records have {fields.removesuffix(' Times are unix seconds.')}")
    return "\n".join([head, *_global_options(), *_overview(), *(_section(name, each) for name, each in _commands())])


def _commands(group: click.Group = main, *names: str) -> Iterator[tuple[str, click.Command]]:
    for name in sorted(COMMANDS) if group is main else sorted(group.commands):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


def _global_options() -> Iterator[str]:
    yield "## Global options\n"
    yield (
        "They stand before the command. Commands on a memory also take `--json`, and `--vault`, `--user` and `--agent` "
        "once more, which then count.\n"
    )
    yield _options(main) + "\n"


def _overview() -> Iterator[str]:
    yield "## Commands\n"
    for name, (_, text) in sorted(COMMANDS.items()):
        anchor = next(each for each, _ in _commands() if each.split()[0] == name)
        yield f"* [`{name}`](#nanomem-{anchor.replace(' ', '-')}): {text}"
    yield ""


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"nanomem {name}")
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    parts = [f"## nanomem {name}\n", f"```text\n{usage}\n```\n", _prose(command.help or "")]
    options = _options(command)
    if options:
        parts.append(options + "\n")
    if isinstance(command, Command):
        if command.keys:
            parts.append(f"`--json` prints an object with {', '.join(f'`{key}`' for key in command.keys)}.\n")
        parts.append("```text\n" + "".join(f"$ {example}\n" for example in command.examples) + "```\n")
    return "\n".join(parts)


def _prose(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "".join(f"{' '.join(paragraph.split())}\n\n" for paragraph in paragraphs).rstrip("\n") + "\n"


def _options(command: click.Command) -> str:
    context = click.Context(command)
    shared = {"--json", "--vault", "--user", "--agent", "--help"} if isinstance(command, Command) else {"--help"}
    rows = [
        row
        for option in command.get_params(context)
        if isinstance(option, click.Option) and shared.isdisjoint(option.opts)
        if (row := option.get_help_record(context)) is not None
    ]
    if not rows:
        return ""
    lines = [f"| `{flags.replace('|', ' or ')}` | {text.replace('|', ' or ')} |" for flags, text in rows]
    return "\n".join(["| option | meaning |", "|---|---|", *lines])


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
