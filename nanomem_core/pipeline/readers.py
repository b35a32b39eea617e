"""Files as sections: what of a text file becomes one record each, and which files of a directory are read.

A format (`formats`) only proposes where a section may or must begin; one packer does the rest. The stretches it packs
tile the file, so every line is in some section, and the text of a section is a stretch of the file, verbatim.
"""

from __future__ import annotations

import codecs
import hashlib
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, NotFoundError
from .chunking import MAX_WORDS, count_words
from .formats import MUST, Mark, format_for

__all__ = ["BINARY_EXTENSIONS", "Section", "SourceFile", "decode", "read_file", "read_text"]

_BINARY = """
7z arrow bin bmp dll doc docx dylib exe feather gif gz h5 hdf5 ico jpeg jpg mp3 mp4 onnx parquet pdf pickle pkl png ppt
pptx pt pth rar safetensors so tar tiff wav webp xls xlsx zip
"""
BINARY_EXTENSIONS = frozenset(_BINARY.split())
"""Extensions that are refused without a look into the file."""

LINES = 50
OVERLAP = 10

_OVERLAP_WORDS = MAX_WORDS // 5
_MAX_UNREADABLE = 0.1
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a file that is remembered as one record.

    Attributes:
        text: the lines, verbatim, with indentation; CSV sections after the first repeat the header line.
        start_line, end_line: the first and the last line, counted from 1.
        part: counts the sections with the same lines, from 1 (a file may hold all its data on one line).
        metadata: what the format knows: ``heading`` (``"Guide > Setup"``) or ``front_matter`` of Markdown.
    """

    text: str
    start_line: int
    end_line: int
    part: int = 1
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read: its sections, and the id, source and metadata that each one's record gets.

    Attributes:
        path: absolute, links not resolved.
        sha256: of the file's bytes, in hex; equal digests mean that nothing needs to be read again.
    """

    path: Path
    sha256: str
    sections: tuple[Section, ...]

    @property
    def id(self) -> str:
        """Names the file among others of its name: ``{basename}@{10 hex digits of the path's SHA-256}``."""
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:10]
        return f"{_name(self.path)}@{digest}"

    def section_id(self, section: Section) -> str:
        """``{file id}:{start}-{end}``, with ``#{part}`` from the second section of the same lines on."""
        part = f"#{section.part}" if section.part > 1 else ""
        return f"{self.id}:{section.start_line}-{section.end_line}{part}"

    def source(self, section: Section) -> str:
        """``{basename}:{start}-{end}``."""
        return f"{_name(self.path)}:{section.start_line}-{section.end_line}"

    def section_metadata(self, section: Section) -> dict[str, Any]:
        """What the format knows, and ``file_id``, ``file_path``, ``filename``, ``start_line``, ``end_line``,
        ``file_sha256``."""
        return {
            **section.metadata,
            "file_id": self.id,
            "file_path": _printable(os.fspath(self.path)),
            "filename": _name(self.path),
            "start_line": section.start_line,
            "end_line": section.end_line,
            "file_sha256": self.sha256,
        }


def read_file(path: str | os.PathLike[str], *, lines: int = LINES, overlap: int = OVERLAP) -> SourceFile:
    """Read a text file into sections of at most `lines` lines and about 500 words.

    Where a section has to end inside a block, the next one repeats up to `overlap` lines. A line, a row and a fenced
    block of code are never divided. The format follows from the extension; a file that only pretends to be JSON or CSV
    is read as plain text. An empty file has no sections.

    Raises:
        NotFoundError: no such file.
        InputError: not a regular or not a text file, or it can't be read; `lines` or `overlap` is out of range.
    """
    absolute = Path(os.path.abspath(path))
    extension = absolute.suffix[1:].lower()
    if extension in BINARY_EXTENSIONS:
        raise InputError(f"{absolute}: .{extension} is a binary format; extract its text or Markdown, and read that")
    if not absolute.exists():
        raise NotFoundError(f"{absolute}: there is no such file", id=os.fspath(absolute))
    if not absolute.is_file():
        raise InputError(f"{absolute}: expected a regular file; for a directory read the files that walk() gives")
    try:
        data = absolute.read_bytes()
    except OSError as error:
        raise InputError(f"{absolute}: the file can't be read ({error.strerror}); check its permissions") from error
    sections = read_text(decode(data, os.fspath(absolute)), extension, lines=lines, overlap=overlap)
    return SourceFile(absolute, hashlib.sha256(data).hexdigest(), tuple(sections))


def decode(data: bytes, name: str) -> str:
    """The text in `data`: UTF-8, or UTF-16 or UTF-32 with a byte order mark; line ends become ``\\n``.

    Undecodable bytes become U+FFFD, as long as they make up at most a tenth of the text.

    Raises:
        InputError: NUL characters or more undecodable bytes show that this is no text; the message names `name`.
    """
    encoding = next((encoding for mark, encoding in _BOMS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = data.decode(encoding, errors="replace")
        unreadable = text.count("\ufffd")
        if unreadable > _MAX_UNREADABLE * len(text):
            raise InputError(
                f"{name}: expected text in UTF-8, or in UTF-16 with a byte order mark; {unreadable} of {len(text)} "
                f"characters can't be decoded. Convert the file to UTF-8"
            ) from None
    if "\0" in text:
        raise InputError(f"{name}: expected a text; found a NUL character, so this is binary data")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(text: str, extension: str = "txt", *, lines: int = LINES, overlap: int = OVERLAP) -> list[Section]:
    """The sections of a text in the format of `extension` (without a dot); see `read_file`.

    Raises:
        InputError: `lines` is below 1, or `overlap` is negative or not below `lines`.
    """
    if not 0 <= overlap < lines:
        raise InputError(f"lines, overlap: expected 0 ≤ overlap < lines; found lines={lines}, overlap={overlap}")
    if not text.strip():
        return []
    layout = format_for(extension)(text)
    starts = [0, *(at + 1 for at, char in enumerate(text) if char == "\n")]
    sections: list[Section] = []
    parts: Counter[tuple[int, int]] = Counter()
    for first, stop, metadata in _pack(text, layout.marks, lines, overlap):
        body = _without_blank_edges(text, first, stop)
        if body is None:
            continue
        begin, end = body
        span = (bisect_right(starts, begin), bisect_right(starts, end - 1))
        parts[span] += 1
        header = layout.header if begin >= len(layout.header) else ""
        sections.append(Section(header + text[begin:end], *span, parts[span], metadata))
    return sections


def _pack(
    text: str, marks: Sequence[Mark], max_lines: int, overlap: int
) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Join the stretches between `marks` to sections: start, end (exclusive) and metadata of each."""
    ends = [mark.start for mark in marks[1:]] + [len(text)]
    bodies = [text[mark.start : end] for mark, end in zip(marks, ends, strict=True)]
    words = [count_words(body) for body in bodies]
    heights = [body.count("\n") + (not body.endswith("\n")) for body in bodies]
    metadata: Mapping[str, Any] = {}
    first = fresh = 0
    while fresh < len(marks):
        if (begun := marks[fresh].metadata) is not None:
            metadata = begun
        stop, length, height = fresh + 1, sum(words[first : fresh + 1]), sum(heights[first : fresh + 1])
        best = 0
        while stop < len(marks) and marks[stop].rank < MUST:
            if length + words[stop] > MAX_WORDS or height + heights[stop] > max_lines:
                stop = best if best and marks[best].rank > marks[stop].rank else stop
                break
            rank = marks[stop].rank
            if rank and 2 * height >= max_lines and rank >= (marks[best].rank if best else 0):
                best = stop
            length += words[stop]
            height += heights[stop]
            stop += 1
        yield marks[first].start, ends[stop - 1], metadata
        first = fresh = stop
        if stop < len(marks) and marks[stop].rank == 0:
            first = _overlap_from(stop, words, heights, max_lines, overlap)


def _overlap_from(stop: int, words: Sequence[int], heights: Sequence[int], max_lines: int, overlap: int) -> int:
    """Where the section that continues at `stop` begins, so that it repeats the end of the one before."""
    first, length, height = stop, 0, 0
    room = min(overlap, max_lines - heights[stop])
    allowed = min(_OVERLAP_WORDS, MAX_WORDS - words[stop])
    while first > 0 and height + heights[first - 1] <= room and length + words[first - 1] <= allowed:
        first -= 1
        length += words[first]
        height += heights[first]
    return first


def _without_blank_edges(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The stretch without blank lines before and white space after it; None if nothing is left."""
    body = text[start:end]
    kept = body.rstrip()
    if not kept:
        return None
    lead = body[: len(body) - len(body.lstrip())]
    return start + lead.rfind("\n") + 1, start + len(kept)


def _name(path: Path) -> str:
    return _printable(path.name)


def _printable(name: str) -> str:
    # A name that is no UTF-8 comes with lone surrogates, which no store can hold.
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
