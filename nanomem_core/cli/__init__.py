"""The ``nanomem`` command.

Sub-commands are imported when they are run, so that ``nanomem --help`` needs nothing but click. A command of another
distribution is an entry point of the group ``nanomem.commands``: its name is the sub-command, what it points to a click
command.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from .. import __version__
from ..hints import did_you_mean, one_line
from ..registry import discovery
from .common import Failure, Session, exit_code, logging_to_stderr, messages_for_errors

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "add": ("nanomem_core.cli.writing:add", "Remember a text."),
    "as-of": ("nanomem_core.cli.reading:as_of", "Answer a question as things were at a past time."),
    "ask": ("nanomem_core.cli.ask:ask", "Let a model answer from what is remembered."),
    "changes": ("nanomem_core.cli.insight:changes", "List what changed in a window of time."),
    "chat": ("nanomem_core.cli.chat:chat", "Talk, and have what matters remembered."),
    "compact": ("nanomem_core.cli.upkeep:compact", "Regain the room of deleted records."),
    "config": ("nanomem_core.cli.config:config", "Show the settings and where each comes from."),
    "context": ("nanomem_core.cli.reading:context", "Write what is remembered as a text for a prompt."),
    "conversation": ("nanomem_core.cli.conversation:conversation", "Remember conversations as episodes and facts."),
    "current": ("nanomem_core.cli.insight:current", "Show the value of each fact that holds."),
    "delete": ("nanomem_core.cli.removing:delete", "Remove records by id or by a filter."),
    "demo": ("nanomem_core.cli.demo:demo", "Show what it does, on a memory in a temporary folder."),
    "doctor": ("nanomem_core.cli.upkeep:doctor", "Check a store for damage, and repair it."),
    "entities": ("nanomem_core.cli.insight:entities", "List every attribute with its newest value."),
    "evaluate": ("nanomem_core.cli.evaluate:evaluate", "Measure retrieval and tagging."),
    "export": ("nanomem_core.cli.transfer:export", "Copy records to a file or another store."),
    "forget": ("nanomem_core.cli.removing:forget", "Delete what a question describes best."),
    "get": ("nanomem_core.cli.reading:get", "Show whole records by id."),
    "history": ("nanomem_core.cli.reading:history", "Show every value that one fact has had."),
    "import": ("nanomem_core.cli.transfer:import_", "Take over an export, another store, or a vault of nanomem 0.8."),
    "ingest": ("nanomem_core.cli.transfer:ingest", "Remember text files and folders."),
    "init": ("nanomem_core.cli.starting:init", "Write a settings file and make an empty memory."),
    "inspect": ("nanomem_core.cli.upkeep:inspect", "Count records by kind, source and metadata."),
    "merge": ("nanomem_core.cli.transfer:merge", "Bring the records of another store into this one's chains."),
    "migrate": ("nanomem_core.cli.migrate:migrate", "Bring an older layout of a store into that of today."),
    "plugins": ("nanomem_core.cli.plugins:plugins", "List, show and check plugins."),
    "prune": ("nanomem_core.cli.removing:prune", "Delete old facts to make room."),
    "purge": ("nanomem_core.cli.removing:purge", "Erase facts with their whole history."),
    "reembed": ("nanomem_core.cli.upkeep:reembed", "Compute all vectors anew with another embedder."),
    "restore": ("nanomem_core.cli.writing:restore", "Take back a retract."),
    "retract": ("nanomem_core.cli.writing:retract", "State that a fact ended without a successor."),
    "search": ("nanomem_core.cli.reading:search", "Find what answers a question best."),
    "split": ("nanomem_core.cli.transfer:split", "Copy or move a part of the memory to another store."),
    "stats": ("nanomem_core.cli.upkeep:stats", "Tell facts about the store."),
    "tag": ("nanomem_core.cli.tagging:tag", "Guess the attributes of stored statements once more."),
    "unmerge": ("nanomem_core.cli.transfer:unmerge", "Take out what a merge brought."),
    "update": ("nanomem_core.cli.writing:update", "Mend a record in place."),
    "user": ("nanomem_core.cli.users:user", "List, show and delete the memories of users."),
    "volatility": ("nanomem_core.cli.insight:volatility", "Tell how often each fact changes."),
}
"""Sub-command → where it is (``module:attribute``), and its line in the help."""


class _Main(click.Group):
    """A group whose commands are named in `COMMANDS` and by entry points, and whose errors become messages."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        def run() -> object:
            return super(_Main, self).main(args, prog_name or "nanomem", complete_var, standalone_mode=False, **extra)

        if not standalone_mode:
            return run()
        with _rare_collections():
            code = exit_code(run)
        return sys.exit(code)

    def invoke(self, ctx: click.Context) -> None:
        debug = ctx.params["debug"]
        with logging_to_stderr(debug), messages_for_errors(debug):
            super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_help_lines())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return _installed_command(cmd_name)
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"there is no command {args[0]!r}{did_you_mean(args[0], names)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_help_lines().items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        rows = _help_lines().items()
        commands = [CompletionItem(name, help=text) for name, text in rows if name.startswith(incomplete)]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cyclic garbage seldom, and not once more when the interpreter ends.

    What a command imports lives as long as the process. Looking through it takes a fifth of the time of a search.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, *before[1:])
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _help_lines() -> dict[str, str]:
    """Every command with its line in the help, by name; commands of other distributions from their metadata alone."""
    installed = {found.name: f"From {found.distribution}." for found in discovery.find(discovery.COMMANDS)}
    return dict(sorted((installed | {name: text for name, (_, text) in COMMANDS.items()}).items()))


def _installed_command(name: str) -> click.Command | None:
    found = [each for each in discovery.find(discovery.COMMANDS) if each.name == name]
    if not found:
        return None
    if len(found) > 1:
        raise Failure(
            f"the command {name!r} is brought by {' and '.join(each.origin for each in found)}; uninstall one"
        )
    title = f"the command {name!r} of {found[0].origin} can't be used"
    try:
        command = discovery.load(found[0])
    except (Exception, SystemExit) as error:
        raise Failure(f"{title}: {one_line(error)}") from error
    if not isinstance(command, click.Command):
        raise Failure(f"{title}: expected a click command at {found[0].value}; found {command!r}")
    return command


@click.group(
    "nanomem", cls=_Main, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="nanomem %(version)s")
@click.option("--config", metavar="FILE", help="Settings file, in place of ./nanomem.yaml.")
@click.option("--vault", metavar="PATH", help="Memory in this one file, whatever storage is set.")
@click.option("--user", metavar="NAME", help="Whose memory.")
@click.option("--agent", metavar="NAME", help="Which agent's memory of that user.")
@click.option("--debug", is_flag=True, help="Show tracebacks and debug messages.")
@click.pass_context
def main(
    ctx: click.Context, config: str | None, vault: str | None, user: str | None, agent: str | None, debug: bool
) -> None:
    """A memory that knows what changed."""
    ctx.obj = Session(config, vault, user, agent)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
