"""``nanomem add``, ``update``, ``retract`` and ``restore``."""

from __future__ import annotations

from typing import Any

import click

from ..errors import InputError, NotFoundError
from ..records import check_name
from .common import Session, echo_result, no_record, read_stdin
from .opening import opened, progress_bar
from .options import TIME, filter_option, memory_command, metadata_option

__all__ = ["add", "restore", "retract", "update"]


@memory_command(
    "add",
    keys=("ids",),
    examples=(
        'nanomem add "I work at Birch Labs" --entity employer',
        'nanomem add "I lived in Oslo" --entity city --timestamp 2021-05-01 --metadata project=home',
        "nanomem add --lines - < facts.txt",
    ),
)
@click.argument("text")
@click.option("--entity", metavar="NAME", help="The attribute that TEXT gives a value of, such as employer.")
@click.option("--timestamp", type=TIME, metavar="WHEN", help="When it became true; now by default.")
@click.option("--until", "valid_to", type=TIME, metavar="WHEN", help="When it ended, or will end.")
@metadata_option
@click.option("--source", default="cli", show_default=True, help="Where it comes from.")
@click.option("--id", metavar="ID", help="Its id; a fresh one by default.")
@click.option("--lines", is_flag=True, help="Each line of TEXT is a fact of its own.")
def add(session: Session, as_json: bool, text: str, lines: bool, **fields: Any) -> None:
    """Remember TEXT, and print its id; - reads the text from standard input.

    Name the attribute with --entity: values of one attribute make a chain, of which the newest is current. Without it,
    the attribute is guessed from the wording.
    """
    if text == "-":
        text = read_stdin()
    texts = [line.strip() for line in (text.splitlines() if lines else [text])]
    texts = [each for each in texts if each]
    if not texts:
        raise InputError("TEXT: expected something to remember; found an empty text")
    if fields["id"] is not None:
        check_name(fields["id"], "--id")
        if len(texts) > 1:
            raise click.UsageError("--id names one record, but --lines gives several")
    with opened(session, "create") as memory, progress_bar("remembering") as progress:
        ids = memory.add_many(({"text": each, **fields} for each in texts), progress=progress)
    echo_result(as_json, {"ids": ids}, "\n".join(ids))


@memory_command(
    "update",
    keys=("id", "version"),
    examples=(
        'nanomem update 0190d1f3c2a4… "I work at Birch Labs" --metadata checked=true',
        "nanomem update 0190d1f3c2a4… --entity employer",
    ),
)
@click.argument("id")
@click.argument("text", required=False)
@click.option("--entity", metavar="NAME", help="Move it to the chain of this attribute.")
@metadata_option
@click.option("--source", help="Where it comes from.")
@click.option("--expect", type=click.IntRange(min=1), metavar="VERSION", help="Only if this is still its version.")
def update(session: Session, as_json: bool, id: str, **fields: Any) -> None:
    """Mend the record ID in place: a typing error, more metadata.

    A value that has changed is a new `nanomem add`, which keeps the old one in the history. Metadata is merged over
    what is there.
    """
    if not any(fields[name] for name in ("text", "entity", "metadata", "source")) and fields["text"] is None:
        raise click.UsageError("give a TEXT, --entity, --metadata or --source to change")
    with opened(session, "change") as memory:
        if not memory.update(id, **fields):
            raise no_record(id)
        entry = memory.get(id)
    version = None if entry is None else entry.version
    echo_result(as_json, {"id": id, "version": version}, f"Updated {id}; its version is {version}.")


@memory_command(
    "retract",
    keys=("id",),
    examples=(
        'nanomem retract --entity gym --at 2026-02-28 --reason "cancelled"',
        "nanomem retract 0190d1f3c2a4…",
    ),
)
@click.argument("id", required=False)
@click.option("--entity", metavar="NAME", help="The attribute whose current value ended.")
@click.option("--at", type=TIME, metavar="WHEN", help="When it ended; now by default.")
@click.option("--reason", help="Kept in the metadata as retracted_because.")
@filter_option(help="Which chain of --entity, where several users or projects have one.")
def retract(session: Session, as_json: bool, id: str | None, entity: str | None, **options: Any) -> None:
    """State that a fact ended and nothing took its place.

    It stays in the history, marked ENDED; `nanomem restore` takes the statement back.
    """
    if (id is None) == (entity is None):
        raise click.UsageError("give either ID or --entity")
    with opened(session, "change") as memory:
        ended = memory.retract(id, entity=entity, **options)
    if ended is None:
        raise no_record(id) if id is not None else NotFoundError(f"no value of {entity!r} is current", id=entity)
    echo_result(as_json, {"id": ended}, f"Ended {ended}.")


@memory_command(
    "restore",
    keys=("id",),
    examples=("nanomem restore 0190d1f3c2a4…",),
)
@click.argument("id")
def restore(session: Session, as_json: bool, id: str) -> None:
    """Take back a `nanomem retract` of the record ID."""
    with opened(session, "change") as memory:
        if not memory.restore(id):
            raise no_record(id)
    echo_result(as_json, {"id": id}, f"Restored {id}.")
