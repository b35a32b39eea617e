"""A disk that can lose power: records what a store does to its files, and rebuilds every state a crash could leave.

`DiskRecorder` patches the functions of `os` that change files, for the paths below one root, and keeps a log::

    with DiskRecorder(root) as disk:
        store = MyStorage(root)
        store.commit(scope, changes)
    for length in range(len(disk.operations) + 1):
        disk.state(length, "all").write_to(other)     # as if the power failed after `length` operations
        MyStorage(other)                              # must recover

**What it sees.** Calls of `os.open`, `write`, `pwrite`, `writev`, `fsync`, `fdatasync`, `ftruncate`, `truncate`,
`replace`, `rename`, `link`, `unlink`, `remove`, `mkdir` and `rmdir` (so also what `pathlib` does by them), and the
``F_FULLFSYNC`` of macOS. It does not see what buffered file objects (``open(path, "w")``), `mmap` or another process
write: they reach the system without `os`. On leaving the block the files are compared with the log, and such a write
fails with the file's name. A store that wants to be tested writes with `os.write`.

**What a power failure does.** File data counts as safe after an `fsync` of the file, a name (created, renamed, removed)
after an `fsync` of its directory (on Windows, which has no such call, at once). Inside the block the real `fsync` is
not called: the log says what would be safe.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from .disk import DiskState, Kind, Loss, Operation, identity, survivors

__all__ = ["DiskRecorder", "Fault", "unsynced"]

_fcntl: ModuleType | None = None
with contextlib.suppress(ImportError):  # Windows has none
    import fcntl as _fcntl


@dataclass(frozen=True, slots=True)
class Fault:
    """An error to raise at one operation.

    Attributes:
        at: index of the operation, from 0, counting those that fail.
        code: for example `errno.ENOSPC`.
        lasting: also every operation after it fails.
    """

    at: int
    code: int = errno.EIO
    lasting: bool = False


class DiskRecorder:
    """Log of all changes below `root` while its ``with`` block lasts; see the module.

    Attributes:
        operations: what was done so far; its length is a moment that `state` understands.

    `root` must exist. One recorder at a time; threads are recorded, other processes are not.
    With `fault` one operation fails; with `short_writes` the system takes only half of what a write brings.
    """

    def __init__(self, root: Path, fault: Fault | None = None, *, short_writes: bool = False) -> None:
        self.root = Path(os.path.realpath(root))
        self.operations: list[Operation] = []
        self._fault = fault
        self._short_writes = short_writes
        self._attempts = 0
        self._lock = threading.RLock()
        self._real: dict[str, Callable[..., Any]] = {}
        self._start, self._numbers = DiskState.of(self.root)
        self._now = self._start.copy()
        self._next = len(self._numbers)

    def __enter__(self) -> Self:
        for name in _PATCHES:
            module = _module_of(name)
            if hasattr(module, name):
                self._real[name] = getattr(module, name)
                setattr(module, name, functools.partial(self._call, name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, function in self._real.items():
            setattr(_module_of(name), name, function)
        if kind is None:
            self._compare()

    def state(self, length: int, loss: Loss = "none", seed: int = 0) -> DiskState:
        """The files after the first `length` operations and then a crash that loses `loss`; `seed` picks what."""
        state = self._start.copy()
        for op in survivors(self.operations[:length], loss, seed):
            state.apply(op)
        if loss not in ("none", "torn"):
            state.reboot()
        return state

    # Recording.

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return _PATCHES[name](self, self._real[name], *args, **kwargs)

    def _attempt(self, path: str) -> None:
        index, fault = self._attempts, self._fault
        self._attempts += 1
        if fault is not None and (index == fault.at or (fault.lasting and index > fault.at)):
            raise OSError(fault.code, os.strerror(fault.code), str(self.root / path))

    def _log(self, op: Operation) -> None:
        self.operations.append(op)
        self._now.apply(op)

    def _inside(self, path: Any, dir_fd: int | None = None) -> str | None:
        """`path` relative to the root, or None if it lies elsewhere or is no path."""
        if isinstance(path, int):
            return self._name_of(path)
        text = os.fsdecode(path)
        if dir_fd is not None and not os.path.isabs(text):
            folder = self._name_of(dir_fd)
            return None if folder is None else f"{folder}/{text}".lstrip("/")
        parent, base = os.path.split(os.path.abspath(text))
        full = Path(os.path.realpath(parent), base)
        return full.relative_to(self.root).as_posix() if full.is_relative_to(self.root) and base else None

    def _number(self, fd: int) -> int | None:
        return self._numbers.get(identity(os.fstat(fd)))

    def _name_of(self, fd: int) -> str | None:
        inode = self._number(fd)
        if inode is None:
            return None
        # A file without a name (removed, still open) is written as before.
        return next((path for path, number in self._now.names.items() if number == inode), f"<removed {inode}>")

    def _new(self, info: os.stat_result) -> int:
        number = self._numbers[identity(info)] = self._next
        self._next += 1
        return number

    def _open(self, real: Callable[..., int], path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        may_change = flags & (os.O_CREAT | os.O_TRUNC)
        name = self._inside(path, dir_fd) if may_change else None
        if name is None:
            return real(path, flags, mode, dir_fd=dir_fd)
        exists = name in self._now.names
        if not exists or flags & os.O_TRUNC:
            self._attempt(name)
        fd = real(path, flags, mode, dir_fd=dir_fd)
        if not exists:
            self._log(Operation("create", name, self._new(os.fstat(fd))))
        elif flags & os.O_TRUNC and self._now.files.get(self._now.names[name]):
            self._log(Operation("truncate", name, self._now.names[name]))
        return fd

    def _write(self, real: Callable[..., int], fd: int, data: Any, *where: int) -> int:
        inode = self._number(fd)
        if inode is None:
            return real(fd, data, *where)
        content = b"".join(data) if isinstance(data, (list, tuple)) else bytes(data)
        if self._short_writes and len(content) > 1:
            content = content[: len(content) // 2]
        name = self._name_of(fd) or ""
        self._attempt(name)
        if where:
            written, offset = self._real["pwrite"](fd, content, where[0]), where[0]
        else:
            written = self._real["write"](fd, content)
            offset = os.lseek(fd, 0, os.SEEK_CUR) - written  # also right with O_APPEND
        self._log(Operation("write", name, inode, offset=offset, data=content[:written]))
        return int(written)

    def _sync(self, real: Callable[..., None], fd: int) -> None:
        inode = self._number(fd)
        if inode is None:
            return real(fd)
        name = self._name_of(fd) or ""
        self._attempt(name)
        self._log(Operation("sync" if inode in self._now.files else "syncdir", name, inode))
        return None

    def _fcntl(self, real: Callable[..., Any], fd: Any, command: int, *argument: Any) -> Any:
        if command == getattr(_fcntl, "F_FULLFSYNC", None):
            return self._sync(lambda fd: real(fd, command), fd if isinstance(fd, int) else fd.fileno())
        return real(fd, command, *argument)

    def _truncate(self, real: Callable[..., None], path: Any, length: int) -> None:
        name = self._inside(path)
        if name is None:
            return real(path, length)
        self._attempt(name)
        real(path, length)
        inode = self._number(path) if isinstance(path, int) else self._now.names.get(name)
        if inode is not None:
            self._log(Operation("truncate", name, inode, offset=length))
        return None

    def _rename(
        self, real: Callable[..., None], src: Any, dst: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None
    ) -> None:
        old, new = self._inside(src, src_dir_fd), self._inside(dst, dst_dir_fd)
        if old is None and new is None:
            return real(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._attempt(new or old or "")
        real(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if old in self._now.names:
            inode = self._now.names[old]
            self._log(Operation("unlink", old, inode) if new is None else Operation("rename", new, inode, old=old))
        return None

    def _link(self, real: Callable[..., None], src: Any, dst: Any, **options: Any) -> None:
        old, new = self._inside(src, options.get("src_dir_fd")), self._inside(dst, options.get("dst_dir_fd"))
        if new is None:
            return real(src, dst, **options)
        self._attempt(new)
        real(src, dst, **options)
        if old in self._now.names:
            self._log(Operation("link", new, self._now.names[old]))
        return None

    def _remove(self, kind: Kind, real: Callable[..., None], path: Any, *, dir_fd: Any = None) -> None:
        name = self._inside(path, dir_fd)
        if name is None:
            return real(path, dir_fd=dir_fd)
        self._attempt(name)
        real(path, dir_fd=dir_fd)
        if name in self._now.names:
            self._log(Operation(kind, name, self._now.names[name]))
        return None

    def _mkdir(self, real: Callable[..., None], path: Any, mode: int = 0o777, *, dir_fd: Any = None) -> None:
        name = self._inside(path, dir_fd)
        if name is None or name in self._now.names:
            return real(path, mode, dir_fd=dir_fd)
        self._attempt(name)
        real(path, mode, dir_fd=dir_fd)
        self._log(Operation("mkdir", name, self._new(os.stat(path, dir_fd=dir_fd))))
        return None

    def _compare(self) -> None:
        """Fail if the files are not what the log says."""
        logged, real = self._now.tree(), DiskState.of(self.root)[0].tree()
        for path in sorted(logged.keys() | real.keys()):
            if logged.get(path, b"absent") != real.get(path, b"absent"):
                raise AssertionError(
                    f"{self.root / path} was changed by something that DiskRecorder can't see: a buffered file "
                    "object, mmap or another process. Write it with os.write, or its durability can't be tested."
                )


@contextlib.contextmanager
def unsynced() -> Iterator[None]:
    """Let no `fsync` of this process reach the disk, which is most of the time that opening a thousand states takes.

    Only the log of a `DiskRecorder` tells what would be safe.
    """
    real = {name: getattr(os, name) for name in ("fsync", "fdatasync") if hasattr(os, name)}
    for name in real:
        setattr(os, name, lambda fd: None)
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def _module_of(name: str) -> ModuleType | None:
    return _fcntl if name == "fcntl" else os


_PATCHES: dict[str, Callable[..., Any]] = {
    "open": DiskRecorder._open,
    "write": DiskRecorder._write,
    "pwrite": DiskRecorder._write,
    "writev": DiskRecorder._write,
    "fsync": DiskRecorder._sync,
    "fdatasync": DiskRecorder._sync,
    "fcntl": DiskRecorder._fcntl,
    "truncate": DiskRecorder._truncate,
    "ftruncate": DiskRecorder._truncate,
    "rename": DiskRecorder._rename,
    "replace": DiskRecorder._rename,
    "link": DiskRecorder._link,
    "unlink": lambda self, *args, **kwargs: self._remove("unlink", *args, **kwargs),
    "remove": lambda self, *args, **kwargs: self._remove("unlink", *args, **kwargs),
    "mkdir": DiskRecorder._mkdir,
    "rmdir": lambda self, *args, **kwargs: self._remove("rmdir", *args, **kwargs),
}
