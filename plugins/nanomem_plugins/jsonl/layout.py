"""Where the records of each scope lie below the root."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from nanomem_core.errors import InputError, StorageError
from nanomem_core.fileio.names import confined, decode_name, encode_name
from nanomem_core.records import Kind, Scope

__all__ = ["FILES", "Layout", "migrated", "quarantine"]

FILES: dict[Kind, tuple[str, str]] = {
    "episode": ("episodes", "_episodes.jsonl"),
    "fact": ("semantic", "_semantic.jsonl"),
    "message": ("messages", "_messages.jsonl"),
    "summary": ("summaries", "_summaries.jsonl"),
    "purged": ("purged", "_purged.jsonl"),
}
"""Folder and end of the name of the file for each kind; the first two are Nemori's."""

_LEGACY = ".json"
_AGENTS = "agents"
_OURS = ".nanomem"
_LOCKS = 16


class Layout:
    """Paths below `root`; those that a journal knows are relative, with ``/`` between their parts."""

    def __init__(self, root: str) -> None:
        self.root = root

    def data(self, scope: Scope, kind: Kind) -> str:
        """The file of the records of one kind."""
        folder, suffix = FILES[kind]
        return f"{_above(scope.agent)}{folder}/{encode_name(scope.user)}{suffix}"

    def older(self, scope: Scope, kind: Kind) -> list[str]:
        """Files in which Nemori may have kept them under another name: the bare user id, or a JSON array."""
        if scope.agent != "default" or kind not in ("episode", "fact"):
            return []
        folder, suffix = FILES[kind]
        names = [scope.user + suffix]
        if kind == "episode":
            names += [scope.user + _LEGACY, encode_name(scope.user) + _LEGACY]
        paths = dict.fromkeys(f"{folder}/{name}" for name in names if _is_component(name))
        paths.pop(self.data(scope, kind), None)
        return list(paths)

    def folder(self, scope: Scope) -> Path:
        """The folder of the scope's journal."""
        name = encode_name(scope.user)
        if scope.agent != "default":
            name += "~" + encode_name(scope.agent)
        return confined(self.root, _OURS, "scopes", name)

    def lock(self, scope: Scope) -> Path:
        """The lock file: one of a few that are shared and stay, so that none tells of a scope that was erased."""
        digest = blake2b(f"{scope.user}\0{scope.agent}".encode(), digest_size=1).digest()
        return confined(self.root, _OURS, "locks", f"{digest[0] % _LOCKS:x}")

    @property
    def derived(self) -> Path:
        return confined(self.root, _OURS, "derived")

    def absolute(self, path: str) -> Path:
        """Where `path` is.

        Raises:
            StorageError: a link stands on the way.
        """
        return confined(self.root, *path.split("/"))

    def scopes(self) -> Iterator[Scope]:
        """Each scope that has a file or a journal, once; some may hold no record."""
        found = dict.fromkeys(self._of_agent("", "default"))
        for name in self._names(_AGENTS, ""):
            agent = _decoded(name)
            for scope in self._of_agent(f"{_AGENTS}/{name}/", agent):
                found.setdefault(scope)
        for name in self._names(os.path.relpath(os.path.join(self.root, _OURS, "scopes"), self.root), ""):
            # A journal may be ahead of its files. What was too long to be read back is found by its files.
            user, mark, agent = name.partition("~")
            names = [_decoded(user), _decoded(agent) if mark else "default"]
            if None not in names:
                found.setdefault(Scope(*(str(part) for part in names)))
        yield from found

    def _of_agent(self, above: str, agent: str | None) -> Iterator[Scope]:
        for kind, (folder, suffix) in FILES.items():
            suffixes = (suffix, _LEGACY) if kind == "episode" and not above else (suffix,)
            for end in suffixes:
                for name in self._names(above + folder, end):
                    user = _decoded(name, raw=not above)
                    first = {} if user and agent else self._first(f"{above}{folder}/{name}{end}")
                    names = (user or first.get("user_id"), agent or first.get("agent_id"))
                    if all(isinstance(each, str) and each for each in names):
                        yield Scope(*map(str, names))

    def _names(self, folder: str, suffix: str) -> list[str]:
        try:
            names = os.listdir(os.path.join(self.root, *folder.split("/")))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix) and name != suffix)

    def _first(self, path: str) -> dict[str, object]:
        """The first line of a file that can be read."""
        try:
            with self.absolute(path).open("rb") as lines:
                for line in lines:
                    try:
                        found = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(found, dict):
                        return found
        except (OSError, StorageError):
            pass
        return {}


def quarantine(path: str) -> str:
    """The file beside `path` for what can't be read in it."""
    return path + ".quarantine"


def migrated(path: str) -> str:
    """What an older file is called once its records were taken over."""
    return path + ".migrated"


def _above(agent: str) -> str:
    return "" if agent == "default" else f"{_AGENTS}/{encode_name(agent)}/"


def _is_component(name: str) -> bool:
    return (
        name not in (".", "..")
        and not any(char in name for char in '/\\:\0*?"<>|')
        and len(name.encode("utf-8", "surrogatepass")) <= 255
        and name.rstrip(". ") == name
    )


def _decoded(name: str, *, raw: bool = False) -> str | None:
    """The name that was encoded; None if it was too long; with `raw` a name that never was encoded is itself."""
    try:
        return decode_name(name)
    except InputError:
        return name if raw else None
