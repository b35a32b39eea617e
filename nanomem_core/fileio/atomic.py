"""Replacing a file so that a crash, or a loss of power, leaves the old content or the new, never a mixture.

The new content goes to a temporary file in the same directory, is forced to disk, and is renamed over the old one;
then the directory is forced to disk, since the rename is a change of the directory.

Everything goes through functions of `os` that are looked up when called, and no buffer of Python's stands between.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["read", "remove", "remove_leftovers", "replacing", "sync", "sync_directory", "write", "write_all"]

_BINARY = getattr(os, "O_BINARY", 0)
_TEMPORARY = ".tmp-"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[int]:
    """A descriptor, open for reading and writing, of what becomes `path` when the block is left without an exception.

    The file has mode 0600. With `durable` False nothing is forced to disk: after a loss of power the file may then
    hold anything.

    Raises:
        OSError: as `os` raised it; `path` is as it was before.
    """
    target = os.fspath(path)
    temporary = f"{target}{_TEMPORARY}{os.getpid():x}-{os.urandom(4).hex()}"
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try:
        try:
            yield descriptor
            if durable:
                sync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        sync_directory(os.path.dirname(target))


def write(path: str | os.PathLike[str], data: bytes, *, durable: bool = True) -> None:
    """Replace the content of `path` by `data`, as `replacing` does."""
    with replacing(path, durable=durable) as descriptor:
        write_all(descriptor, data)


def read(path: str | os.PathLike[str]) -> bytes | None:
    """The whole content of `path`, or None where there is no such file."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None


def write_all(descriptor: int, data: bytes | bytearray | memoryview, offset: int | None = None) -> None:
    """Write every byte of `data`: at `offset`, or at the descriptor's position if that is None.

    Raises:
        OSError: as `os` raised it; a part of the data may have been written.
    """
    rest = memoryview(data)
    if offset is not None and not hasattr(os, "pwrite"):
        os.lseek(descriptor, offset, os.SEEK_SET)
        offset = None
    while rest:
        done = os.write(descriptor, rest) if offset is None else os.pwrite(descriptor, rest, offset)
        if done == 0:
            raise OSError(errno.ENOSPC, "the device accepts no more bytes")
        rest = rest[done:]
        if offset is not None:
            offset += done


def sync(descriptor: int) -> None:
    """Force a file's content to the disk itself. On macOS ``fsync`` stops at the disk's cache, so more is asked."""
    if sys.platform == "darwin":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Force a directory's entries to disk. Windows can't open a directory, and orders its renames by itself."""
    if os.name == "nt":
        return
    descriptor = os.open(os.fspath(path) or os.curdir, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str | os.PathLike[str], *, durable: bool = True) -> bool:
    """Delete a file; False if there was none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    if durable:
        sync_directory(os.path.dirname(os.fspath(path)))
    return True


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete the temporary files that killed processes left of replacing `path`.

    Call it under the lock that guards `path`, where nobody else can be at work on one.
    """
    directory, name = os.path.split(os.fspath(path))
    with contextlib.suppress(FileNotFoundError), os.scandir(directory or os.curdir) as entries:
        for entry in entries:
            if entry.name.startswith(name + _TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
