"""Which files of a directory are read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import InputError, NotFoundError
from .formats import CODE_EXTENSIONS

__all__ = ["DEFAULT_EXTENSIONS", "IGNORED_DIRECTORIES", "walk"]

_TEXTS = "csv json jsonl log markdown md mdx ndjson rst tab transcript tsv txt yaml yml"
DEFAULT_EXTENSIONS = CODE_EXTENSIONS | frozenset(_TEXTS.split())

_IGNORED = """
.git .idea .next .nuxt .pytest_cache .venv .vscode __pycache__ build coverage dist env node_modules target venv
"""
IGNORED_DIRECTORIES = frozenset(_IGNORED.split())
"""Never entered; neither is anything else whose name begins with a dot."""

_log = logging.getLogger("nanomem")


def walk(
    directory: str | os.PathLike[str],
    extensions: Iterable[str] | None = None,
    ignore_dirs: Iterable[str] | None = None,
    confine_root: str | os.PathLike[str] | None = None,
) -> Iterator[Path]:
    """The files below `directory` that can be read, in order of their names, those behind links last.

    Links are followed, and no directory or file is visited twice. A directory that can't be listed is logged and
    skipped.

    Args:
        extensions: with or without the dot, in any case; None means `DEFAULT_EXTENSIONS`.
        ignore_dirs: names of directories to leave out beside `IGNORED_DIRECTORIES`.
        confine_root: whatever lies outside this directory once its links are resolved is left out.

    Raises:
        NotFoundError, InputError: `directory` does not exist, is no directory, or lies outside `confine_root`.
    """
    top = os.path.abspath(directory)
    if not os.path.exists(top):
        raise NotFoundError(f"{top}: there is no such directory", id=top)
    if not os.path.isdir(top):
        raise InputError(f"{top}: expected a directory; read a single file with read_file()")
    root = None if confine_root is None else os.path.realpath(confine_root)
    if not _inside(os.path.realpath(top), root):
        raise InputError(f"{top}: lies outside {root}, to which this is confined")
    wanted = DEFAULT_EXTENSIONS if extensions is None else {_extension(name) for name in extensions}
    return _walk(top, frozenset(wanted), IGNORED_DIRECTORIES | set(ignore_dirs or ()), root)


def _walk(top: str, wanted: frozenset[str], ignored: frozenset[str], root: str | None) -> Iterator[Path]:
    # Links wait until the rest is done, so that a file reached both ways is named by its own path.
    seen: set[str] = set()
    links: list[str] = []
    waiting = [top]
    while waiting or links:
        path = waiting.pop() if waiting else links.pop(0)
        real = os.path.realpath(path)
        if real in seen or not _inside(real, root):
            continue
        if os.path.isdir(path):
            seen.add(real)
            found = sorted(_entries(path, real, ignored), reverse=True)
            waiting += [entry for entry, is_link in found if not is_link]
            links += [entry for entry, is_link in reversed(found) if is_link]
        elif os.path.isfile(path) and _extension(os.path.splitext(path)[1]) in wanted:
            seen.add(real)
            yield Path(path)


def _entries(path: str, real: str, ignored: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """What to visit in a directory, and whether it is a link (or a junction)."""
    try:
        names = os.listdir(path)
    except OSError as error:
        _log.warning("%s: the directory can't be listed (%s); skipped", path, error.strerror)
        return
    for name in names:
        entry = os.path.join(path, name)
        if name.startswith(".") or (name in ignored and os.path.isdir(entry)):
            continue
        yield entry, os.path.realpath(entry) != os.path.join(real, name)


def _inside(real: str, root: str | None) -> bool:
    if root is None:
        return True
    try:
        return os.path.commonpath((real, root)) == root
    except ValueError:  # another drive
        return False


def _extension(name: str) -> str:
    return name.lower().lstrip(".")
