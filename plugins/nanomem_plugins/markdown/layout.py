"""Where things lie: DeerMem's folders for what DeerMem can name, folders of our own for everything else.

::

    {root}/users/{user}/                     or {root} itself, where DeerMem ran without users
      memory.json, .memory.lock              DeerMem's, shared with it
      .nanomem/journal, user.json            ours
      agents/{agent}/                        agents that DeerMem can name
        facts/{xx}/{id}.md                   what is true now, for DeerMem and for people
        history/{xx}/{id}.md                 what was true before
        .nanomem/records/{xx}/{id}.md        episodes, messages, summaries, and what DeerMem could not read
        .nanomem/state.json, edits.json
      .nanomem/agents/{agent}/               the same for all other agents

``xx`` are the first two hex digits of the SHA-256 of the id.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from nanomem_core.errors import InputError
from nanomem_core.fileio import atomic
from nanomem_core.fileio.names import confined, decode_name, encode_name

from .document import Owner
from .frontmatter import parse

__all__ = [
    "PLACES",
    "Layout",
    "Place",
    "UserFolder",
    "agent_folder",
    "document_path",
    "is_plain_id",
    "is_safe_id",
    "place_folder",
    "place_of",
    "shard_of",
]

Place = Literal["facts", "history", "records"]
PLACES: tuple[Place, ...] = ("facts", "history", "records")
_FOLDERS: dict[Place, str] = {"facts": "facts", "history": "history", "records": ".nanomem/records"}

DEFAULT_AGENT = "__default__"
"""DeerMem's folder of the agent that was given no name: our agent ``default``. The two names are exchanged, so that an
agent that DeerMem knows as ``default`` is our ``__default__``."""

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_AGENTS = ("agents", ".nanomem/agents")
_SAFE_ID = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN_USER = re.compile(r"[a-z0-9_-]{1,100}")
_PLAIN_AGENT = re.compile(r"[a-z0-9-]{1,100}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_HASHED = re.compile(r".*-[0-9a-f]{16}")
_USER_FILE, _AGENT_FILE = ".nanomem/user.json", ".nanomem/agent.json"


class UserFolder:
    """The folder of one user.

    Attributes:
        name: the user.
        path: the folder.
        shown: the user as front matter names it: None where DeerMem ran without users.
    """

    def __init__(self, name: str, path: Path, shown: str | None) -> None:
        self.name = name
        self.path = path
        self.shown = shown

    def owner(self, folder: str) -> Owner:
        """Whose documents lie in the folder of an agent."""
        return Owner(self.shown, folder.rpartition("/")[2])

    def agents(self) -> Iterator[tuple[str, str]]:
        """Name and folder (relative to `path`) of every agent that has one."""
        for parent in _AGENTS:
            for name in _folders(self.path / parent):
                agent = _agent_name(parent, name, self.path)
                if agent is not None:
                    yield agent, f"{parent}/{name}"

    def agent_in(self, folder: str) -> str | None:
        """The agent whose folder that is, None if it is nobody's."""
        parent, _, name = folder.rpartition("/")
        return _agent_name(parent, name, self.path) if parent in _AGENTS else None

    def remember(self, agent: str) -> None:
        """Make the user's folder and, where names of folders don't tell whose they are, files that do."""
        atomic.make_directory(confined(self.path, ".nanomem"))
        if self.path.name != self.name:
            _write_name(self.path, _USER_FILE, "user", self.name)
        folder = agent_folder(self, agent)
        if self.agent_in(folder) != agent:
            _write_name(self.path, f"{folder}/{_AGENT_FILE}", "agent", agent)


