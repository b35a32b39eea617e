"""The Markdown files of an agent, by their stat data: what must be read again is what these say has changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .layout import PLACES, place_folder

__all__ = ["Signature", "find_files", "is_recent"]

Signature = tuple[int, int, int, int]
"""Modification time, time of the last change of the inode (both in ns), size and inode of a file."""

_IS_WINDOWS = os.name == "nt"
_KIND, _FILE, _LINK = stat.S_IFMT(0o177777), stat.S_IFREG, stat.S_IFLNK
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)

_TICK, _COARSE_TICK = 20_000_000, 2_000_000_000
"""Nanoseconds in which two changes of a file may get one time; the second where times are whole seconds."""


def find_files(root: Path, folder: str) -> dict[str, Signature | str]:
    """For every Markdown file of an agent, by path below `root`, its signature, or why it can't be a document."""
    found: dict[str, Signature | str] = {}
    for place in PLACES:
        _walk(os.fspath(root), place_folder(folder, place), found)
    return found


def is_recent(signature: Signature, now: int) -> bool:
    """True if the file could be changed once more, at `now` in ns, without another signature."""
    changed = signature[1]
    return now - changed < (_COARSE_TICK if changed % 1_000_000_000 == 0 else _TICK)


@contextmanager
def _entries(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    if _IS_WINDOWS:
        with os.scandir(folder) as entries:
            yield entries
        return
    # Of an open folder: then nobody has to find the way to it again for each of its files.
    descriptor = os.open(folder, _FOLDER)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _walk(root: str, folder: str, found: dict[str, Signature | str]) -> None:
    try:
        with _entries(f"{root}/{folder}") as entries:
            for entry in entries:
                name = entry.name
                if not name.endswith(".md"):
                    if entry.is_dir(follow_symlinks=False):
                        _walk(root, f"{folder}/{name}", found)
                    continue
                try:
                    # On Windows the entry's own data may be old, and has no inode.
                    info = os.lstat(entry.path) if _IS_WINDOWS else entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                kind = info.st_mode & _KIND
                if kind == _FILE and "\\" not in name and ":" not in name:
                    found[f"{folder}/{name}"] = info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino
                elif kind == _FILE:
                    found[f"{folder}/{name}"] = "its name can't be the id of a fact"
                elif kind == _LINK:
                    found[f"{folder}/{name}"] = "a symbolic link, which is never followed"
                else:
                    found[f"{folder}/{name}"] = "no file"
    except (FileNotFoundError, NotADirectoryError):
        return
