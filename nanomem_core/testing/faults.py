"""A disk that can lose power: records what a store does to its files, and rebuilds every state a crash could leave.

`DiskRecorder` patches the functions of `os` that change files, for the paths below one root, and keeps a log::

    with DiskRecorder(root) as disk:
        store = MyStorage(root)
        store.commit(scope, changes)
    for length in range(len(disk.operations) + 1):
        disk.state(length, "all").write_to(other)     # as if the power failed after `length` operations
        MyStorage(other)                              # must recover

**What it sees.** Calls of `os.open`, `write`, `pwrite`, `writev`, `fsync`, `fdatasync`, `ftruncate`, `truncate`,
`replace`, `rename`, `link`, `unlink`, `remove`, `mkdir` and `rmdir` (so also what `pathlib` does by them). It does not
see what buffered file objects (``open(path, "w")``), `mmap` or another process write: they reach the system without
`os`. On leaving the block the files are compared with the log, and such a write fails with the file's name. A store
that wants to be tested writes with `os.write`, which a durable one needs for its `fsync` anyhow.

**What a power failure does.** File data counts as safe after an `fsync` of the file, a name (created, renamed, removed)
after an `fsync` of its directory. Inside the block the real `fsync` is not called, since the log knows better.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import random
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

__all__ = ["LOSSES", "DiskRecorder", "DiskState", "Fault", "Loss", "Operation"]

SECTOR = 512

Loss = Literal["none", "torn", "all", "zeros", "cut", "sectors"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
"""What is lost of the operations that were not made safe:

none: nothing; the process was killed, the machine went on.
torn: nothing, but of the very last write only the first half was done.
all: everything.
zeros: names and sizes were kept, the data was not: new bytes are zeros.
cut: in each file and each directory, everything from some moment on.
sectors: any of the 512-byte sectors, and in each directory everything from some moment on.
"""

Kind = Literal["create", "write", "truncate", "sync", "rename", "link", "unlink", "mkdir", "rmdir", "syncdir"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of the files below the root, in the order in which they happened.

    Attributes:
        path: relative to the root, ``/`` between parts; for a rename or link the new name.
        inode: which file or directory, whatever its name.
        old: the name before a rename.
        offset, data: of a write. For a truncation `offset` is the new size.
    """

    kind: Kind
    path: str
    inode: int
    old: str = ""
    offset: int = 0
    data: bytes = b""

    @property
    def folder(self) -> str:
        """The directory whose `fsync` makes the name safe."""
        return self.path if self.kind == "syncdir" else self.path.rpartition("/")[0]


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


