"""``nanomem delete``, ``forget``, ``prune`` and ``purge``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..memory import FORGET_FLOOR
from .common import Session, echo_json, echo_result, no_record
from .opening import opened
from .options import confirm, entity_option, filter_option, memory_command, yes_option
from .show import count, labelled, print_entries, size

__all__ = ["delete", "forget", "prune", "purge"]


@memory_command(
    "delete",
    keys=("deleted", "ids", "missing"),
    examples=(
        "nanomem delete 0190d1f3c2a4…",
        "nanomem delete --where project=trial",
        'nanomem delete --where \'{"timestamp": {"$lt": 1735689600}}\' --yes',
    ),
)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@filter_option("--where", help="Facts that match; may be repeated.")
@click.option("--source", metavar="NAME", help="Facts of this source, or of an ingested file (path or name).")
@yes_option
def delete(
    session: Session, as_json: bool, ids: Sequence[str], where: Mapping[str, Any] | None, source: str | None, yes: bool
) -> None:
    """Remove records by their ids, or all facts that match.

    They vanish from every answer, and the value before the newest is current again. Their bytes stay in the file until
    `nanomem compact`; `nanomem purge` removes a fact with its history at once.
    """
    chosen_by_description = where is not None or source is not None
    if bool(ids) == chosen_by_description:
        raise click.UsageError("give either ids, or --where and --source")
    with opened(session, "change") as memory:
        if chosen_by_description:
            facts = [parcel.record for parcel in memory.parcels(where, source) if parcel.record.kind == "fact"]
            ids = [record.id for record in facts]
            if ids:
                entries = [entry for id in ids[:10] if (entry := memory.get(id)) is not None]
                _show(entries, len(ids))
                confirm(f"Delete {count(len(ids), 'record')}?", yes)
        missing = [id for id in ids if not memory.exists(id)]
        number = memory.delete(ids=ids)
    if as_json:
        echo_json({"deleted": number, "ids": [id for id in ids if id not in missing], "missing": missing})
    elif number or not missing:
        click.echo(f"Deleted {count(number, 'record')}.")
    if missing:
        raise no_record(*missing)


@memory_command(
    "forget",
    keys=("deleted", "results"),
    examples=('nanomem forget "my locker code"', 'nanomem forget "my locker code" --top-k 3 --min-score 0.3 --yes'),
)
@click.argument("query")
@click.option("-k", "--top-k", type=click.IntRange(min=1), default=1, show_default=True, help="How many at most.")
@click.option(
    "--min-score",
    type=float,
    default=FORGET_FLOOR,
    show_default=True,
    metavar="COSINE",
    help="Least similarity; what fits worse stays.",
)
@filter_option()
@entity_option
@yes_option
def forget(session: Session, as_json: bool, query: str, yes: bool, **options: Any) -> None:
    """Delete what QUERY describes best, after showing it.

    Only the records shown are deleted; other values of the same fact stay.
    """
    with opened(session, "change") as memory:
        found = memory.forget(query, dry_run=True, **options)
        if found:
            print_entries(found, ids=True)
            confirm(f"Forget {count(len(found), 'record')}?", yes)
            memory.delete(ids=[hit.id for hit in found])
    if as_json:
        echo_json({"deleted": len(found), "results": labelled(found)})
    elif found:
        click.echo(f"Forgot {count(len(found), 'record')}.")
    else:
        click.echo(f"Nothing fits that well (cosine {options['min_score']:g} or more); nothing was deleted.")


@memory_command(
    "prune",
    keys=("deleted", "bytes_regained", "dry_run", "values", "text_bytes"),
    examples=(
        "nanomem prune --older-than 365 --dry-run",
        "nanomem prune --free 1000000 --filter source=log",
        "nanomem prune --superseded --keep 2",
    ),
)
@click.option(
    "--older-than", "older_than_days", type=click.FloatRange(min=0), metavar="DAYS", help="Facts of this age."
)
@click.option(
    "--free", "target_freed_bytes", type=click.IntRange(min=1), metavar="BYTES", help="The oldest, this much."
)
@click.option("--current-too", is_flag=True, help="Don't spare the newest value of each fact.")
@click.option("--superseded", is_flag=True, help="Only values that newer ones have replaced.")
@click.option(
    "--keep", type=click.IntRange(min=1), default=1, show_default=True, help="With --superseded: newest values to keep."
)
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
@filter_option()
@yes_option
def prune(
    session: Session,
    as_json: bool,
    superseded: bool,
    keep: int,
    older_than_days: float | None,
    target_freed_bytes: int | None,
    current_too: bool,
    dry_run: bool,
    filter: Mapping[str, Any] | None,
    yes: bool,
) -> None:
    """Delete old facts to make room, and compact the store.

    The newest value of each fact is spared unless you say --current-too.
    """
    if superseded and (target_freed_bytes is not None or current_too):
        raise click.UsageError("--superseded goes with --keep, --older-than and --filter only")
    if not superseded and target_freed_bytes is None and older_than_days is None:
        raise click.UsageError("give --older-than, --free or --superseded")
    values = text_bytes = None
    regained = 0
    with opened(session, "change") as memory:
        before = memory.stats()["total_documents"]
        cut: dict[str, Any] = {"older_than_days": older_than_days, "filter": filter}
        if superseded:
            cut["keep"] = keep
            preview = memory.forget_superseded(dry_run=True, **cut)
            values = preview["deleted"]
            doomed = f"{count(values, 'value')} of {count(preview['groups'], 'fact')}"
        else:
            cut |= {"target_freed_bytes": target_freed_bytes, "keep_current": not current_too}
            text_bytes = memory.prune(dry_run=True, **cut)
            doomed = f"facts with {size(text_bytes)} of text"
        found = bool(values or text_bytes)
        if found and not dry_run:
            confirm(f"Delete {doomed}?", yes)
            if superseded:
                memory.forget_superseded(**cut)
                regained = memory.compact()
            else:
                regained = memory.prune(**cut)
        deleted = before - memory.stats()["total_documents"]
    if as_json:
        report = {"dry_run": dry_run, "values": values, "text_bytes": text_bytes}
        echo_json({"deleted": deleted, "bytes_regained": regained, **report})
    elif not found:
        click.echo("Nothing is to be deleted.")
    elif dry_run:
        click.echo(f"This would delete {doomed}.")
    else:
        click.echo(f"Deleted {count(deleted, 'fact')}; regained {size(regained)}.")


@memory_command(
    "purge",
    keys=("purged",),
    examples=("nanomem purge 0190d1f3c2a4…", "nanomem purge 0190d1f3c2a4… --yes --json"),
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@yes_option
def purge(session: Session, as_json: bool, ids: Sequence[str], yes: bool) -> None:
    """Erase facts with their whole history, and what was derived from them.

    No byte of the text stays in any file of the store; copies elsewhere (exports, backups) are not reached. An empty
    marker keeps each id, so that its history says "purged".
    """
    with opened(session, "change") as memory:
        values = {entry.id: entry for id in ids for entry in memory.history(id=id) if entry.status != "purged"}
        erased: list[str] = []
        if values:
            _show(list(values.values())[-10:], len(values))
            confirm(f"Erase {count(len(values), 'record')}, and what was derived from them, for good?", yes)
            erased = memory.purge(list(values))
    done = f"Purged {count(len(erased), 'record')}." if erased else "They were purged before."
    echo_result(as_json, {"purged": erased}, done)


def _show(entries: Sequence[Mapping[str, Any]], total: int) -> None:
    print_entries(entries, ids=True)
    if len(entries) < total:
        click.echo(f"… {total - len(entries)} more")
