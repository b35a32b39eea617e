"""``nanomem plugins``: which plugins there are, what they offer, and what is wrong with them."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from typing import Any

import click

from ..config.model import masked
from ..errors import NotFoundError
from ..hints import did_you_mean
from ..masking import MASK
from ..registry import discovery
from ..registry.components import Offer
from ..registry.options import Options
from ..registry.report import PluginStatus
from . import COMMANDS
from .common import Session, echo_json, json_option, pass_session
from .show import print_table

__all__ = ["plugins"]


@click.group()
def plugins() -> None:
    """List, show and check plugins."""


@plugins.command("list")
@json_option
@pass_session
def list_(session: Session, as_json: bool) -> None:
    """List every plugin, its state, and what it offers."""
    offers = _offers(session)
    statuses = session.plugins.statuses
    if as_json:
        echo_json([asdict(status) | {"components": _names(status, offers)} for status in statuses])
    else:
        _print_statuses(statuses, offers)
    # Strict settings make what is listed as failed an error, after the list.
    session.plugins.load()


@plugins.command()
@click.argument("name")
@json_option
@pass_session
def show(session: Session, name: str, as_json: bool) -> None:
    """Show one plugin with its hooks, its components and their options."""
    offers = _offers(session)
    statuses = {status.name: status for status in session.plugins.statuses}
    if name not in statuses:
        raise NotFoundError(f"there is no plugin {name!r}{did_you_mean(name, statuses)}", id=name)
    status = statuses[name]
    hooks = session.plugins.hooks(name)
    components = [(offer.kind, offer.name, _described(offer)) for offer in offers if offer.plugin == name]
    if as_json:
        parts = [{"kind": kind, "name": part, "options": options} for kind, part, options in components]
        echo_json(asdict(status) | {"hooks": hooks, "components": parts})
        return
    click.echo(str(status))
    click.echo(f"hooks: {', '.join(hooks) or 'none'}")
    for kind, part, options in components:
        click.echo(f"{kind} {part}")
        for option in options:
            default = "required" if option["required"] else f"default {option['default']!r}"
            click.echo(f"  {option['name']}: {option['type']}, {default}")


@plugins.command()
@json_option
@pass_session
@click.pass_context
def check(ctx: click.Context, session: Session, as_json: bool) -> None:
    """Tell everything that is wrong with the installed plugins; exit code 1 if anything is."""
    offers = _offers(session)
    problems = session.plugins.problems() + _command_problems()
    if as_json:
        echo_json({"problems": problems})
    else:
        for problem in problems:
            click.echo(problem)
        if not problems:
            click.echo(f"{len(session.plugins.statuses)} plugins offer {len(offers)} components; nothing is wrong.")
    ctx.exit(1 if problems else 0)


def _offers(session: Session) -> list[Offer]:
    # Components are imported here, and must not print among the results.
    with contextlib.redirect_stdout(sys.stderr):
        return session.plugins.offers


def _names(status: PluginStatus, offers: list[Offer]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for offer in offers:
        if offer.plugin == status.name:
            names.setdefault(offer.kind, []).append(offer.name)
    return names


def _print_statuses(statuses: list[PluginStatus], offers: list[Offer]) -> None:
    rows = []
    for status in statuses:
        offered = (f"{kind} {name}" for kind, names in _names(status, offers).items() for name in names)
        state = (status.name, status.distribution, status.version, status.state)
        rows.append((*state, ", ".join(offered), status.detail))
    print_table(("plugin", "distribution", "version", "state", "offers", "detail"), rows)


def _described(offer: Offer) -> list[dict[str, Any]]:
    """The options of a component as JSON types, in the order of its constructor."""
    described = []
    for option in Options(offer.cls).declared:
        row = {"name": option.name, "type": option.type_name, "required": option.required, "secret": option.secret}
        if not option.required:
            row["default"] = MASK if option.secret and option.default is not None else masked(option.default)
        described.append(row)
    return described


def _command_problems() -> list[str]:
    problems = []
    seen = dict.fromkeys(COMMANDS, "nanomem-core")
    for found in discovery.find(discovery.COMMANDS):
        if found.name in seen:
            problems.append(f"the command {found.name!r} of {found.origin} is brought by {seen[found.name]} too")
        seen.setdefault(found.name, found.origin)
    return problems
