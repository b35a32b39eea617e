"""DeerMem's first layout, in which ``memory.json`` holds the facts too, and the step to the second.

`read_legacy` only reads. The store takes what it returns over in one commit, after `back_up` has made a copy of every
file that goes; so a crash leaves the old layout or the new one, and whoever comes next finds the work to do or done.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nanomem_core.errors import ConflictError, CorruptionError, FormatError, InputError, StorageError
from nanomem_core.fileio import atomic
from nanomem_core.fileio.journal import Remove, Replace, Write
from nanomem_core.fileio.names import confined
from nanomem_core.interfaces import Migration
from nanomem_core.times import format_time

from .document import Owner, parse_document
from .facts import Fact, derived_title, normalise
from .instants import time_value
from .layout import DEFAULT_AGENT, UserFolder, agent_folder
from .manifest import FILE, VERSION, empty_sections, parse_manifest
from .mapping import fact_of, new_record
from .state import AgentState
from .summaries import Summaries, adopted, sections_of
from .writes import document_writes

if TYPE_CHECKING:
    from .user import User

__all__ = ["REPORT", "copies", "is_legacy", "migrate", "plan_migration"]

REPORT = ".nanomem/migration.json"
"""What could not be taken over, below the user's folder: it is kept there whole, with the reason."""

