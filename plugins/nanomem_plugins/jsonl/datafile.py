"""A file of lines in memory: what can be read in it, and what can't."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from nanomem_core.errors import InputError
from nanomem_core.records import Kind, Scope

from .lines import Line, decode

__all__ = ["Bad", "DataFile", "Signature", "elements", "id_in", "signature"]

Signature = tuple[int, int, int]
"""Modification time, size and inode of a file."""

_BOM = b"\xef\xbb\xbf"
_WHITESPACE = b" \t\r\n"
_DECODER = json.JSONDecoder()
_ID = re.compile(rb'"(?:episode_id|memory_id|message_id|summary_id|purged_id|id)"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class Bad:
    """Bytes that are no record.

    Attributes:
        path: the file, relative to the root.
        line: number of the line, from 1.
        lost: False if they are a record all the same, though not of this scope.
    """

    path: str
    line: int
    offset: int
    raw: bytes
    reason: str
    lost: bool = True


@dataclass(slots=True)
class DataFile:
    """The records of one kind, as the file has them.

    Attributes:
        lines: by id, in the order of the file.
        size: bytes of the file.
        seen: what `os.stat` said before the file was read; None if it is still to be looked at.
        tidy: True if a line can be appended: what there is are whole lines, one sound record in each.
    """

    path: str
    kind: Kind
    lines: dict[str, Line] = field(default_factory=dict)
    bad: list[Bad] = field(default_factory=list)
    size: int = 0
    seen: Signature | None = None
    tidy: bool = True

    def clear(self) -> dict[bytes, Line]:
        """Forget the content; returns what was known, for `read`."""
        known = {line.raw: line for line in self.lines.values()}
        self.lines, self.bad, self.size, self.tidy = {}, [], 0, True
        return known

    def read(self, content: bytes, scope: Scope, known: Mapping[bytes, Line], taken: Container[str] = ()) -> None:
        """Take over `content`, which follows what was read before.

        Args:
            known: lines that need not be parsed.
            taken: ids of records in other files.
        """
        offset, first = self.size, self.size
        self.size += len(content)
        if content and not content.endswith(b"\n"):
            self.tidy = False
        if not first and content.startswith(_BOM):
            content, offset, self.tidy = content[len(_BOM) :], len(_BOM), False
        for number, raw in enumerate(content.split(b"\n"), 1):
            line = known.get(raw)
            if line is not None:
                self._add(line, number, offset, taken)
            elif raw.strip(_WHITESPACE):
                self._parse(raw, scope, number, offset, taken)
            offset += len(raw) + 1

    def _parse(self, raw: bytes, scope: Scope, number: int, offset: int, taken: Container[str]) -> None:
        pieces = list(_objects(raw))
        if len(pieces) > 1:
            self.tidy = False
        for piece, data in pieces:
            self.take(data, piece, scope, Bad(self.path, number, offset, piece, ""), taken)

    def take(self, data: object, raw: bytes, scope: Scope, place: Bad, taken: Container[str]) -> None:
        """Take over one parsed object, or note at `place` why it is no record."""
        try:
            if isinstance(data, ValueError):
                raise InputError(f"it is no JSON: {data}")
            if not isinstance(data, dict):
                raise InputError(f"expected a JSON object; found {type(data).__name__}")
            line = decode(data, raw, self.kind, scope)
        except (ValueError, TypeError, RecursionError) as error:
            self._reject(place, str(error))
            return
        self._add(line, place.line, place.offset, taken, place.path)

    def _add(self, line: Line, number: int, offset: int, taken: Container[str], path: str | None = None) -> None:
        id = line.record.id
        place = Bad(path or self.path, number, offset, line.raw, "")
        if id in taken:
            self._reject(place, f"the id {id!r} is that of another record")
            return
        before = self.lines.get(id)
        if before is not None:
            # The later line is the newer one, as wherever lines are appended.
            self._reject(Bad(place.path, number, offset, before.raw, ""), f"a later line has the same id {id!r}")
        self.lines[id] = line
        self.tidy = self.tidy and line.sound

    def _reject(self, place: Bad, reason: str) -> None:
        self.tidy = False
        self.bad.append(Bad(place.path, place.line, place.offset, place.raw, reason))


def elements(content: bytes) -> list[object]:
    """The items of a file in which all records are one JSON value: an array, or an object that has one.

    What can't be read is one item, a ValueError.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        return [ValueError(str(error))]
    if isinstance(data, dict):
        arrays = [value for value in data.values() if isinstance(value, list)]
        looks_like_one = _ID.search(content[:200]) is not None and "content" in data
        data = arrays[0] if len(arrays) == 1 and not looks_like_one else [data]
    return data if isinstance(data, list) else [data]


def _objects(raw: bytes) -> Iterator[tuple[bytes, object]]:
    """The JSON values on a line, usually one, with the bytes of each; a ValueError for what is none."""
    try:
        yield raw, json.loads(raw)
        return
    except (ValueError, RecursionError):
        pass
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        yield raw, ValueError(str(error))
        return
    position = 0
    while position < len(text):
        try:
            data, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            # What follows may begin anew where somebody else appended to a line that was cut off.
            after = text.find('{"', position + 1)
            while after > 0 and not _begins_object(text, after):
                after = text.find('{"', after + 1)
            end = after if after > 0 else len(text)
            data = error if isinstance(error, ValueError) else ValueError(str(error))
        yield text[position:end].encode(), data
        position = end
        while position < len(text) and text[position] in " \t\r":
            position += 1


def _begins_object(text: str, position: int) -> bool:
    """True if a record begins there, rather than an object inside one."""
    try:
        data, _ = _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(data, dict)
        and "content" in data
        and _ID.match(text[position + 1 : position + 400].encode()) is not None
    )


def id_in(raw: bytes) -> str | None:
    """The id that bytes which can't be read seem to tell of."""
    match = _ID.search(raw)
    if match is None:
        return None
    try:
        return str(json.loads(match[1]))
    except ValueError:
        return None


def signature(path: str | os.PathLike[str]) -> Signature | None:
    """What tells that a file was changed; None if there is none."""
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino
