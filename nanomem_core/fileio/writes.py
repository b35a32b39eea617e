"""What a commit does to files, and what the files must then hold, whatever a crash has left of them.

`nanomem_core.fileio.journal` stands on this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Append", "Entry", "History", "Remove", "Replace", "Write", "continues", "digest", "expected"]


@dataclass(frozen=True, slots=True)
class Replace:
    """The file `path` becomes `data`; a reader sees the old content or the new."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """The file `path` is cut to `offset` bytes, and `data` follows."""

    path: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """The file `path` is deleted."""

    path: str


Write = Replace | Append | Remove
"""What a commit does to one file. Paths are relative to the journal's root, with ``/`` between their parts."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit.

    Attributes:
        note: what the store says about the commit, as JSON types.
        before: for each of `writes` the digest of the file it replaced or removed, None where there was no file.
    """

    head: int
    note: Any
    writes: tuple[Write, ...]
    before: tuple[str | None, ...]


History = Sequence[tuple[Write, str | None]]
"""The writes of one file, in order, each with the digest of what it replaced or removed."""


def expected(history: History, content: bytes | None) -> bytes | None:
    """What a file holds after all writes of `history`, given what it holds now; None for no file.

    Whatever a crash can have left of the writes is replaced: no file, an empty one, one that was cut short or has NUL
    bytes in place of what was written, any older state. All else is somebody's later edit, and stays.
    """
    end = history[-1][0]
    if isinstance(end, Replace) and content == end.data:
        return content  # as it nearly always is
    runs: list[list[Write]] = []
    olds: set[str | None] = set()
    for number, (write, before) in enumerate(history):
        if not isinstance(write, Append):
            runs.append([write])
            olds.add(before)
        elif continues(history[:number], write):
            runs[-1].append(write)
        else:
            # The file was forced to disk then, so that nothing older can come back.
            runs, olds = [[write]], set()
    last = runs[-1]
    appended = b"".join(write.data for write in last if isinstance(write, Append))
    first = last[0]
    if isinstance(first, Append):
        return _extended(content, first.offset, appended)
    whole = first.data + appended if isinstance(first, Replace) else (appended if len(last) > 1 else None)
    if content is None or content == whole:
        return whole
    if whole is not None and content.startswith(whole) and digest(content) not in olds:
        return content
    if digest(content) in olds or any(_is_left_of(run, content) for run in runs):
        return whole
    return content


def _extended(content: bytes | None, offset: int, data: bytes) -> bytes | None:
    """`content` with `data` at `offset`, unless somebody has changed what is there."""
    found = content or b""
    there = found[offset : offset + len(data)]
    if len(found) < offset or there == data or not _is_part(there, data):
        return content
    return found[:offset] + data + found[offset + len(data) :]


def _is_left_of(run: Sequence[Write], content: bytes) -> bool:
    """True if `content` can be what is left of the writes of `run`."""
    appended = b"".join(write.data for write in run if isinstance(write, Append))
    first = run[0]
    if isinstance(first, Append):
        return len(content) >= first.offset and _is_part(content[first.offset :], appended)
    return _is_part(content, first.data + appended if isinstance(first, Replace) else appended)


def _is_part(content: bytes, whole: bytes) -> bool:
    """True if `content` is the beginning of `whole`, or has NUL bytes in places."""
    if whole.startswith(content):
        return True
    if len(content) > len(whole):
        return False
    found, wanted = np.frombuffer(content, np.uint8), np.frombuffer(whole, np.uint8, len(content))
    return bool(((found == wanted) | (found == 0)).all())


def continues(history: History, write: Append) -> bool:
    """True if `write` begins where the last write of `history` ended."""
    if not history:
        return False
    last = history[-1][0]
    if isinstance(last, Append):
        return write.offset == last.offset + len(last.data)
    return write.offset == (len(last.data) if isinstance(last, Replace) else 0)


def digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.blake2b(content, digest_size=16).hexdigest()
