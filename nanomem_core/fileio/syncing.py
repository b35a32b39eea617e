"""Forcing many files, and the folders above them, to disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from . import atomic

__all__ = ["folders_above", "sync_file", "sync_files"]

_FLAGS = os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)


def sync_files(targets: Mapping[str, Path], root: str, unsure: set[str]) -> None:
    """Force `targets`, by name, and the folders above them up to `root` to disk. Files that don't exist are none.

    Args:
        unsure: names of files that an fsync failed for before; one for which it fails now is added.

    Raises:
        OSError: as `os` raised it.
    """
    for target in targets.values():
        atomic.start_writing(target)
    for name, target in targets.items():
        if name in unsure:
            # After a failed fsync the system may take what it could not write for written: write it elsewhere.
            content = atomic.read(target)
            if content is not None:
                atomic.write(target, content)
            continue
        try:
            sync_file(target)
        except OSError:
            unsure.add(name)
            raise
    for folder in dict.fromkeys(folder for target in targets.values() for folder in folders_above(target, root)):
        if folder.is_dir():
            atomic.sync_directory(folder)


def sync_file(path: Path) -> None:
    """Force a file to disk, if there is one."""
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return
    try:
        atomic.sync(descriptor)
    finally:
        os.close(descriptor)


def folders_above(path: Path, root: str) -> list[Path]:
    """The directories above `path`, up to `root`."""
    found = [path.parent]
    while found[-1] != Path(root) and Path(root) in found[-1].parents:
        found.append(found[-1].parent)
    return found