@dataclass(slots=True)
class DiskState:
    """Files and directories as they are at one moment.

    Attributes:
        names: inode of each path below the root; the root itself is "" with inode 0.
        files: content of each inode that is a file.
    """

    names: dict[str, int] = field(default_factory=lambda: {"": 0})
    files: dict[int, bytearray] = field(default_factory=dict)

    def copy(self) -> DiskState:
        return DiskState(dict(self.names), {inode: bytearray(data) for inode, data in self.files.items()})

    def tree(self) -> dict[str, bytes | None]:
        """What can be reached from the root: the content of each file, None for a directory."""
        found: dict[str, bytes | None] = {"": None}
        for path, inode in sorted(self.names.items()):
            if path and found.get(path.rpartition("/")[0], b"") is None:
                found[path] = bytes(self.files[inode]) if inode in self.files else None
        return found

    def fingerprint(self) -> str:
        """The same for two states whose trees are the same."""
        digest = hashlib.sha256()
        for path, data in self.tree().items():
            digest.update(repr((path, data)).encode())
        return digest.hexdigest()

    def write_to(self, root: Path) -> None:
        """Make the files below `root`, which is created and must be empty."""
        root.mkdir(parents=True, exist_ok=True)
        for path, data in self.tree().items():
            if not path:
                continue
            if data is None:
                (root / path).mkdir()
            else:
                (root / path).write_bytes(data)
                (root / path).chmod(0o600)

    def apply(self, op: Operation) -> None:
        """Do one operation. One whose file has no name here any more is done to the nameless file."""
        match op.kind:
            case "create":
                self.names[op.path] = op.inode
                self.files.setdefault(op.inode, bytearray())
            case "write":
                content = self.files.setdefault(op.inode, bytearray())
                content.extend(bytes(max(0, op.offset - len(content))))
                content[op.offset : op.offset + len(op.data)] = op.data
            case "truncate":
                content = self.files.setdefault(op.inode, bytearray())
                del content[op.offset :]
                content.extend(bytes(op.offset - len(content)))
            case "rename":
                inside = [path for path in self.names if path.startswith(op.old + "/")]
                self.names.pop(op.old, None)
                self.names[op.path] = op.inode
                for path in inside:
                    self.names[op.path + path[len(op.old) :]] = self.names.pop(path)
            case "link" | "mkdir":
                self.names[op.path] = op.inode
            case "unlink" | "rmdir":
                self.names.pop(op.path, None)
            case "sync" | "syncdir":
                pass

    @classmethod
    def of(cls, root: Path) -> tuple[DiskState, dict[tuple[int, int], int]]:
        """The files that are below `root` now, and the number given to each (device, inode) of the system."""
        state, numbers = cls(), {_identity(os.stat(root)): 0}
        for path in sorted(root.rglob("*")):
            info = path.lstat()
            inode = numbers.setdefault(_identity(info), len(numbers))
            state.names[path.relative_to(root).as_posix()] = inode
            if stat.S_ISREG(info.st_mode):
                state.files[inode] = bytearray(path.read_bytes())
        return state, numbers


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
            if hasattr(os, name):
                self._real[name] = getattr(os, name)
                setattr(os, name, functools.partial(self._call, name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, function in self._real.items():
            setattr(os, name, function)
        if kind is None:
            self._compare()

    def state(self, length: int, loss: Loss = "none", seed: int = 0) -> DiskState:
        """The files after the first `length` operations and then a crash that loses `loss`; `seed` picks what."""
        state = self._start.copy()
        for op in _survivors(self.operations[:length], loss, random.Random(f"{length} {loss} {seed}")):
            state.apply(op)
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
        return self._numbers.get(_identity(os.fstat(fd)))

    def _name_of(self, fd: int) -> str | None:
        inode = self._number(fd)
        if inode is None:
            return None
        # A file without a name (removed, still open) is written as before.
        return next((path for path, number in self._now.names.items() if number == inode), f"<removed {inode}>")

    def _new(self, info: os.stat_result) -> int:
        number = self._numbers[_identity(info)] = self._next
        self._next += 1
        return number

    def _open(self, real: Callable[..., int], path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        name = self._inside(path, dir_fd)
        if name is None or not flags & (os.O_CREAT | os.O_TRUNC):
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
            self._log(
                Operation("unlink", old, inode) if new is None else Operation("rename", new, inode, old=old)
            )
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


_PATCHES: dict[str, Callable[..., Any]] = {
    "open": DiskRecorder._open,
    "write": DiskRecorder._write,
    "pwrite": DiskRecorder._write,
    "writev": DiskRecorder._write,
    "fsync": DiskRecorder._sync,
    "fdatasync": DiskRecorder._sync,
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


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _survivors(operations: list[Operation], loss: Loss, chance: random.Random) -> Iterator[Operation]:
    """What is left of `operations` after a crash that loses `loss`."""
    if loss == "none":
        yield from operations
        return
    if loss == "torn":
        yield from operations[:-1]
        yield from (replace(op, data=op.data[: len(op.data) // 2]) for op in operations[-1:])
        return
    kept = _kept(operations, loss, chance)
    for index, op in enumerate(operations):
        if index in kept:
            yield op
        elif op.kind == "write" and loss == "zeros":
            yield replace(op, offset=op.offset + len(op.data), data=b"")
        elif op.kind == "write" and loss == "sectors":
            yield from (piece for piece in _sectors(op) if chance.random() < 0.5)


def _kept(operations: list[Operation], loss: Loss, chance: random.Random) -> set[int]:
    """Indices of the operations that are wholly kept: the safe ones, and those that `loss` spares."""
    kept: set[int] = set()
    unsafe: dict[int | str, list[int]] = {}
    safe: set[int | str] = set()
    for index in reversed(range(len(operations))):
        op = operations[index]
        key = op.inode if op.kind in ("write", "truncate", "sync") else op.folder
        if op.kind in ("sync", "syncdir"):
            safe.add(key)
        elif key in safe:
            kept.add(index)
        else:
            unsafe.setdefault(key, []).insert(0, index)
    for key, indices in unsafe.items():
        is_name = isinstance(key, str)
        if loss == "cut" or (loss == "sectors" and is_name):
            kept.update(indices[: chance.randint(0, len(indices))])
        elif loss == "sectors":
            kept.update(i for i in indices if operations[i].kind == "truncate" and chance.random() < 0.5)
        elif loss == "zeros":
            kept.update(i for i in indices if operations[i].kind != "write")
    return kept


def _sectors(op: Operation) -> Iterator[Operation]:
    start, end = op.offset, op.offset + len(op.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield replace(op, offset=start, data=op.data[start - op.offset : stop - op.offset])
        start = stop