class Layout:
    """The folders of all users below one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._users = root / "users"

    def user(self, name: str) -> UserFolder:
        """The folder of `name`, which need not exist.

        A folder that DeerMem made for that very user is used; else the name is that of DeerMem where it can belong to
        nobody else on any disk, and an encoded one otherwise.

        Raises:
            StorageError: it is a link, or lies behind one.
        """
        if name == "default" and self._is_single():
            return UserFolder(name, self.root, None)
        ours, theirs = _our_folder(name), _their_folder(name)
        for folder in dict.fromkeys((ours, theirs)):
            if self._owner(folder, name) == name:
                return UserFolder(name, confined(self.root, "users", folder), name)
        safe = _PLAIN_USER.fullmatch(theirs) and encode_name(theirs) == theirs
        chosen = theirs if safe and theirs != name else ours
        if self._owner(chosen, name) is not None:
            chosen = ours
        return UserFolder(name, confined(self.root, "users", chosen), name)

    def users(self) -> Iterator[UserFolder]:
        """Every user that has a folder."""
        if self._is_single():
            yield UserFolder("default", self.root, None)
        for folder in _folders(self._users):
            name = self._owner(folder, None)
            if name is not None and not (name == "default" and self._is_single()):
                yield UserFolder(name, self._users / folder, name)

    def _is_single(self) -> bool:
        """True where DeerMem ran without users: its files lie in the root."""
        return (self.root / "memory.json").is_file() or (self.root / "agents").is_dir()

    def _owner(self, folder: str, asked: str | None) -> str | None:
        """Whose folder that is; None if there is none. `asked` is believed where nothing else tells."""
        path = self._users / folder
        if not _is_folder(self._users, folder):
            return None
        said = _read_name(path / _USER_FILE) or _name_in_a_fact(path)
        if said is not None:
            return said
        try:
            decoded = decode_name(folder)
        except InputError:
            decoded = folder if _UNSAFE.search(folder) is None else None
        if asked is not None and folder == _their_folder(asked) != asked:
            return asked
        return decoded


def agent_folder(user: UserFolder, agent: str) -> str:
    """The folder of an agent, relative to the user's."""
    if agent == "default":
        return f"agents/{DEFAULT_AGENT}"
    if agent == DEFAULT_AGENT:
        return "agents/default"
    # DeerMem takes a folder lead-agent without configuration for an older form of the default agent's.
    known = agent != "lead-agent" or (user.path / "agents/lead-agent/config.yaml").is_file()
    encoded = encode_name(agent)
    if known and _PLAIN_AGENT.fullmatch(agent) and encoded == agent:
        return f"agents/{agent}"
    return f".nanomem/agents/{encoded}"


def is_plain_id(id: str) -> bool:
    """True if DeerMem can name a file by it, and every disk can keep that name."""
    return _PLAIN_ID.fullmatch(id) is not None and encode_name(id.lower()) == id.lower()


def is_safe_id(id: str) -> bool:
    """True if it is of DeerMem's grammar, and so no path."""
    return _SAFE_ID.fullmatch(id) is not None


def shard_of(id: str) -> str:
    """The folder, below the facts of an agent, in which an id lies."""
    return hashlib.sha256(id.encode()).hexdigest()[:2]


def document_path(folder: str, place: Place, id: str) -> str:
    """The file of a record, relative to the user's folder."""
    stem = id if place == "facts" else encode_name(id)
    return f"{place_folder(folder, place)}/{shard_of(id)}/{stem}.md"


def place_folder(folder: str, place: Place) -> str:
    """The folder of a place, relative to the user's folder."""
    return f"{folder}/{_FOLDERS[place]}"


def place_of(path: str, folder: str) -> Place | None:
    """In which of the places of an agent's folder the file `path` lies."""
    rest = path.removeprefix(folder + "/")
    return next((place for place, name in _FOLDERS.items() if rest.startswith(name + "/")), None)


def _agent_name(parent: str, folder: str, user: Path) -> str | None:
    if parent == "agents":
        if folder == DEFAULT_AGENT:
            return "default"
        if folder == "default":
            return DEFAULT_AGENT
        if folder == "lead-agent" and not (user / "agents/lead-agent/config.yaml").is_file():
            return None
        return folder if _PLAIN_AGENT.fullmatch(folder) else None
    said = _read_name(user / parent / folder / _AGENT_FILE)
    if said is not None:
        return said
    try:
        return decode_name(folder)
    except InputError:
        return None


def _their_folder(name: str) -> str:
    """DeerMem's name for the folder of a user."""
    plain = _UNSAFE.sub("-", name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _our_folder(name: str) -> str:
    """The encoded name, changed where DeerMem could give the same name to the folder of another user."""
    encoded = encode_name(name)
    return f"%{ord(encoded[0]):02x}{encoded[1:]}" if _HASHED.fullmatch(encoded) else encoded


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(parent: Path, name: str) -> bool:
    """True if `parent` has that folder, in that very spelling."""
    if len(name) > 255:
        return False  # longer than any disk's names
    path = parent / name
    if not path.is_dir() or path.is_symlink():
        return False
    return name == name.lower() or name in _folders(parent)


def _write_name(user: Path, file: str, what: str, name: str) -> None:
    path = confined(user, *file.split("/"))
    if not path.exists():
        atomic.make_directory(path.parent)
        atomic.write(path, json.dumps({what: name}, ensure_ascii=False).encode() + b"\n")


def _read_name(path: Path) -> str | None:
    data = atomic.read(path)
    try:
        found = None if data is None else json.loads(data)
    except ValueError:
        return None
    name = next(iter(found.values()), None) if isinstance(found, dict) else None
    return name if isinstance(name, str) and name else None


def _name_in_a_fact(path: Path) -> str | None:
    """The user that the first readable fact below `path` names."""
    for file in (path / "agents").glob("*/facts/*/*.md"):
        try:
            text = confined(path, *file.relative_to(path).parts).read_text("utf-8", "replace")
            user = parse(text.partition("---\n")[2].partition("\n---\n")[0] + "\n").values.get("user_id")
        except (InputError, OSError):
            continue
        else:
            if isinstance(user, str):
                return user
    return None
