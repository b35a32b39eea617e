"""``nanomem stats``, ``inspect``, ``doctor``, ``compact`` and ``reembed``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..interfaces import Damage
from ..memory.removing import compact_storage
from .common import Session, echo_json, echo_result
from .opening import opened, opened_storage, progress_bar
from .options import COMPONENT, filter_option, memory_command
from .show import count, print_table, size

__all__ = ["compact", "doctor", "inspect", "reembed", "stats"]


@memory_command(
    "stats",
    keys=("storage", "path", "scope", "total_documents", "chains", "head", "embedder", "embed_dim", "mode"),
    examples=("nanomem stats", "nanomem stats --json"),
)
def stats(session: Session, as_json: bool) -> None:
    """Tell facts about the store: its size, how many records it holds, and whose vectors."""
    with opened(session, "read") as memory:
        facts = memory.stats()
    if as_json:
        echo_json(facts)
        return
    scope = facts.pop("scope")
    print_table(("fact", "value"), [*facts.items(), *scope.items()])


@memory_command(
    "inspect",
    keys=("total_documents", "kinds", "sources", "metadata_summary"),
    examples=("nanomem inspect", "nanomem inspect --filter source=cli"),
)
@filter_option()
def inspect(session: Session, as_json: bool, **options: Any) -> None:
    """Count the records by kind, source and metadata."""
    with opened(session, "read") as memory:
        report = memory.inspect(**options)
    if as_json:
        echo_json(report)
        return
    click.echo(count(report["total_documents"], "record"))
    rows = [("kind", *row) for row in _by_count(report["kinds"])]
    rows += [("source", *row) for row in _by_count(report["sources"])]
    for key, counts in sorted(report["metadata_summary"].items()):
        rows += [(key, *row) for row in _by_count(counts)[:10]]
    if rows:
        print_table(("what", "value", ">records"), rows)


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


@memory_command(
    "doctor",
    keys=("damage", "left", "quarantine"),
    examples=("nanomem doctor", "nanomem doctor backup.dat --repair"),
)
@click.argument("path", required=False)
@click.option("--repair", is_flag=True, help="Set damaged parts aside, and make the rest whole.")
@click.pass_context
def doctor(ctx: click.Context, session: Session, as_json: bool, path: str | None, repair: bool) -> None:
    """Read the whole store and list every damaged place; exit code 1 if there is any.

    With --repair damaged parts are moved to a .quarantine file beside the store; what can be read is never removed.
    """
    if path is not None:
        session.override("vault", path)
    with opened_storage(session, "change" if repair else "read") as storage:
        found = storage.repair() if repair else storage.check()
        left = storage.check() if repair else found
    quarantine = _quarantine(found) if repair else []
    if as_json:
        echo_json({"damage": [_as_json(each) for each in found], "left": len(left), "quarantine": quarantine})
    else:
        _print_damage(found or left)
        if repair and found:
            click.echo(f"Set aside {count(len(found), 'damaged place')} in {', '.join(quarantine)}; {len(left)} left.")
        elif repair and left:
            click.echo(f"{count(len(left), 'damaged place')}; nothing can be set aside without you.")
        elif found:
            click.echo(f"{count(len(found), 'damaged place')}; `nanomem doctor --repair` sets aside what it can.")
        else:
            click.echo("No damage was found.")
    ctx.exit(1 if left else 0)


def _quarantine(found: Sequence[Damage]) -> list[str]:
    """The files in which a repair puts what is damaged: they stand beside the store."""
    folders = {Path(damage.path).parent for damage in found}
    return sorted(str(path) for folder in folders for path in folder.glob("*.quarantine"))


def _as_json(damage: Damage) -> dict[str, Any]:
    return {name: getattr(damage, name) for name in ("path", "offset", "length", "what", "id", "lost")}


def _print_damage(found: Sequence[Damage]) -> None:
    if found:
        print_table(
            ("file", ">at byte", ">bytes", "record", "what"),
            [(each.path, each.offset, each.length, each.id, each.what) for each in found],
        )


@memory_command(
    "compact",
    keys=("bytes_regained",),
    examples=("nanomem compact",),
)
def compact(session: Session, as_json: bool) -> None:
    """Regain the room of deleted records, and drop their bytes from the file."""
    with opened_storage(session, "change") as storage:
        regained = compact_storage(storage)
    echo_result(as_json, {"bytes_regained": regained}, f"Regained {size(regained)}.")


@memory_command(
    "reembed",
    keys=("embedded", "embedder", "dim"),
    examples=(
        "nanomem reembed --to lexical",
        'nanomem reembed --to \'{"use": "lexical", "dim": 1024}\'',
    ),
)
@click.option(
    "--to",
    "--embedder",
    "to",
    type=COMPONENT,
    metavar="NAME|JSON",
    help="The embedder; the one of the settings by default.",
)
def reembed(session: Session, as_json: bool, to: Any) -> None:
    """Compute the vectors of all records anew with another embedder.

    The old vectors stay in use until all are done. If it is interrupted, the same command goes on where it stopped.
    """
    if to is not None:
        session.override("embedder", to)
    with opened(session, "change") as memory, progress_bar("embedding") as progress:
        number = memory.reembed(progress)
        embedder, dim = memory.embedder.id, memory.embedder.dim
    if as_json:
        echo_json({"embedded": number, "embedder": embedder, "dim": dim})
        return
    click.echo(f"Embedded {count(number, 'record')}; the store now holds vectors of {embedder} ({dim} dimensions).")
    if to is not None:
        click.echo("From now on the setting `embedder` must name it.")
