"""``nanomem changes``, ``volatility``, ``current`` and ``entities``: what the chains tell without a question."""

from __future__ import annotations

from typing import Any

import click

from .common import Session, echo_json
from .opening import opened
from .options import TIME, as_of_option, entity_option, filter_option, ids_option, known_at_option, memory_command
from .show import date, duration, labelled, print_entries, print_table, shown_text

__all__ = ["changes", "current", "entities", "volatility"]

_BEGINNING = "0001-01-01"


@memory_command(
    "changes",
    keys=("results",),
    examples=(
        "nanomem changes --since 2026-01-01",
        "nanomem changes --since 2026-01-01 --until 2026-02-01 --entity employer",
    ),
)
@click.option("--since", type=TIME, default=_BEGINNING, metavar="WHEN", help="Only later ones; all by default.")
@click.option("--until", type=TIME, metavar="WHEN", help="Only up to this time, itself included.")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="The oldest ones, this many at most.")
@filter_option()
@entity_option
@known_at_option
def changes(session: Session, as_json: bool, **options: Any) -> None:
    """List what became true, changed or ended in a window of time, the oldest first."""
    with opened(session, "read") as memory:
        found = memory.changes(**options)
    if as_json:
        echo_json({"results": labelled(found)})
        return
    if not found:
        click.echo("Nothing changed.")
        return
    rows = [(date(e.at), e.change, e.entity, shown_text(e), e.previous_text) for e in found]
    print_table(("date (UTC)", "change", "entity", "text", "instead of"), rows)


@memory_command(
    "volatility",
    keys=("results",),
    examples=("nanomem volatility", "nanomem volatility --min-revisions 1 --filter project=home"),
)
@click.option(
    "--min-revisions",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Only facts that have had this many values.",
)
@filter_option()
@entity_option
@as_of_option
@known_at_option
def volatility(session: Session, as_json: bool, **options: Any) -> None:
    """Tell how often each fact changes, and for how long its value has stood unconfirmed; the longest first."""
    with opened(session, "read") as memory:
        rows = memory.volatility(**options)
    if as_json:
        echo_json({"results": rows})
        return
    if not rows:
        click.echo(f"No fact has had {options['min_revisions']} values.")
        return
    print_table(
        ("fact", ">values", ">changes every", "last change (UTC)", ">unconfirmed for"),
        [
            (
                _chain(row),
                row["n_revisions"],
                duration(row["median_interval"]),
                date(row["last_ts"]),
                duration(row["age"]),
            )
            for row in rows
        ],
    )


@memory_command(
    "current",
    keys=("results",),
    examples=("nanomem current", "nanomem current --entity employer --as-of 2026-03-01"),
)
@filter_option()
@entity_option
@as_of_option
@known_at_option
@ids_option
def current(session: Session, as_json: bool, ids: bool, **options: Any) -> None:
    """Show the value of each fact that holds now, or at the asked time."""
    with opened(session, "read") as memory:
        values = memory.current(**options)
    if as_json:
        echo_json({"results": labelled(values)})
    else:
        print_entries(values, "No fact with an attribute is current.", ids=ids)


@memory_command(
    "entities",
    keys=("results",),
    examples=("nanomem entities", "nanomem entities --filter project=home"),
)
@filter_option()
def entities(session: Session, as_json: bool, **options: Any) -> None:
    """List every attribute that has values, with its newest one."""
    with opened(session, "read") as memory:
        rows = memory.entities(**options)
    if as_json:
        echo_json({"results": rows})
        return
    if not rows:
        click.echo("No attribute has a value.")
        return
    print_table(
        ("fact", "named by", ">values", "last change (UTC)", "newest value"),
        [
            (
                _chain(row),
                "caller" if row["declared"] else "tagger",
                row["n_revisions"],
                date(row["last_ts"]),
                " ".join((row["text"] or "").split()),
            )
            for row in rows
        ],
    )


def _chain(row: dict[str, Any]) -> str:
    """The entity, with the user and the project that keep its chain apart."""
    keys = [f"{name}={row[name]}" for name in ("user_id", "project") if row[name] is not None]
    return f"{row['entity']} ({', '.join(keys)})" if keys else str(row["entity"])