_LEAD_AGENT = "lead-agent"
_HASHED = re.compile(r".*-[0-9a-f]{16}")
_IGNORED_IN_COMPARISON = frozenset({"createdAt", "revision", "schemaVersion", "scope", "title", "updatedAt"})


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that is no fact.

    Attributes:
        source: the file, relative to the user's folder.
        place: where in it.
        fact: what was found there.
    """

    source: str
    place: str
    reason: str
    fact: Any

    @property
    def id(self) -> str | None:
        found = self.fact.get("id") if isinstance(self.fact, dict) else None
        return found if isinstance(found, str) else None

    def to_dict(self) -> dict[str, Any]:
        return {"source": self.source, "place": self.place, "reason": self.reason, "fact": self.fact}


@dataclass(slots=True)
class Legacy:
    """What the first layout left in a user's folder.

    Attributes:
        version: of ``memory.json``.
        sources: the JSON files that go or change, by their path relative to the user's folder.
        removed: files that go: those of agents, and others whose content is in `facts`.
        folders: folders that may be empty then.
        facts: for the folder of an agent (relative to the user's) its facts, by id.
        summaries: as they are to stand in ``memory.json``.
        refused: what stays behind.
    """

    version: str
    sources: dict[str, bytes] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    facts: dict[str, dict[str, Fact]] = field(default_factory=dict)
    summaries: Summaries = field(default_factory=empty_sections)
    refused: list[Refused] = field(default_factory=list)


def copies(folder: str) -> list[str]:
    """The files, relative to the user's folder, in which a migration kept what the older layout held of an agent."""
    return [f"{FILE}.v1.bak", f"{folder}/{FILE}.v1.bak", REPORT]


def is_legacy(user: UserFolder) -> bool:
    """True if there may be something to take over.

    Raises:
        CorruptionError: ``memory.json`` can't be read.
    """
    path = user.path / FILE
    if not parse_manifest(atomic.read(path), str(path)).is_current:
        return True
    folders = _agent_folders(user)
    return any((user.path / folder / FILE).exists() or _is_lead(user, folder) for folder in folders)


def plan_migration(user: User) -> Migration:
    """What `migrate` would do. Writes nothing.

    Raises:
        NanomemError: what keeps it from being done.
    """
    legacy = read_legacy(user.folder, time.time())
    if legacy is None:
        return _current(user)
    _check_copies(user.folder, legacy)
    new, skipped = _compared(legacy, lambda folder: _held_facts(user, folder))
    return _report(user, "planned", legacy, sum(map(len, new.values())), skipped)


def migrate(user: User, agent: str = "default", clearing: bool = False) -> Migration:
    """Take over what there is in an older layout, under the user's lock.

    Args:
        agent: whose the facts of ``memory.json`` become.
        clearing: everything is deleted next, so no conflict matters: summaries of agents are left alone, and of two
            facts of one id the present one stays.

    Raises:
        ConflictError: two facts of one id, or two summaries of one name, say different things; nothing was changed.
        StorageError: something is in the way; nothing was changed.
    """
    now = time.time()
    legacy = read_legacy(user.folder, now, agent_folder(user.folder, agent), not clearing)
    if legacy is None:
        return _current(user)
    states = {folder: user.ready(_agent_of(user.folder, folder)) for folder in legacy.facts}
    new, skipped = _compared(legacy, lambda folder: _facts_in(states[folder]), keep_present=clearing)
    back_up(user.folder, legacy)
    # Until the last commit the old files are what counts, so those before it may be done twice.
    for folder, facts in new.items():
        if facts:
            updated = {fact["id"]: time_value(fact["updatedAt"]) for fact in facts}
            writes, note = document_writes(states[folder], user.read, map(new_record, facts), (), now, updated)
            user.commit(states[folder], writes, note)
    manifest = user.manifest().next(now, legacy.summaries)
    last: list[Write] = [Replace(FILE, manifest.encode()), *map(Remove, legacy.removed)]
    if legacy.refused:
        last.append(Replace(REPORT, _encoded_report(legacy, now)))
    user.commit(user.ready("default"), last, {"folder": ""})
    for folder in legacy.folders:
        with contextlib.suppress(OSError):
            (user.path / folder).rmdir()
    return _report(user, "migrated", legacy, sum(map(len, new.values())), skipped)


def read_legacy(user: UserFolder, now: float, facts_of: str | None = None, summaries: bool = True) -> Legacy | None:
    """What there is to take over; None if all is of the second layout.

    Args:
        facts_of: the agent's folder that facts of ``memory.json`` go to; that of the default agent for None.
        summaries: take over the summaries of agents, too; False leaves them in their copy alone.

    Raises:
        CorruptionError: a file can't be read; nothing of this user is taken over then.
        StorageError: ``agents/lead-agent`` holds something else than facts.
        ConflictError: an agent's summary differs from the user's.
    """
    if user.name == user.path.name and _HASHED.fullmatch(user.name) and is_legacy(user):
        raise StorageError(
            f"{user.path}: expected a folder that tells its user; found the hash of a name. Ask for the user by name "
            "(on the command line: --user NAME); nothing was migrated"
        )
    default = f"agents/{DEFAULT_AGENT}"
    data = atomic.read(user.path / FILE)
    manifest = parse_manifest(data, str(user.path / FILE))
    if manifest.version.partition(".")[0] not in ("1", "2"):
        raise FormatError(
            f"{user.path / FILE}: expected version 1 or 2; found {manifest.version!r}. Update nanomem_core"
        )
    legacy = Legacy(manifest.version, summaries=sections_of(manifest))
    reader = _Reader(user, now, legacy)
    if data is not None and not manifest.is_current:
        legacy.sources[FILE] = data
        reader.take(manifest.facts, facts_of or default, FILE)
    for folder in _agent_folders(user):
        path = f"{folder}/{FILE}"
        data = atomic.read(confined(user.path, *path.split("/")))
        if data is None:
            continue
        found = parse_manifest(data, str(user.path / path))
        legacy.sources[path] = data
        legacy.removed.append(path)
        reader.take(found.facts, default if _is_lead(user, folder) else folder, path)
        if summaries:
            told = {"user": found.user, "history": found.history}
            try:
                legacy.summaries = adopted(legacy.summaries, told, str(user.path / path))
            except InputError as error:
                raise ConflictError(f"{error}. Nothing was migrated") from None
    reader.take_lead_agent(default)
    return legacy if legacy.sources or legacy.removed else None


def _current(user: User) -> Migration:
    return Migration(user.folder.name, "current", VERSION, VERSION)


def _report(user: User, state: Literal["planned", "migrated"], legacy: Legacy, moved: int, skipped: int) -> Migration:
    refused = tuple(f"{one.source}: {one.place}: {one.reason}" for one in legacy.refused)
    return Migration(user.folder.name, state, legacy.version, VERSION, moved, skipped, refused)


def _encoded_report(legacy: Legacy, now: float) -> bytes:
    report = {"migratedAt": format_time(now), "refused": [one.to_dict() for one in legacy.refused]}
    return json.dumps(report, ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace") + b"\n"


def _compared(
    legacy: Legacy, present: Callable[[str], Mapping[str, Fact]], keep_present: bool = False
) -> tuple[dict[str, list[Fact]], int]:
    """The facts that are not there yet, by folder, and how many are."""
    new: dict[str, list[Fact]] = {}
    skipped = 0
    for folder, facts in legacy.facts.items():
        there = present(folder)
        new[folder] = [fact for id, fact in facts.items() if id not in there]
        skipped += len(facts) - len(new[folder])
        for id, fact in facts.items():
            if id in there and not keep_present and conflicting(there[id], fact):
                raise ConflictError(
                    f"{folder}: id {id!r}: expected the same fact in the older layout; found another content. Nothing "
                    "was migrated; give one of the two another id",
                    id=id,
                )
    return new, skipped


def _facts_in(state: AgentState) -> dict[str, Fact]:
    return {record.id: fact_of(record, state.owner) for record in state.records()}


def _held_facts(user: User, folder: str) -> dict[str, Fact]:
    with user.reading(_agent_of(user.folder, folder)) as state:
        return _facts_in(state)


def _agent_of(user: UserFolder, folder: str) -> str:
    agent = user.agent_in(folder)
    if agent is None:
        raise StorageError(f"{user.path / folder}: expected the name of an agent; found another; nothing was migrated")
    return agent


def _check_copies(user: UserFolder, legacy: Legacy) -> dict[Path, bytes]:
    """The copies that have to be made."""
    pending = {}
    for path, data in legacy.sources.items():
        target = user.path / f"{path}.v1.bak"
        found = atomic.read(target)
        if found is None:
            pending[target] = data
        elif found != data:
            raise ConflictError(
                f"{target}: expected no copy, or one that equals {path}; found another. Nothing was migrated; move it "
                "away, and try again"
            )
    return pending


def back_up(user: UserFolder, legacy: Legacy) -> None:
    """Copy every source to ``<name>.v1.bak``, durably.

    Raises:
        ConflictError: there is another such copy; nothing was changed.
        StorageError: a copy can't be written.
    """
    for target, data in _check_copies(user, legacy).items():
        with atomic.disk_errors(f"{target}: can't be written, so nothing was migrated"):
            atomic.write(target, data)


def conflicting(found: Fact, legacy: Fact) -> bool:
    """True if two facts of one id say different things."""
    return any(found.get(key) != legacy.get(key) for key in (found.keys() | legacy.keys()) - _IGNORED_IN_COMPARISON)


class _Reader:
    """Sorts what it is given into facts and what is none."""

    def __init__(self, user: UserFolder, now: float, legacy: Legacy) -> None:
        self._user = user
        self._now = now
        self._legacy = legacy

    def take(self, found: Any, folder: str, source: str) -> None:
        if isinstance(found, Mapping):
            for id, entry in found.items():
                self._take_one(entry, folder, source, f"facts.{id}", id)
        elif isinstance(found, list):
            for number, fact in enumerate(found):
                self._take_one(fact, folder, source, f"facts[{number}]")
        elif found is not None:
            self._take_one(found, folder, source, "facts")

    def _take_one(self, given: Any, folder: str, source: str, place: str, pointer: str | None = None) -> None:
        try:
            fact = self._converted(
                given if pointer is None else self._pointed(pointer, given), self._user.owner(folder)
            )
            bucket = self._legacy.facts.setdefault(folder, {})
            if fact["id"] in bucket and conflicting(bucket[fact["id"]], fact):
                raise InputError(f"id: {fact['id']!r} stands here twice, with another content")
            bucket.setdefault(fact["id"], fact)
        except InputError as error:
            self._legacy.refused.append(Refused(source, place, str(error), given))

    def _converted(self, given: Any, owner: Owner) -> Fact:
        if not isinstance(given, Mapping):
            raise InputError(f"fact: expected an object; found {type(given).__name__}")
        fact = {key: value for key, value in given.items() if key not in ("scope", "schemaVersion")}
        for name in ("createdAt", "updatedAt"):
            if not fact.get(name):
                fact.pop(name, None)
        if "id" not in fact and isinstance(fact.get("content"), str):
            # The same fact gets the same id, however often it is tried.
            fact["id"] = f"fact_{hashlib.sha256(fact['content'].encode('utf-8', 'replace')).hexdigest()[:32]}"
        return normalise(fact, {"userId": owner.user, "agentName": owner.agent}, self._now)

    def _pointed(self, id: str, entry: Any) -> Fact:
        """The fact that an early second layout keeps in a file of its own."""
        if not isinstance(entry, Mapping) or not isinstance(entry.get("path"), str):
            raise InputError(f"fact: expected an object with a path; found {entry!r:.80}")
        parts = entry["path"].replace("\\", "/").split("/")
        try:
            data = atomic.read(confined(self._user.path, *parts))
        except OSError as error:
            raise InputError(f"path: {error}") from None
        if data is None:
            raise InputError(f"path: there is no file {entry['path']!r}")
        if "contentHash" in entry and not _matches(entry["contentHash"], data):
            raise InputError(f"contentHash: {entry['path']!r} is another file than it was")
        agent = parts[1] if parts[0] == "agents" and len(parts) > 2 else DEFAULT_AGENT
        document = parse_document(data, Owner(self._user.shown, agent), id)
        return _fact_of(document.record.text, document.front.values, document.heading)

    def take_lead_agent(self, default: str) -> None:
        """Facts of the folder in which an older default agent kept them."""
        folder = f"agents/{_LEAD_AGENT}"
        if not _is_lead(self._user, folder):
            return
        root = self._user.path / folder
        for path in sorted(_files(root)):
            inside = path.relative_to(root).as_posix()
            if inside in (FILE, f"{FILE}.v1.bak"):
                continue
            name = f"{folder}/{inside}"
            if not (inside.startswith("facts/") and inside.endswith(".md")) or path.is_symlink():
                raise StorageError(
                    f"{path}: expected nothing but facts in this folder; found this file. Give the agent its "
                    "config.yaml, or move the file away; nothing was migrated"
                )
            try:
                document = parse_document(path.read_bytes(), Owner(self._user.shown, _LEAD_AGENT), path.stem)
            except InputError as error:
                raise CorruptionError(str(path), None, str(error)) from None
            fact = _fact_of(document.record.text, document.front.values, document.heading)
            before = len(self._legacy.refused)
            self._take_one(fact, default, name, "file")
            if len(self._legacy.refused) > before:
                raise ConflictError(f"{path}: {self._legacy.refused[-1].reason}; nothing was migrated")
            self._legacy.removed.append(name)
        self._legacy.folders = [
            path.relative_to(self._user.path).as_posix() for path in sorted(_folders(root), reverse=True)
        ]


def _fact_of(content: str, values: Mapping[str, Any], heading: str | None) -> Fact:
    fact = {key: value for key, value in values.items() if key not in ("user_id", "agent_name")}
    title = {} if heading in (None, "", derived_title(content)) else {"title": heading}
    return {**fact, **title, "content": content}


def _matches(given: object, data: bytes) -> bool:
    return isinstance(given, str) and given.removeprefix("sha256:") == hashlib.sha256(data).hexdigest()


def _is_lead(user: UserFolder, folder: str) -> bool:
    return folder == f"agents/{_LEAD_AGENT}" and not (user.path / folder / "config.yaml").exists()


def _agent_folders(user: UserFolder) -> list[str]:
    try:
        with os.scandir(user.path / "agents") as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    return [f"agents/{name}" for name in names]


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names)


def _folders(root: Path) -> Iterator[Path]:
    yield from (Path(folder) for folder, _, _ in os.walk(root))
