"""``nanomem bench page``: the tables of a report, put into a page that people write."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from nanomem_core.errors import FormatError, InputError

from .report import Report

__all__ = ["page", "parts_of", "read_report", "with_tables"]

_BEGIN = re.compile(r"<!-- bench: (.+?) -->\n")
_END = "<!-- end of bench -->"


@click.command("page")
@click.argument("report", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("pages", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def page(report: Path, pages: tuple[Path, ...]) -> None:
    """Put the tables of REPORT into the Markdown files PAGES.

    REPORT is what "nanomem bench ... --json" printed. In a page everything is replaced that stands between the lines
    "<!-- bench: PART -->" and "<!-- end of bench -->"; the rest stays as it is. PART is "setting", "arms", "goals", a
    suite, or one measure of a suite, such as "write/add_many".
    """
    found = read_report(report)
    written = {}
    for path in pages:
        text = path.read_text(encoding="utf-8")
        try:
            written[path] = with_tables(text, found)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
    for path, text in written.items():
        path.write_text(text, encoding="utf-8", newline="\n")
        click.echo(f"{path}: {len(parts_of(text))} tables")


def read_report(path: Path) -> Report:
    """The report in a JSON file.

    Raises:
        FormatError: it is no report, or one of another release.
    """
    try:
        return Report.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"{path}: expected what `nanomem bench … --json` prints; {type(error).__name__}: {error}"
        ) from error


def parts_of(text: str) -> list[str]:
    """The parts of a report that a page shows, in its order."""
    return _BEGIN.findall(text)


def with_tables(text: str, report: Report) -> str:
    """`text` with every part between marks as `report` has it.

    Raises:
        InputError: there is no mark, one has no end, or `report` lacks its part.
    """
    before, *rest = _BEGIN.split(text)
    if not rest:
        raise InputError("expected lines like <!-- bench: goals -->, to be followed by a table; found none")
    made = [before]
    for part, body in zip(rest[::2], rest[1::2], strict=True):
        _, end, after = body.partition(_END)
        if not end:
            raise InputError(f"<!-- bench: {part} --> is not followed by {_END}")
        made.append(f"<!-- bench: {part} -->\n\n{report.table(part)}\n\n{end}{after}")
    return "".join(made)
