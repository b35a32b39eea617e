"""How records, times and sizes are shown to a person, and given to a program."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from ..results import Entry, staleness_label
from ..times import DAY, format_time, system_clock
from .common import console

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "count",
    "date",
    "duration",
    "labelled",
    "others_told",
    "plain",
    "print_entries",
    "print_table",
    "rich_table",
    "shown_text",
    "size",
    "standing",
]

_LONGEST = 300
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (9, 10)}


def plain(text: str) -> str:
    """`text` with its control characters as escapes: a stored text must not steer the terminal."""
    return text.translate(_CONTROLS)


def shown_text(entry: Mapping[str, Any]) -> str:
    """The text on one line, of a long one the passage that fits; `nanomem get` shows all of it."""
    text = " ".join(str(entry.get("passage") or entry["text"]).split())
    return plain(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def date(seconds: float | None) -> str:
    """ISO 8601, UTC, to the minute; midnight as the date alone, and nothing for None."""
    if seconds is None:
        return ""
    return format_time(seconds // 60 * 60).replace("T", " ").removesuffix(":00Z").removesuffix(" 00:00")


def duration(seconds: float | None) -> str:
    """A length of time in the unit that fits, ``-`` for None."""
    if seconds is None:
        return "-"
    for unit, name in ((365.25 * DAY, "years"), (30.44 * DAY, "months"), (DAY, "days"), (3600.0, "hours")):
        if abs(seconds) >= 2 * unit:
            return f"{seconds / unit:.1f} {name}" if name == "years" else f"{round(seconds / unit)} {name}"
    return f"{round(seconds / 60)} minutes" if abs(seconds) >= 120 else f"{round(seconds)} seconds"


def size(number: int) -> str:
    """A number of bytes."""
    value = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{number} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def count(number: int, noun: str) -> str:
    """``1 record``, ``2 records``."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number} {noun if number == 1 else plural}"


def standing(entry: Mapping[str, Any], now: float | None = None) -> str:
    """Where a value stands: ``current``, or that it was superseded or ended, and when; nothing where nobody knows.

    `now` is the time that the age is told from, the present by default.
    """
    label = staleness_label(entry, system_clock() if now is None else now)
    return label.partition(":")[0] if label else {"current": "current", "purged": "purged"}.get(entry["status"], "")


def labelled(entries: Iterable[Entry], now: float | None = None) -> list[dict[str, Any]]:
    """Entries for ``--json``: their fields, and ``label``, the warning of a value that no longer holds."""
    now = system_clock() if now is None else now
    return [{**entry, "label": staleness_label(entry, now)} for entry in entries]


def others_told(kinds: Mapping[str, int]) -> str:
    """Where nothing was found: that there are records of other kinds, and how to search them."""
    counts = " and ".join(count(number, kind) for kind, number in kinds.items())
    options = " or ".join(f"--kind {kind}" for kind in [*kinds, "all"])
    there_are = "There is" if sum(kinds.values()) == 1 else "There are"
    return f"{there_are} {counts}, which {options} searches."


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; a header that starts with ``>`` makes a column of numbers. What is no text is shown as its
    ``str``, None as nothing. Off a terminal every row is one line, whatever its length, but for the line breaks in a
    text."""
    cells = [["" if cell is None else plain(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        # Importing rich takes longer than a search, and there is nothing to wrap or to colour.
        print(*_aligned(headers, cells), sep="\n")  # click.echo() writes UTF-8 to what is said to be ASCII
        return
    console().print(rich_table(headers, cells))


def rich_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """The table as a terminal shows it."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in headers:
        text = header.removeprefix(">")
        table.add_column(text, justify="right" if header != text else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _aligned(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table."""
    names = [header.removeprefix(">") for header in headers]
    lines = [
        line
        for row in (names, *rows)
        for line in zip_longest(*(cell.expandtabs().split("\n") for cell in row), fillvalue="")
    ]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    rule = "\u2500" if "utf" in (sys.stdout.encoding or "").lower() else "-"
    for number, line in enumerate(lines):
        padded = [
            " " * (width - _width(cell)) + cell if header != name else cell + " " * (width - _width(cell))
            for cell, width, header, name in zip(line, widths, headers, names, strict=True)
        ]
        yield "   ".join(padded)
        if number == 0:
            yield rule * (sum(widths) + 3 * (len(widths) - 1))


def _width(text: str) -> int:
    """How many columns of a terminal a text without control characters takes."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(char) in ("Mn", "Me", "Cf") else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def print_entries(
    entries: Sequence[Mapping[str, Any]], nothing: str = "", *, ids: bool = False, now: float | None = None
) -> None:
    """Print records as a table, with their ids if `ids`; the sentence `nothing` where there are none."""
    if not entries:
        click.echo(nothing)
        return
    headers = ["date (UTC)", "standing", "entity", "text", *(["id"] if ids else [])]
    rows = [[date(e["timestamp"]), standing(e, now), e["entity"], shown_text(e), e["id"]] for e in entries]
    print_table(headers, (row[: len(headers)] for row in rows))
