"""The ``nanomem`` command.

Sub-commands are imported when they are run, so that ``nanomem --help`` needs nothing but click. A command of another
distribution is an entry point of the group ``nanomem.commands``: its name is the sub-command, its value a click command.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from pathlib import Path

import click

from ..registry.discovery import COMMANDS as COMMANDS_GROUP
from ..registry.discovery import Found, find, load
from .common import Failure, Session, reporting, run, short

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "config": ("nanomem_core.cli.config:config", "Show the settings and where each comes from."),
    "plugins": ("nanomem_core.cli.plugins:plugins", "List, show and check plugins."),
}
"""Sub-command → where it is (``module:attribute``), and its line in the help."""


class _Main(click.Group):
    """A group whose commands are named in `COMMANDS` and by entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *(found.name for found in find(COMMANDS_GROUP))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module, _, attribute = COMMANDS[cmd_name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(module), attribute)
            return command
        found = [each for each in find(COMMANDS_GROUP) if each.name == cmd_name]
        return _installed(found) if found else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click looks for near names in this table, which would stay empty.
        self.commands = dict.fromkeys(self.list_commands(ctx), click.Command(None))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, text) for name, (_, text) in COMMANDS.items()]
        rows += [(each.name, f"From {each.distribution}.") for each in find(COMMANDS_GROUP) if each.name not in COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))
