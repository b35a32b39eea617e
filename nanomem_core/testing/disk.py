"""What is on a disk: operations on files and directories, the state they lead to, and what a crash leaves of them."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from ..fileio import boots

__all__ = ["LOSSES", "DiskState", "Kind", "Loss", "Operation", "identity", "survivors"]

SECTOR = 512

Loss = Literal["none", "torn", "all", "zeros", "cut", "sectors"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
"""What is lost of the operations that were not made safe:

none: nothing; the process was killed, the machine went on.
torn: nothing, but of the very last write only the first half was done.
all: everything.
zeros: names and sizes were kept, the data was not: new bytes are zeros.
cut: in each file and each directory, everything from some moment on.
sectors: in each of the 512-byte sectors, and in each directory, everything from some moment on.
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


@dataclass(slots=True)
class DiskState:
    """Files and directories as they are at one moment.

    Attributes:
        names: inode of each path below the root; the root itself is "" with inode 0.
        files: content of each inode that is a file.
        boot: the boot of the system that finds them so: another one than wrote them, if the power failed.
    """

    names: dict[str, int] = field(default_factory=lambda: {"": 0})
    files: dict[int, bytearray] = field(default_factory=dict)
    boot: bytes = field(default_factory=lambda: boots.boot_id())

    def copy(self) -> DiskState:
        return DiskState(dict(self.names), {inode: bytearray(data) for inode, data in self.files.items()}, self.boot)

    def tree(self) -> dict[str, bytes | None]:
        """What can be reached from the root: the content of each file, None for a directory."""
        found: dict[str, bytes | None] = {"": None}
        for path, inode in sorted(self.names.items()):
            if path and found.get(path.rpartition("/")[0], b"") is None:
                found[path] = bytes(self.files[inode]) if inode in self.files else None
        return found

    def fingerprint(self) -> str:
        """The same for two states whose trees are the same, and that the same boot of the system finds."""
        digest = hashlib.sha256(self.boot)
        for path, data in self.tree().items():
            digest.update(f"{path}\0{None if data is None else len(data)}\0".encode())
            digest.update(data or b"")
        return digest.hexdigest()

    def write_to(self, root: Path) -> None:
        """Make the files below `root`, which is created and must be empty.

        From then on this process takes the system for one that was started when the state says.
        """
        boot = self.boot
        boots.boot_id = lambda: boot  # type: ignore[assignment]
        root.mkdir(parents=True, exist_ok=True)
        for path, data in self.tree().items():
            if not path:
                continue
            if data is None:
                (root / path).mkdir()
            else:
                (root / path).write_bytes(data)
                (root / path).chmod(0o600)

    def reboot(self) -> None:
        """Start the system anew. Always in the same way, so that equal crashes leave equal states."""
        self.boot = hashlib.sha256(self.boot).digest()[:16]

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
        state, numbers = cls(), {identity(os.stat(root)): 0}
        for path in sorted(root.rglob("*")):
            info = path.lstat()
            inode = numbers.setdefault(identity(info), len(numbers))
            state.names[path.relative_to(root).as_posix()] = inode
            if stat.S_ISREG(info.st_mode):
                state.files[inode] = bytearray(path.read_bytes())
        return state, numbers


def identity(info: os.stat_result) -> tuple[int, int]:
    """Tells files and directories apart, whatever their names."""
    return info.st_dev, info.st_ino


def survivors(operations: Sequence[Operation], loss: Loss, seed: int = 0) -> Iterator[Operation]:
    """What is left of `operations` after a crash that loses `loss`; `seed` picks what, where that is left to chance."""
    chance = random.Random(f"{len(operations)} {loss} {seed}")
    if loss == "none":
        yield from operations
        return
    if loss == "torn":
        yield from operations[:-1]
        yield from (replace(op, data=op.data[: len(op.data) // 2]) for op in operations[-1:])
        return
    kept = _kept(operations, loss, chance)
    lost: set[tuple[int, int]] = set()
    for index, op in enumerate(operations):
        if index in kept:
            yield op
        elif op.kind == "write" and loss == "zeros":
            yield replace(op, offset=op.offset + len(op.data), data=b"")
        elif op.kind == "write" and loss == "sectors":
            for piece in _sectors(op):
                # A sector is as it was at some moment: what came later is lost with what was lost of it.
                sector = op.inode, piece.offset // SECTOR
                if sector in lost or chance.random() < 0.5:
                    lost.add(sector)
                else:
                    yield piece


def _kept(operations: Sequence[Operation], loss: Loss, chance: random.Random) -> set[int]:
    """Indices of the operations that are wholly kept: the safe ones, and those that `loss` spares."""
    kept: set[int] = set()
    unsafe: dict[int | str, list[int]] = {}
    safe: set[int | str] = set()
    for index in reversed(range(len(operations))):
        op = operations[index]
        key = op.inode if op.kind in ("write", "truncate", "sync") else op.folder
        if op.kind in ("sync", "syncdir"):
            safe.add(key)
        elif key in safe or (isinstance(key, str) and os.name == "nt"):
            # Windows can't sync a directory, so a store there has to rely on the journal of the file system.
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
