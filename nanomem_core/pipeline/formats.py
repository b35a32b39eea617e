"""Where the sections of a file may begin: one function a format, from a text to marks that tile it.

Every text has a first mark at 0; a stretch between two marks is never divided. All functions take time linear in the
length of the text, and fall back to `plain` where the text is not of their format.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = [
    "CODE_EXTENSIONS",
    "MUST",
    "Layout",
    "Mark",
    "code",
    "delimited",
    "format_for",
    "json_lines",
    "json_values",
    "markdown",
    "plain",
    "yaml_keys",
]

MUST = 9
"""Rank of a mark where a section always begins."""


class Mark(NamedTuple):
    """A place where a section may begin.

    Attributes:
        start: offset in the text.
        rank: how good a place it is; 0 lies inside a block, so that a section which begins here repeats some lines.
        metadata: of the section that begins here; None carries on that of the one before.
    """

    start: int
    rank: int = 0
    metadata: Mapping[str, Any] | None = None


class Layout(NamedTuple):
    """The marks of a text, in order, and the header that each section repeats."""

    marks: list[Mark]
    header: str = ""


_CODE = """
bash c cc cfg cpp cs css cxx go h hpp htm html ini java jl js jsx kt kts lua m php pl ps1 py pyi r rb rs scala scss sh
sql svelte swift toml ts tsx vue xml zig zsh
"""
CODE_EXTENSIONS = frozenset(_CODE.split())


def format_for(extension: str) -> Callable[[str], Layout]:
    """The format of files with this extension (lower case, without a dot); `plain` for an unknown one."""
    return code if extension in CODE_EXTENSIONS else _FORMATS.get(extension, plain)


def plain(text: str) -> Layout:
    """Any line, none better than another."""
    return Layout([Mark(start) for start, _ in _lines(text)])


def code(text: str) -> Layout:
    """Best an outermost line after a blank one, then any line after a blank one, then an outermost line after a block.

    Outermost lines are those without indentation, which is where definitions begin in most languages.
    """
    marks = []
    blank, inner = False, False
    for start, line in _lines(text):
        outermost = bool(line) and (line[0].isalpha() or line[0] in "_@#/<[\"'")
        rank = 3 if blank and outermost else 2 if blank and line.strip() else 1 if outermost and inner else 0
        marks.append(Mark(start, rank))
        blank = not line.strip()
        inner = not blank and not outermost
    return Layout(marks)


_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t])#+[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_NO_TITLE = re.compile(r"[ \t]*(?:$|[>|]|[-*+][ \t]|\d+[.)][ \t])| {4}|\t")


def markdown(text: str) -> Layout:
    """A section begins at each heading (with ``#``, or one underlined line), and at blank lines where one is too long.

    A heading directly followed by a deeper one belongs to that one's section. ``heading`` in the metadata holds the
    headings above a section, outermost first, joined by `` > ``. A fenced block is never divided; front matter is a
    section of its own.
    """
    lines = list(_lines(text))
    matter = _front_matter(lines)
    marks = [Mark(start) for start, _ in lines[:matter]]
    if matter:
        marks[0] = Mark(0, MUST, {"front_matter": True})
    path: list[tuple[int, str]] = []
    opened, bare, blank = 0, False, False
    for number, heading in _outline(lines, matter):
        start, line = lines[number]
        if heading is not None:
            deeper = bare and heading[0] > path[-1][0]
            path = [*(above for above in path if above[0] < heading[0]), heading]
            metadata = {"heading": " > ".join(title for _, title in path if title)}
            if deeper:
                marks[opened] = marks[opened]._replace(metadata=metadata)
                marks.append(Mark(start))
            else:
                opened = len(marks)
                marks.append(Mark(start, MUST, metadata))
            bare = True
        elif number == matter:
            marks.append(Mark(start, MUST, {}))
        else:
            bare = bare and not line.strip()
            marks.append(Mark(start, int(blank and bool(line.strip()))))
        blank = not line.strip()
    return Layout(marks)


def _front_matter(lines: list[tuple[int, str]]) -> int:
    """Lines of the YAML block that the file begins with, its two rules included; 0 for none."""
    if lines[0][1].rstrip() != "---":
        return 0
    closing = (number for number, (_, line) in enumerate(lines) if number and line.rstrip() in ("---", "..."))
    return next(closing, -1) + 1


def _outline(lines: list[tuple[int, str]], number: int) -> Iterator[tuple[int, tuple[int, str] | None]]:
    """The lines from `number` on that may begin a section, with level and title where they are headings."""
    fence = ""
    blank = True
    while number < len(lines):
        line = lines[number][1]
        if fence:
            rest = line.strip()
            fence = "" if rest.startswith(fence) and not rest.strip(fence[0]) else fence
            number += 1
            continue
        hashes = _HEADING.match(line)
        below = _UNDERLINE.match(lines[number + 1][1]) if number + 1 < len(lines) else None
        if hashes:
            yield number, (len(hashes.group(1)), _CLOSING_HASHES.sub("", hashes.group(2) or "").strip())
        elif below and blank and not _NO_TITLE.match(line):
            yield number, (1 if below.group(1)[0] == "=" else 2, line.strip())
            number += 1
        else:
            yield number, None
            opening = _FENCE.match(line)
            fence = opening.group(1) if opening else ""
        blank = not line.strip()
        number += 1


def delimited(text: str) -> Layout:
    """Rows of comma- or tab-separated values; the first row is the header, which each section repeats.

    A quoted field may span lines.
    """
    lines = list(_lines(text))
    separator = "\t" if "\t" in lines[0][1] else ","
    reader = csv.reader((line + "\n" for _, line in lines), delimiter=separator)
    numbers = [0]
    try:
        numbers += [reader.line_num for _ in reader]
    except csv.Error:
        return plain(text)
    marks = [Mark(lines[number][0], min(number, 1)) for number in numbers if number < len(lines)]
    return Layout(marks, text[: marks[1].start] if len(marks) > 1 else "")


def json_lines(text: str) -> Layout:
    """Each line a section."""
    return Layout([Mark(start, MUST) for start, _ in _lines(text)])


_SPACE = re.compile(r"[ \t\n]*")
_KEY = re.compile(r'"(?:[^"\\]|\\.)*"[ \t\n]*:[ \t\n]*')


def json_values(text: str) -> Layout:
    """Each object or array in the outermost object or array is a section; the plain values between them share one."""
    try:
        values = list(_json_values(text))
    except (ValueError, RecursionError):
        return plain(text)
    ranks = {start: 0 for start, _ in _lines(text)}
    nested = False
    for start, holds_more in values:
        ranks[start] = MUST if holds_more or nested else 1
        nested = holds_more
    if values:
        # The opening bracket belongs to the first value.
        ranks = {0: 0} | {start: rank for start, rank in ranks.items() if start > values[0][0]}
    return Layout([Mark(start, ranks[start]) for start in sorted(ranks)])


def _json_values(text: str) -> Iterator[tuple[int, bool]]:
    """Where each value of the outermost object or array begins (with its key), and if it is a non-empty container."""
    decode = json.JSONDecoder().raw_decode
    at = _after_space(text, 0)
    closing = {"[": "]", "{": "}"}.get(text[at : at + 1], "")
    if not closing:
        raise ValueError("no object or array")
    at = _after_space(text, at + 1)
    while not text.startswith(closing, at):
        start = at
        while text[start - 1] in " \t":
            start -= 1
        if closing == "}":
            key = _KEY.match(text, at)
            if key is None:
                raise ValueError("expected a key")
            at = key.end()
        value, at = decode(text, at)
        yield start, isinstance(value, (dict, list)) and bool(value)
        at = _after_space(text, at)
        if text.startswith(",", at):
            at = _after_space(text, at + 1)
        elif not text.startswith(closing, at):
            raise ValueError("expected a comma")
    if _after_space(text, at + 1) != len(text):
        raise ValueError("expected the end")


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


_YAML_TOP = re.compile(r"---(?:\s|$)|-(?:\s|$)|[^\s#\-][^#]*?:(?:\s|$)")


def yaml_keys(text: str) -> Layout:
    """Each outermost key or item that holds a block, and each document, is a section; plain values share one."""
    lines = list(_lines(text))
    tops = [number for number, (_, line) in enumerate(lines) if _YAML_TOP.match(line)]
    marks = [Mark(start) for start, _ in lines]
    nested, rule = False, False
    for number, following in pairwise([*tops, len(lines)]):
        block = any(line.startswith((" ", "\t")) and line.strip() for _, line in lines[number + 1 : following])
        at = number
        while at > 0 and lines[at - 1][1].startswith("#"):
            at -= 1
        begins = lines[number][1].startswith("---") or ((block or nested) and not rule)
        marks[at] = marks[at]._replace(rank=MUST if begins else 1)
        nested, rule = block, lines[number][1].rstrip() == "---"
    return Layout(marks)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line's offset and content without its end; a last line feed begins no further line."""
    start = 0
    while start < len(text) or start == 0:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield start, text[start:end]
        start = end + 1


_FORMATS: dict[str, Callable[[str], Layout]] = {
    "csv": delimited,
    "json": json_values,
    "jsonl": json_lines,
    "markdown": markdown,
    "md": markdown,
    "mdx": markdown,
    "ndjson": json_lines,
    "tab": delimited,
    "tsv": delimited,
    "yaml": yaml_keys,
    "yml": yaml_keys,
}
