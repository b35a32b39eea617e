"""``nanomem search``, ``history``, ``as-of``, ``get`` and ``context``: what is remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..pipeline.context import estimate_tokens
from ..results import SearchResults
from .common import Session, echo_json, no_record
from .opening import opened
from .options import (
    TIME,
    as_of_option,
    entity_option,
    filter_option,
    ids_option,
    kind_option,
    known_at_option,
    memory_command,
    search_options,
)
from .show import count, date, labelled, others_told, plain, print_entries, print_table, shown_text, standing

__all__ = ["as_of", "context", "get", "history", "search"]

top_k_option = click.option("-k", "--top-k", type=click.IntRange(min=1), metavar="N", help="How many at most.")


@memory_command(
    "search",
    keys=(
        "query",
        "returned",
        "n_above_floor",
        "n_distinct_found",
        "truncated",
        "other_kinds",
        "sub_queries",
        "explain",
        "results",
    ),
    examples=(
        'nanomem search "where do I work?"',
        "nanomem search coffee -k 5 --min-score 0.2 --filter source=cli",
        'nanomem search "where do I work?" --known-at 2026-03-01',
    ),
)
@click.argument("query")
@top_k_option
@search_options
@filter_option()
@entity_option
@as_of_option
@known_at_option
@kind_option
@ids_option
def search(session: Session, as_json: bool, query: str, ids: bool, **options: Any) -> None:
    """Find what answers QUERY best, with the standing of each value.

    A value that was replaced or has ended is marked SUPERSEDED or ENDED.
    """
    with opened(session, "ask") as memory:
        found = memory.search(query, **options)
    _print_hits(found, as_json, ids)


def _print_hits(found: SearchResults, as_json: bool, ids: bool, **extra: Any) -> None:
    if as_json:
        echo_json(
            {
                **extra,
                "query": found.summary["query"],
                "returned": found.returned,
                "n_above_floor": found.n_above_floor,
                "n_distinct_found": found.n_distinct_found,
                "truncated": found.truncated,
                "other_kinds": found.other_kinds,
                "sub_queries": found.sub_queries,
                "explain": found.explain(),
                "results": labelled(found),
            }
        )
        return
    headers = [">#", "date (UTC)", "standing", "text", ">score", "source", *(["id"] if ids else [])]
    rows = [
        [number, date(hit.timestamp), standing(hit), shown_text(hit), f"{hit.score:.3f}", hit.source, hit.id]
        for number, hit in enumerate(found, 1)
    ]
    if rows:
        print_table(headers, (row[: len(headers)] for row in rows))
    else:
        click.echo("Nothing was found.")
    if found.other_kinds:
        click.echo(others_told(found.other_kinds))
    elif found.explain():
        click.echo(found.explain())


@memory_command(
    "history",
    keys=("total", "returned", "results"),
    examples=(
        'nanomem history "where do I work?"',
        "nanomem history --entity employer --max 2",
    ),
)
@click.argument("query", required=False)
@click.option("--id", metavar="ID", help="The fact that this record is a value of.")
@entity_option
@click.option("-n", "--max", "most", type=click.IntRange(min=1), metavar="N", help="Only the newest values, this many.")
@filter_option(help="Only facts that match; may be repeated.")
@as_of_option
@known_at_option
@ids_option
def history(session: Session, as_json: bool, most: int | None, ids: bool, **options: Any) -> None:
    """Show every value that one fact has had, the oldest first.

    Name the fact by a QUERY that finds it, by --entity, or by the --id of one of its values.
    """
    if sum(options[name] is not None for name in ("query", "id", "entity")) != 1:
        raise click.UsageError("give one of QUERY, --id and --entity")
    with opened(session, "ask" if options["query"] else "read") as memory:
        values = memory.history(**options)
    shown = values if most is None else values[-most:]
    if as_json:
        echo_json({"total": len(values), "returned": len(shown), "results": labelled(shown)})
        return
    if not values:
        click.echo("No such fact is remembered.")
        return
    print_entries(shown, ids=ids)
    if len(shown) < len(values):
        click.echo(f"The newest {len(shown)} of {count(len(values), 'value')}.")
    elif len(values) == 1:
        click.echo(_single(values[0]))
    else:
        click.echo(f"{count(len(values), 'value')}.")


def _single(value: Any) -> str:
    if value.status == "purged":
        return "This fact was purged; nothing of its text is left."
    if value.entity is None:
        return "1 value. It belongs to no chain, so nobody knows whether it has changed."
    if not value.declared:
        return "1 value. Its attribute was guessed from the wording, so other values may stand elsewhere."
    return "1 value: nothing has replaced it."


@memory_command(
    "as-of",
    keys=("as_of", "results"),
    examples=(
        'nanomem as-of 2026-03-01 "where do I work?"',
        "nanomem as-of 2026-03-01",
    ),
)
@click.argument("when", type=TIME)
@click.argument("query", required=False)
@top_k_option
@search_options
@filter_option()
@entity_option
@known_at_option
@ids_option
def as_of(
    session: Session,
    as_json: bool,
    when: float,
    query: str | None,
    ids: bool,
    filter: Mapping[str, Any] | None,
    entity: str | None,
    known_at: float | None,
    **options: Any,
) -> None:
    """Answer QUERY as things were at WHEN; without QUERY, every fact that held then.

    WHEN is a date or time such as 2026-03-01 or 2026-03-01T09:30:00Z, or a number of unix seconds. What names no zone
    is UTC.
    """
    where: dict[str, Any] = {"as_of": when, "filter": filter, "entity": entity, "known_at": known_at}
    if query is not None:
        with opened(session, "ask") as memory:
            found = memory.search(query, **where, **options)
        if not as_json:
            click.echo(f"As of {date(when)}:")
        _print_hits(found, as_json, ids, as_of=when)
        return
    with opened(session, "read") as memory:
        values = memory.current(**where)
    if as_json:
        echo_json({"as_of": when, "results": labelled(values)})
    else:
        click.echo(f"As of {date(when)}:")
        print_entries(values, "No fact held then.", ids=ids)


@memory_command(
    "get",
    keys=("results", "missing"),
    examples=("nanomem get 0190d1f3c2a4…", "nanomem get meeting-notes --json"),
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def get(session: Session, as_json: bool, ids: Sequence[str]) -> None:
    """Show whole records by their ids."""
    with opened(session, "read") as memory:
        found = [memory.get(id) for id in ids]
    missing = [id for id, entry in zip(ids, found, strict=True) if entry is None]
    entries = [entry for entry in found if entry is not None]
    if as_json:
        echo_json({"results": labelled(entries), "missing": missing})
    else:
        for number, entry in enumerate(entries):
            if number:
                click.echo()
            _print_record(entry)
    if missing:
        raise no_record(*missing)


def _print_record(entry: Any) -> None:
    rows = {
        "id": entry.id,
        "kind": entry.kind,
        "entity": entry.entity and f"{entry.entity} ({'declared' if entry.declared else 'inferred'})",
        "standing": standing(entry),
        "true from": date(entry.timestamp),
        "true to": date(entry.valid_to),
        "recorded": date(entry.recorded_at),
        "revision": entry.revision,
        "version": entry.version,
        "source": entry.source,
        **{f"metadata {key}": value for key, value in entry.metadata.items()},
    }
    for name, value in rows.items():
        if value not in (None, ""):
            click.echo(plain(f"{name}: {value}"))
    click.echo(plain(entry.text))


@memory_command(
    "context",
    keys=("query", "tokens", "text"),
    examples=(
        "nanomem context",
        'nanomem context "what can I cook tonight?" --max-tokens 500',
    ),
)
@click.argument("query", required=False)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=0),
    default=2000,
    show_default=True,
    metavar="N",
    help="Length at most, estimated from the characters.",
)
@click.option(
    "--guaranteed",
    multiple=True,
    default=("correction",),
    show_default=True,
    metavar="CATEGORY",
    help="A category whose facts come first; may be repeated.",
)
@filter_option()
@as_of_option
@known_at_option
def context(session: Session, as_json: bool, query: str | None, **options: Any) -> None:
    """Write what is remembered as a text for a prompt: summaries, then facts.

    With QUERY the facts that answer it best come first, without it those of the highest confidence. Values that no
    longer hold are left out, unless QUERY asks about the past.
    """
    with opened(session, "read" if query is None else "ask") as memory:
        text = memory.context(query, **options)
    if as_json:
        echo_json({"query": query, "tokens": estimate_tokens(text), "text": text})
    elif text:
        click.echo(plain(text))
