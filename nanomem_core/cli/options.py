"""What the commands on a memory have in common: their form, their options, and the question before something goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ..config.model import component
from ..errors import FilterError, TimeError
from ..filters import parse_filter
from ..pipeline.search import MODES
from ..records import KINDS
from ..times import parse_time
from .common import Failure, Session, json_option, pass_session

__all__ = [
    "COMPONENT",
    "TIME",
    "Command",
    "as_of_option",
    "confirm",
    "entity_option",
    "filter_option",
    "generator_option",
    "ids_option",
    "kind_option",
    "known_at_option",
    "memory_command",
    "metadata_option",
    "search_options",
    "yes_option",
]

Decorator = Callable[[Any], Any]


class Command(click.Command):
    """A command whose help ends with `keys`, those of what ``--json`` prints, and `examples`, lines for the shell."""

    def __init__(self, *args: Any, examples: Sequence[str], keys: Sequence[str] = (), **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.examples = tuple(examples)
        self.keys = tuple(keys)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.keys:
            formatter.write_paragraph()
            formatter.write_text(f"--json prints an object with {', '.join(self.keys)}.")
        formatter.write_paragraph()
        formatter.write("Examples:\n")
        for example in self.examples:
            formatter.write(f"  $ {example}\n")


def memory_command(
    name: str, *, examples: Sequence[str], keys: Sequence[str] = (), group: click.Group | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function of (session, as_json, …): with ``--json``, and the global options once more, so that
    they may also stand after the command."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        command = click.command(name, cls=Command, keys=keys, examples=examples)(pass_session(function))
        json_option(command)
        for flag, metavar, help in _GLOBAL_OPTIONS:
            command.params.append(
                click.Option([flag], metavar=metavar, help=help, expose_value=False, callback=_override)
            )
        if group is not None:
            group.add_command(command)
        return command

    return decorate


_GLOBAL_OPTIONS = (
    ("--vault", "PATH", "Memory in this one file, whatever storage is set."),
    ("--user", "NAME", "Whose memory."),
    ("--agent", "NAME", "Which agent's memory of that user."),
)


def _override(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    session = ctx.find_object(Session)
    if session is not None and value is not None:
        session.override(str(param.name), value)


class _Time(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_time(value, "time")
        except TimeError as error:
            self.fail(str(error), param, ctx)


TIME = _Time()
"""Unix seconds of what `parse_time` reads."""


class _Component(click.ParamType):  # type: ignore[type-arg]
    name = "component"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return component(json.loads(value)) if str(value).lstrip().startswith("{") else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


COMPONENT = _Component()
"""A component setting: a name, or a JSON object with `use` and options."""


class _Assignments(click.ParamType):  # type: ignore[type-arg]
    """A mapping, given as a JSON object or as ``key=value``."""

    def __init__(self, name: str, read_value: Callable[[str], Any]) -> None:
        self.name = name
        self._read_value = read_value

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, Mapping):
            return dict(value)
        if value.lstrip().startswith("{"):
            try:
                return dict(json.loads(value))
            except ValueError as error:
                self.fail(f"expected a JSON object; {error}", param, ctx)
        key, equals, text = value.partition("=")
        if not equals or not key:
            self.fail(f"expected key=value or a JSON object; found {value!r}", param, ctx)
        return {key: self._read_value(text)}


def _json_or_text(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return json.loads(text, parse_constant=refuse)
    except ValueError:
        return text


def _filter_value(text: str) -> Any:
    # A number in a filter is left as a text, which matches a stored number with that text as well.
    value = _json_or_text(text)
    return text if isinstance(value, (int, float, str)) and not isinstance(value, bool) else value


_METADATA = _Assignments("metadata", _json_or_text)
_FILTER = _Assignments("filter", _filter_value)


def _joined_filter(
    ctx: click.Context, param: click.Parameter, values: Sequence[dict[str, Any]]
) -> dict[str, Any] | None:
    if not values:
        return None
    joined = values[0] if len(values) == 1 else {"$and": list(values)}
    try:
        parse_filter(joined, param.opts[0])
    except FilterError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return joined


def _merged_metadata(ctx: click.Context, param: click.Parameter, values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for each in values for key, value in each.items()}


def filter_option(flag: str = "--filter", help: str = "Only records that match; may be repeated.") -> Decorator:
    """A filter, joined from all that are given, or None."""
    return click.option(flag, type=_FILTER, metavar="KEY=VALUE|JSON", multiple=True, callback=_joined_filter, help=help)


metadata_option: Decorator = click.option(
    "--metadata",
    type=_METADATA,
    metavar="KEY=VALUE|JSON",
    multiple=True,
    callback=_merged_metadata,
    help="Metadata to store; may be repeated. A value that is JSON is stored as such.",
)
entity_option: Decorator = click.option("--entity", metavar="NAME", help="Only values of this attribute.")
as_of_option: Decorator = click.option("--as-of", type=TIME, metavar="WHEN", help="Only what was true by then.")
known_at_option: Decorator = click.option(
    "--known-at", type=TIME, metavar="WHEN", help="Only what the memory had been told by then."
)
generator_option: Decorator = click.option(
    "--generator",
    type=COMPONENT,
    metavar="NAME|JSON",
    expose_value=False,
    callback=_override,
    help="The model that answers, in place of the one that is set.",
)
kind_option: Decorator = click.option(
    "--kind",
    type=click.Choice([*(kind for kind in KINDS if kind != "purged"), "all"]),
    default="fact",
    show_default=True,
    callback=lambda ctx, param, value: None if value == "all" else value,
    help="Kind of record.",
)
ids_option: Decorator = click.option("--ids", is_flag=True, help="Also show the ids.")
yes_option: Decorator = click.option("-y", "--yes", is_flag=True, help="Don't ask.")


_HOW_TO_SEARCH = (
    click.option("--mode", type=click.Choice(MODES), help="Rank by vectors, by words (text), or by both (hybrid)."),
    click.option(
        "--min-score", type=float, default=0.0, metavar="COSINE", help="Least similarity of what may be found."
    ),
    click.option(
        "--neighbours/--no-neighbours",
        default=None,
        help="Let each record gain from those that were told just before and after it: for turns of conversations.",
    ),
    click.option("--multihop", is_flag=True, help="Search once more for what the first hits mention."),
)


def search_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How to search, for all commands that do: what is not given is as the settings say."""
    for option in reversed(_HOW_TO_SEARCH):
        function = option(function)
    return function


def confirm(question: str, yes: bool) -> None:
    """Ask on stderr, unless `yes`; anything but y or yes ends the command with exit code 1."""
    if yes:
        return
    click.echo(f"{question} [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not (sys.stdin.isatty() and answer.endswith("\n")):
        click.echo(err=True)
    if answer.strip().casefold() not in ("y", "yes"):
        raise Failure(
            "nothing was changed" + ("" if answer else "; there was nobody to ask: --yes goes without asking")
        )
