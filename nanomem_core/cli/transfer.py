"""``nanomem ingest``, ``import``, ``export``, ``merge``, ``unmerge`` and ``split``: files in and out."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import InputError, NotFoundError
from ..memory import Memory
from ..pipeline.jsonlines import is_json_lines
from .common import Failure, Session, echo_json, echo_result, warn
from .opening import opened, progress_bar, storage_place
from .options import TIME, filter_option, memory_command, metadata_option
from .show import count

__all__ = ["export", "import_", "ingest", "merge", "split", "unmerge"]

source_doc_option = click.option(
    "--source-doc", metavar="NAME", help="Only records of this source, or ingested file (path or name)."
)
before_option = click.option("--before", type=TIME, metavar="WHEN", help="Only what became true before.")
after_option = click.option("--after", type=TIME, metavar="WHEN", help="Only what became true then or later.")


@memory_command(
    "ingest",
    keys=("files_indexed", "chunks_indexed", "skipped_unchanged", "failed"),
    examples=(
        "nanomem ingest notes.md",
        "nanomem ingest docs/ --extension md --extension txt --metadata project=manual",
    ),
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--extension", "extensions", multiple=True, help="Of a folder: only files with this ending; repeatable.")
@click.option(
    "--ignore", "ignore_dirs", multiple=True, metavar="NAME", help="Of a folder: leave out subfolders; repeatable."
)
@click.option(
    "--lines",
    "lines_per_chunk",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Of plain text: lines of a section.",
)
@click.option(
    "--overlap", "overlap_lines", type=click.IntRange(min=0), default=10, show_default=True, help="Lines they share."
)
@metadata_option
def ingest(
    session: Session,
    as_json: bool,
    paths: Sequence[Path],
    extensions: Sequence[str],
    ignore_dirs: Sequence[str],
    lines_per_chunk: int,
    overlap_lines: int,
    metadata: Mapping[str, Any],
) -> None:
    """Remember text files, section by section; of a folder, all that can be read.

    A file that is unchanged since it was read is skipped; of a changed one the old sections are replaced.
    """
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise NotFoundError(f"there is no file or folder {', '.join(missing)}", id=missing[0])
    report: dict[str, Any] = {"files_indexed": 0, "chunks_indexed": 0, "skipped_unchanged": 0, "failed": {}}
    with opened(session, "create") as memory, progress_bar("reading") as progress:
        for path in paths:
            if path.is_dir():
                part = memory.ingest_directory(
                    path,
                    extensions or None,
                    ignore_dirs or None,
                    metadata=metadata,
                    progress=lambda done, total, _: progress(done, total),
                )
            else:
                part = _ingest_file(memory, path, lines_per_chunk, overlap_lines, metadata)
            for key, value in part.items():
                report[key] = {**report[key], **value} if key == "failed" else report[key] + value
    for name, reason in report["failed"].items():
        warn(f"not read: {name}: {reason}")
    if as_json:
        echo_json(report)
    else:
        unchanged = f"; {count(report['skipped_unchanged'], 'file')} unchanged" if report["skipped_unchanged"] else ""
        files, sections = count(report["files_indexed"], "file"), count(report["chunks_indexed"], "section")
        click.echo(f"Read {files}, {sections}{unchanged}.")
    if report["failed"]:
        raise Failure(f"{count(len(report['failed']), 'file')} could not be read")


def _ingest_file(memory: Memory, path: Path, lines: int, overlap: int, metadata: Mapping[str, Any]) -> dict[str, Any]:
    head = memory.storage.head(memory.scope)
    try:
        sections = memory.ingest_file(path, lines, overlap, metadata)
    except InputError as error:
        return {"failed": {str(path): str(error)}}
    if memory.storage.head(memory.scope) == head:
        return {"skipped_unchanged": 1}
    return {"files_indexed": 1, "chunks_indexed": sections}


@memory_command(
    "import",
    keys=("incoming", "added", "skipped", "renamed", "notes"),
    examples=(
        "nanomem import backup.jsonl",
        "nanomem import other.dat --user ann",
        "nanomem import nanomem old.dat --password-stdin < password.txt",
    ),
)
@click.argument("what", nargs=-1, required=True, metavar="[nanomem] FILE")
@click.option("--password-stdin", is_flag=True, help="nanomem: the password is the first line of standard input.")
@click.option(
    "--keep-vectors", is_flag=True, help="nanomem: the old vectors are those of the embedder that is set here."
)
def import_(session: Session, as_json: bool, what: Sequence[str], password_stdin: bool, keep_vectors: bool) -> None:
    """Take over an export (.jsonl), another store of this kind, or a vault of the package nanomem 0.8.

    Records keep their ids, times and users; --user and --agent put them all into one memory. What is here already is
    skipped, so an interrupted import can be repeated.
    """
    old = len(what) == 2 and what[0] == "nanomem"
    if len(what) != (2 if old else 1):
        raise click.UsageError("expected FILE, or nanomem FILE")
    if not old and (password_stdin or keep_vectors):
        raise click.UsageError("--password-stdin and --keep-vectors go with `import nanomem FILE`")
    path = what[-1]
    if not Path(path).exists():
        raise NotFoundError(f"{path}: there is no such file to import", id=path)
    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else None
    report: dict[str, Any]
    with opened(session, "create") as memory, progress_bar("importing") as progress:

        def tell(done: int) -> None:
            progress(done, None)

        if old:
            report = memory.import_nanomem(
                path, password, keep_vectors=keep_vectors, **session.named_scope, progress=tell
            )
        else:
            report = {**memory.import_(path, **session.named_scope, progress=tell), "notes": []}
    if as_json:
        echo_json(report)
        return
    click.echo(
        f"Imported {report['added']} of {count(report['incoming'], 'record')}; "
        f"{report['skipped']} were here already, {report['renamed']} got a new id."
    )
    for rule, id, detail in report["notes"]:
        warn(f"{rule}: {id or path}: {detail}")


@memory_command(
    "export",
    keys=("exported", "target"),
    examples=(
        "nanomem export backup.jsonl --all-scopes",
        "nanomem export work.jsonl --where project=work",
        "nanomem export archive.dat --before 2025-01-01",
    ),
)
@click.argument("target", type=click.Path(path_type=Path))
@filter_option("--where", help="Only records that match; may be repeated.")
@source_doc_option
@before_option
@after_option
@click.option("--all-scopes", is_flag=True, help="The memories of all users and agents.")
@click.option("--force", is_flag=True, help="Replace a .jsonl file that exists.")
def export(session: Session, as_json: bool, target: Path, force: bool, **options: Any) -> None:
    """Copy records, wholly: to a .jsonl file, or into another store at TARGET.

    The .jsonl form holds everything: times, revisions, entities, metadata and vectors. `nanomem import` reads it.
    """
    if str(target) == "-":
        raise click.UsageError("TARGET is a file; an export can't go to standard output")
    _check_other(session, target)
    if is_json_lines(target) and target.exists() and not force:
        raise InputError(f"{target}: exists already; --force replaces it")
    with opened(session, "read") as memory:
        number = memory.export(target, **options)
    echo_result(
        as_json, {"exported": number, "target": str(target)}, f"Exported {count(number, 'record')} to {target}."
    )


@memory_command(
    "merge",
    keys=("incoming", "added", "duplicates_skipped"),
    examples=("nanomem merge phone.dat --dedup", "nanomem merge team.dat --project team-x --user-id ann"),
)
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--user-id", "incoming_user_id", metavar="NAME", help="Stamp the records with this user_id.")
@click.option("--project", "incoming_project", metavar="NAME", help="Stamp them with this project.")
@click.option("--dedup", "deduplicate", is_flag=True, help="Skip texts that their chain holds already.")
def merge(session: Session, as_json: bool, source: Path, **options: Any) -> None:
    """Bring the records of another store into the chains of this one.

    Each is stamped with source_vault, so that `nanomem unmerge` can take them out again.
    """
    _check_other(session, source)
    with opened(session, "change") as memory:
        report = memory.merge(source, **options)
    echo_result(
        as_json,
        report,
        f"Merged {report['added']} of {count(report['incoming'], 'record')}; "
        f"{report['duplicates_skipped']} were here already.",
    )


@memory_command(
    "unmerge",
    keys=("removed",),
    examples=("nanomem unmerge phone.dat", "nanomem unmerge team-x --to team.dat"),
)
@click.argument("name")
@click.option("--to", "target", type=click.Path(path_type=Path), metavar="TARGET", help="Copy them there first.")
def unmerge(session: Session, as_json: bool, name: str, target: Path | None) -> None:
    """Remove what `nanomem merge` brought from the file NAME, or into the project NAME."""
    if target is not None:
        _check_other(session, target)
    with opened(session, "change") as memory:
        number = memory.unmerge(name, target)
    echo_result(as_json, {"removed": number}, f"Removed {count(number, 'record')}.")


@memory_command(
    "split",
    keys=("targets", "purged"),
    examples=(
        "nanomem split --where project=work work.dat --purge",
        "nanomem split --key project projects/",
        "nanomem split --before 2024-01-01 archive.dat",
    ),
)
@click.argument("target", type=click.Path(path_type=Path))
@filter_option("--where", help="Records that match; may be repeated.")
@click.option("--key", metavar="KEY", help="A store for each value of this metadata key; TARGET is their folder.")
@source_doc_option
@before_option
@after_option
@click.option("--purge", is_flag=True, help="Delete here what was copied.")
def split(
    session: Session,
    as_json: bool,
    target: Path,
    where: Mapping[str, Any] | None,
    key: str | None,
    purge: bool,
    **chosen: Any,
) -> None:
    """Copy a part of the memory to another store; with --purge, move it."""
    described = where is not None or any(value is not None for value in chosen.values())
    if described == (key is not None):
        raise click.UsageError("give either --key, or some of --where, --source-doc, --before and --after")
    _check_other(session, target, holds_stores=key is not None)
    with opened(session, "change" if purge else "read") as memory:
        if key is not None:
            counts = memory.split_by_key(key, target, purge)
        else:
            counts = {str(target): memory.split(where, target, purge, **chosen)}
    lines = [f"{name}: {count(number, 'record')}" for name, number in counts.items()]
    echo_result(
        as_json, {"targets": counts, "purged": purge}, "\n".join(lines) or f"No record has the metadata key {key!r}."
    )


def _check_other(session: Session, path: Path, holds_stores: bool = False) -> None:
    """Refuse the memory itself as the other side: what is moved onto itself would be lost.

    With `holds_stores`, `path` is a folder in which stores are made.
    """
    own = storage_place(session).path
    if own is not None and path.resolve() == (own.resolve().parent if holds_stores else own.resolve()):
        what = "the folder of this memory" if holds_stores else "this memory itself"
        raise InputError(f"{path}: expected another place; found {what}")
