"""DeerMem's own journal: what it leaves behind when it is killed in the middle of a commit.

While DeerMem commits, ``.memory.journal.json`` names the facts concerned, and ``.recovery/{operation}`` holds copies of
the files as they were. In the state ``prepared`` the commit is undone from the copies, in the state ``committed`` it
stands and the copies go.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from nanomem_core.errors import CorruptionError, InputError, StorageError
from nanomem_core.fileio import atomic
from nanomem_core.fileio.names import confined

from .layout import is_safe_id, shard_of
from .manifest import FILE

__all__ = ["JOURNAL", "Interrupted", "read_interrupted", "recover_interrupted", "remove_leftovers"]

JOURNAL = ".memory.journal.json"
_RECOVERY = ".recovery"
_OPERATION = re.compile(r"[0-9a-f]{32}")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
_AGENT = re.compile(r"__default__|[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A commit of DeerMem that did not come to its end.

    Attributes:
        operation: name of the folder with the copies.
        undone: for each file concerned, its content before the commit, None where there was none; empty if the commit
            stands.
    """

    operation: str
    undone: dict[str, bytes | None]


def read_interrupted(root: Path) -> Interrupted | None:
    """What DeerMem's journal in the folder of a user says; None if there is none.

    Raises:
        CorruptionError: it can't be read, or names something outside the folder; nothing was touched.
    """
    path = root / JOURNAL
    data = atomic.read(path)
    if data is None:
        return None
    try:
        found = json.loads(data)
        operation, state, agent = found["operationId"], found["state"], found["agentName"]
        ids, old, revision = found["factIds"], found.get("oldEntries", {}), found["expectedRevision"]
        if not (isinstance(operation, str) and _OPERATION.fullmatch(operation)):
            raise ValueError(f"operationId: expected 32 hex digits; found {operation!r}")
        if state not in ("prepared", "committed"):
            raise ValueError(f"state: expected prepared or committed; found {state!r}")
        if not (isinstance(agent, str) and _AGENT.fullmatch(agent)):
            raise ValueError(f"agentName: expected the name of an agent; found {agent!r}")
        if not isinstance(ids, list) or not all(isinstance(id, str) and is_safe_id(id) for id in ids):
            raise ValueError(f"factIds: expected ids of facts; found {ids!r:.200}")
        if not isinstance(old, dict) or not set(old) <= set(ids):
            raise ValueError("oldEntries: expected some of factIds")
        if isinstance(revision, bool) or not isinstance(revision, int) or revision < 0:
            raise ValueError(f"expectedRevision: expected a whole number from 0; found {revision!r}")
        copies = root / _RECOVERY / operation
        undone: dict[str, bytes | None] = {}
        if state == "prepared":
            for id in ids:
                usual = f"agents/{agent.lower()}/facts/{shard_of(id)}/{id}.md"
                place = old[id]["path"] if id in old else usual
                confined(root, *place.split("/"))
                undone[place] = _copy(copies / f"{id}.md") if id in old else None
            # A manifest of revision 0 need not be absent: it may be of version 1, with facts in it.
            undone[FILE] = _copy(copies / FILE) if revision or (copies / FILE).exists() else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            os.fspath(path), None, f"DeerMem's journal can't be read ({error}); nothing was touched"
        ) from None
    return Interrupted(operation, undone)


def recover_interrupted(root: Path) -> bool:
    """Undo or clean up what DeerMem left, under the user's lock; True if there was something.

    Copies that a loss of power emptied are never written over a file that has content: then the file stays.

    Raises:
        CorruptionError: as `read_interrupted` does.
    """
    found = read_interrupted(root)
    if found is None:
        if (root / _RECOVERY).is_dir():
            remove_leftovers(root)  # whoever made these copies was killed before or behind its journal
        return False
    for place, before in found.undone.items():
        target = confined(root, *place.split("/"))
        now = atomic.read(target)
        if before is None and place != FILE:
            atomic.remove(target)
        elif before is None:
            if now is not None and not _has_facts(now):
                atomic.remove(target)
        elif before != now and (before.strip(b"\0") or not now):
            atomic.make_directory(target.parent)
            atomic.write(target, before)
    atomic.remove(root / JOURNAL)
    _remove_copies(confined(root, _RECOVERY, found.operation))
    return True


def remove_leftovers(root: Path) -> int:
    """Remove copies and temporary files that no journal speaks of, under the user's lock; returns their bytes."""
    if (root / JOURNAL).exists():
        return 0
    freed = 0
    for folder in _below(root, f"{_RECOVERY}/*"):
        if _OPERATION.fullmatch(folder.name):
            freed += _remove_copies(folder)
    for pattern in (".*.tmp", "agents/*/facts/*/.*.tmp"):
        for path in _below(root, pattern):
            if _TEMPORARY.fullmatch(path.name):
                freed += path.stat().st_size
                atomic.remove(path)
    return freed


def _below(root: Path, pattern: str) -> list[Path]:
    """What matches `pattern` below `root`, but nothing that lies behind a link."""
    found = []
    for path in root.glob(pattern):
        with contextlib.suppress(StorageError):
            found.append(confined(root, *path.relative_to(root).parts))
    return found


def _copy(path: Path) -> bytes:
    data = atomic.read(path)
    if data is None:
        raise InputError(f"the copy {path.name} is missing")
    return data


def _has_facts(data: bytes) -> bool:
    try:
        return bool(json.loads(data).get("facts"))
    except (ValueError, AttributeError):
        return True


def _remove_copies(folder: Path) -> int:
    """Remove a folder of copies, and the one that it lies in if nothing else does; returns the bytes."""
    freed = 0
    for path in folder.glob("*"):
        freed += path.lstat().st_size
        atomic.remove(path, durable=False)
    if folder.is_dir():
        folder.rmdir()
        left = folder.parent
        if not any(left.iterdir()):
            left.rmdir()
            left = left.parent
        atomic.sync_directory(left)
    return freed
