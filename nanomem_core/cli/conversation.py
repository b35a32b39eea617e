"""``nanomem conversation``: messages in, episodes out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

import click

from ..errors import InputError, NotFoundError
from ..pipeline.chats import FORMATS, ChatFormat, read_chats, read_lines
from ..pipeline.episodes import Episode
from ..system import MemorySystem
from .common import Failure, Session, echo_json, echo_result, read_stdin
from .opening import Use, opened, progress_bar
from .options import TIME, memory_command, metadata_option
from .show import count, date, plain, print_table

__all__ = ["conversation"]

_WIDTH = 70
"""Columns of the beginning of a conversation in a list."""


@click.group()
def conversation() -> None:
    """Remember conversations: messages become episodes, and episodes facts."""


@contextlib.contextmanager
def _opened(session: Session, use: Use, *, model: bool = True) -> Iterator[MemorySystem]:
    """The memory system of the settings; without its `model` for what needs none, which may be out of reach."""
    settings = session.settings
    generator = settings.generator if model else None
    with opened(session, use) as memory:
        system = MemorySystem(memory, segmenter=settings.segmenter, generator=generator, settings=settings.conversation)
        with system:
            yield system
            # The process ends with the command, so work that it began is finished first.
            system.close(timeout=None)


@memory_command(
    "add",
    keys=("added", "skipped", "waiting"),
    group=conversation,
    examples=(
        'nanomem conversation add "We leave for Rome on Friday"',
        'nanomem conversation add --role assistant "Have a good trip!" --timestamp 2026-03-01T09:30:00Z',
        "nanomem conversation add - < messages.jsonl",
    ),
)
@click.argument("text")
@click.option("--role", default="user", show_default=True, help="Who said it.")
@click.option("--timestamp", type=TIME, metavar="WHEN", help="When it was said; now by default.")
@metadata_option
def add(
    session: Session, as_json: bool, text: str, role: str, timestamp: float | None, metadata: Mapping[str, Any]
) -> None:
    """Take in the message TEXT; - reads messages from standard input, one JSON object with role and content a line.

    A message waits until there are enough for episodes; `nanomem conversation flush` does not wait for that. Messages
    with an id that is known are skipped.
    """
    if text == "-":
        messages = read_lines(read_stdin().splitlines(), "standard input")
    else:
        messages = [{"role": role, "content": text, "timestamp": timestamp, "metadata": metadata}]
    if not messages:
        raise InputError("TEXT: expected a message; found none")
    with _opened(session, "create") as system:
        report = system.add_messages(messages)
        _finish(system)
        report["waiting"] = system.buffers.buffer().size()
    skipped = f"; {report['skipped']} skipped" if report["skipped"] else ""
    added = count(len(report["added"]), "message")
    echo_result(as_json, report, f"Added {added}{skipped}; {report['waiting']} waiting.")


@memory_command(
    "flush",
    keys=("results", "status"),
    group=conversation,
    examples=("nanomem conversation flush", "nanomem conversation flush --user ann --json"),
)
def flush(session: Session, as_json: bool) -> None:
    """Make episodes of all messages that wait; have the model tell those that are not told, and draw their facts."""
    with _opened(session, "change") as system:
        episodes = system.flush()
        _finish(system)
        status = system.status()
    if as_json:
        echo_json({"results": [episode.to_dict() for episode in episodes], "status": status})
    else:
        _print_episodes(episodes, "No message was waiting.")
    if status["error"]:
        raise Failure(f"not all was done: {status['error']}")


@memory_command(
    "episodes",
    keys=("results",),
    group=conversation,
    examples=("nanomem conversation episodes", "nanomem conversation episodes --messages --limit 3"),
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@click.option("--messages", is_flag=True, help="Also show what was said.")
def episodes(session: Session, as_json: bool, limit: int | None, messages: bool) -> None:
    """List the episodes in the order of time; `nanomem search --kind episode` finds them by what they are about."""
    with _opened(session, "read", model=False) as system:
        found = system.episodes()
    found = found if limit is None else found[-limit:]
    if as_json:
        echo_json({"results": [episode.to_dict() for episode in found]})
    elif messages and found:
        for episode in found:
            click.echo(f"{date(episode.timestamp)}  {plain(episode.title)}  ({episode.id})")
            for message in episode.messages:
                click.echo(f"    {plain(message.role)}: {plain(message.content)}")
    else:
        _print_episodes(found, "There is no episode yet.")


@memory_command(
    "status",
    keys=("waiting", "running", "pending", "dead", "error", "stats"),
    group=conversation,
    examples=("nanomem conversation status",),
)
def status(session: Session, as_json: bool) -> None:
    """Tell what waits, and what is still to do."""
    with _opened(session, "read") as system:
        report = {**system.status(), "stats": system.stats()}
    if as_json:
        echo_json(report)
        return
    stats = report["stats"]
    click.echo(
        f"{count(report['waiting'], 'message')} waiting, {count(stats['episodes'], 'episode')}, "
        f"{count(stats['facts'], 'fact')}."
    )
    rows = [(what, job) for what in ("pending", "dead") for job in report[what]]
    if rows:
        print_table(
            ("state", "lacks", ">attempts", "episode", "last error", "id"),
            [
                (s, " and ".join(job["lacks"]), job["attempts"], job["title"], job["error"], job["id"])
                for s, job in rows
            ],
        )


@memory_command(
    "retry",
    keys=("retried", "status"),
    group=conversation,
    examples=("nanomem conversation retry", "nanomem conversation retry 0190d1f3c2a4…"),
)
@click.argument("id", required=False)
def retry(session: Session, as_json: bool, id: str | None) -> None:
    """Have the model try again what it failed at too often: to tell the episode ID, or to draw its facts.

    Without ID, all that is given up; `nanomem conversation status` lists it.
    """
    with _opened(session, "change") as system:
        retried = system.retry(id)
        if id is not None and not retried:
            raise NotFoundError(f"no episode {id!r} was given up; `nanomem conversation status` lists them", id=id)
        _finish(system)
        report = system.status()
    if as_json:
        echo_json({"retried": retried, "status": report})
    else:
        done = set(retried) - {job["id"] for job in (*report["pending"], *report["dead"])}
        click.echo(f"{len(done)} of {count(len(retried), 'episode')} done.")
    if report["error"]:
        raise Failure(f"not all was done: {report['error']}")


@memory_command(
    "import",
    keys=("chats", "added", "skipped", "episodes"),
    group=conversation,
    examples=(
        "nanomem conversation import conversations.json",
        "nanomem conversation import chat.jsonl --user ann",
    ),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="openai: conversations.json of a ChatGPT export; jsonl: a message a line. By default by the file's name.",
)
def import_(session: Session, as_json: bool, file: Path, form: ChatFormat | None) -> None:
    """Take in the chats of the export FILE, each as episodes of its own.

    Of a chat with several branches the one that was shown last is taken. What was taken in before is skipped, so an
    interrupted import can be repeated.
    """
    if not file.exists():
        raise NotFoundError(f"{file}: there is no such file to import", id=str(file))
    with _opened(session, "create") as system:
        with progress_bar("importing messages") as progress:
            report = system.import_chats(read_chats(file, form), progress=progress)
        _finish(system)
    echo_result(
        as_json,
        report,
        f"Imported {count(report['added'], 'message')} of {count(report['chats'], 'chat')} as "
        f"{count(report['episodes'], 'episode')}; {report['skipped']} skipped.",
    )


def _finish(system: MemorySystem) -> None:
    """Wait for what is to do, and show how far it is."""
    with progress_bar("asking the model about episodes") as progress:
        total = 0
        while not system.wait(timeout=0.5):
            status = system.status()
            if status["error"] or not status["running"]:
                return
            left = len(status["pending"])
            total = max(total, left)
            progress(total - left, total)


def _print_episodes(episodes: list[Episode], nothing: str) -> None:
    if not episodes:
        click.echo(nothing)
        return
    print_table(
        ("date (UTC)", ">messages", "title", "id"),
        [(date(e.timestamp), len(e.messages), _heading(e), e.id) for e in episodes],
    )


def _heading(episode: Episode) -> str:
    """What tells an episode from others at a glance: one that no model has told begins with its first message."""
    if "fallback" not in episode.metadata or not episode.messages:
        return episode.title
    first = episode.messages[0]
    return shorten(f"{first.role}: {first.content}", _WIDTH, placeholder=" …")
