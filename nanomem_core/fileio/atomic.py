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
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import StorageError

__all__ = [
    "TEMPORARY",
    "disk_errors",
    "make_directory",
    "read",
    "remove",
    "remove_files",
    "remove_leftovers",
    "replacing",
    "start_writing",
    "sync",
    "sync_data",
    "sync_directory",
    "write",
    "write_all",
]

_BINARY = getattr(os, "O_BINARY", 0)
TEMPORARY = ".tmp-"
"""What parts the name of a file from the rest of that of a temporary one beside it."""

_PATIENCE = 2.0
"""Seconds for which Windows is asked again to replace a file that a reader has open."""


@contextlib.contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Make errors of the system in the block `StorageError`, whose messages begin with `what`."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{what}: {error}") from error


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[int]:
    """A descriptor, open for reading and writing, of what becomes `path` when the block is left without an exception.

    The file has mode 0600. With `durable` False nothing is forced to disk: after a loss of power the file may then
    hold anything.

    Raises:
        OSError: as `os` raised it; `path` is as it was before.
    """
    target = os.fspath(path)
    temporary = f"{target}{TEMPORARY}{os.getpid():x}-{os.urandom(4).hex()}"
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try:
        try:
            yield descriptor
            if durable:
                sync(descriptor)
        finally:
            os.close(descriptor)
        _rename(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        sync_directory(os.path.dirname(target))


def _rename(old: str, new: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return os.replace(old, new)
        except PermissionError:
            if os.name != "nt" or time.monotonic() > deadline:
                raise
            time.sleep(0.001)


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


def sync_data(descriptor: int) -> None:
    """As `sync`, but without the file's times: cheaper where its size stays the same."""
    if sys.platform != "darwin" and hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        sync(descriptor)


def start_writing(path: str | os.PathLike[str]) -> None:
    """Let the system begin to write a file to disk, without waiting, where it takes such advice.

    To force many files to disk takes half the time if the writing of all was begun before the first is waited for.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            descriptor = os.open(os.fspath(path), os.O_RDONLY)
            try:
                # Pages can't be given up before they are written, which is begun at once.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


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


def remove_files(folder: str | os.PathLike[str]) -> None:
    """Delete the files in `folder`, if there is one, while others may add or delete some.

    Locks stay, whose deletion could let two owners in, and so does the folder, where somebody may be about to write.
    """
    with contextlib.suppress(FileNotFoundError):
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(".lock"):
                    remove(entry.path, durable=False)
        sync_directory(folder)


def make_directory(path: str | os.PathLike[str]) -> None:
    """Make a directory with mode 0700, and those above it that are missing, and force their names to disk."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    make_directory(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    sync_directory(parent)


def remove_leftovers(*paths: str | os.PathLike[str]) -> None:
    """Delete the temporary files that killed processes left of replacing any of `paths`.

    Call it under the lock that guards them, where nobody else can be at work on one.
    """
    names: dict[str, set[str]] = {}
    for path in paths:
        directory, name = os.path.split(os.fspath(path))
        names.setdefault(directory, set()).add(name)
    for directory, wanted in names.items():
        with contextlib.suppress(FileNotFoundError), os.scandir(directory or os.curdir) as entries:
            for entry in entries:
                name, mark, _ = entry.name.rpartition(TEMPORARY)
                if mark and name in wanted:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)
