"""One record as one line of JSON that Nemori reads too, and back.

The keys and their order are those of Nemori v0.1.1. What it has no place for stands in ``metadata`` under the key
``nanomem``, which Nemori keeps when it writes a line anew.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from nanomem_core.errors import InputError, TimeError
from nanomem_core.records import Kind, Record, Scope, check_record, clean_text
from nanomem_core.times import parse_time

__all__ = ["Line", "decode", "encode"]

_EXTRA = "nanomem"

_IDS: dict[Kind, str] = {
    "episode": "episode_id",
    "fact": "memory_id",
    "message": "message_id",
    "summary": "summary_id",
    "purged": "purged_id",
}

_PROMOTED: dict[Kind, dict[str, tuple[str, str]]] = {
    "episode": {
        "title": ("title", "title"),
        "messages": ("original_messages", "source_messages"),
        "boundary_reason": ("boundary_reason", "boundary_reason"),
        "tags": ("tags", "tags"),
    },
    "fact": {
        "knowledge_type": ("knowledge_type", "memory_type"),
        "source_episodes": ("source_episodes", "source_episodes"),
        "confidence": ("confidence", "confidence"),
        "tags": ("tags", "tags"),
    },
    "message": {"role": ("role", "role")},
    "summary": {},
    "purged": {},
}
"""Keys of a record's metadata that Nemori keeps beside its own: their names there, in v0.1.1 and in v0.2.0."""

_SHAPES: dict[str, type | tuple[type, ...]] = {
    "title": str,
    "original_messages": dict,
    "boundary_reason": str,
    "tags": str,
    "knowledge_type": str,
    "source_episodes": str,
    "confidence": (int, float),
    "role": str,
}
_TAKEN_OVER = ("id", "source_messages", "memory_type", "source_episode_id")
"""Keys of v0.2.0 for what v0.1.1 keeps under another."""

_LISTS = ("original_messages", "tags", "source_episodes")
_DEFAULTS: dict[str, Any] = {
    "title": "",
    "original_messages": [],
    "boundary_reason": "",
    "tags": [],
    "knowledge_type": "knowledge",
    "source_episodes": [],
    "confidence": 0.8,
    "role": "user",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A record and its bytes in the file, without the newline.

    Attributes:
        place: orders the records of a scope by when their ids were first written; 0 if the line does not tell.
        sound: False if the line was written, or changed, by another program.
    """

    raw: bytes
    record: Record
    place: int
    sound: bool


def encode(record: Record, scope: Scope, place: int, base: Mapping[str, Any] | None = None) -> Line:
    """The line of `record`.

    Args:
        base: the line that it replaces, parsed; keys of other programs are kept, and times that are still the same.
    """
    base = base or {}
    metadata, promoted = _split(record)
    title, content = promoted.get("title", ""), record.text
    if title:
        content = record.text[len(title) + 2 :]
    created, told = _iso(record.valid_from), _iso(record.recorded_at)
    line: dict[str, Any] = {_IDS[record.kind]: record.id, "user_id": scope.user}
    match record.kind:
        case "episode":
            messages = promoted.get("original_messages", [])
            line |= {
                "title": title,
                "content": content,
                "original_messages": messages,
                "message_count": len(messages),
                "boundary_reason": promoted.get("boundary_reason", ""),
                "created_at": _kept(base, "created_at", told),
                "timestamp": _kept(base, "timestamp", created),
                "metadata": metadata,
                "tags": promoted.get("tags", []),
            }
        case "fact":
            line |= {
                "content": content,
                "knowledge_type": promoted.get("knowledge_type", "knowledge"),
                "created_at": _kept(base, "created_at", created),
                "updated_at": None if record.version < 2 else _kept(base, "updated_at", told),
                "source_episodes": promoted.get("source_episodes", []),
                "confidence": promoted.get("confidence", 0.8),
                "metadata": metadata,
                "tags": promoted.get("tags", []),
                "revision_count": max(record.version, 1),
            }
        case "message":
            line |= {"role": promoted.get("role", "user"), "content": content, "timestamp": created}
            line |= {"metadata": metadata}
        case _:
            line |= {"content": content, "timestamp": created, "created_at": told, "metadata": metadata}
    if scope.agent != "default":
        line["agent_id"] = scope.agent
    if record.kind != "purged":
        line |= {key: value for key, value in base.items() if key not in line and key not in _TAKEN_OVER}
    extra: dict[str, Any] = {"place": place, "version": record.version, "revision": record.revision}
    if record.entity is not None:
        extra["entity"] = record.entity
    if record.declared:
        extra["declared"] = True
    if record.source != "user_input":
        extra["source"] = record.source
    extra["times"] = [record.valid_from, record.valid_to, record.recorded_at, record.closed_at]
    if promoted:
        extra["keys"] = list(record.metadata)
    if _EXTRA in record.metadata:
        extra["metadata"] = dict(record.metadata)
    extra["check"] = _check(line, record.kind)
    line["metadata"] = metadata | {_EXTRA: extra}
    return Line(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode(), record, place, True)


def decode(data: Mapping[str, Any], raw: bytes, kind: Kind, scope: Scope) -> Line:
    """The record in a line, in Nemori's form of v0.1.1 or v0.2.0.

    Raises:
        InputError: it holds none, or one of another owner.
    """
    for key, owner in (("user_id", scope.user), ("agent_id", scope.agent)):
        # Nemori v0.1.1 knows no agents, and calls that of v0.2.0 "default".
        if data.get(key) not in (None, "", owner):
            raise InputError(f"it belongs to the {key} {data[key]!r}, not to {owner!r}")
    text = data.get("content")
    if not isinstance(text, str):
        raise InputError(f"content: expected a text; found {type(text).__name__}")
    id = data.get(_IDS[kind]) or data.get("id") or blake2b(raw, digest_size=16).hexdigest()
    found = data.get("metadata")
    metadata = dict(found) if isinstance(found, dict) else {}
    extra = metadata.pop(_EXTRA, None)
    extra = extra if isinstance(extra, dict) else {}
    sound = "check" in extra and extra["check"] == _check(data, kind)
    metadata = _joined(data, kind, metadata, extra)
    if kind == "episode" and isinstance(data.get("title"), str) and data["title"]:
        text = f"{data['title']}\n\n{text}"
    if not sound:
        text = clean_text(text)
    valid_from, valid_to, recorded_at, closed_at = _times(data, kind, extra, sound)
    version, revision, place = (_number(extra.get(key)) for key in ("version", "revision", "place"))
    record = Record(
        id,
        text,
        kind,
        extra.get("entity"),
        extra.get("declared", False),
        revision or 1,
        # An edit by another program is a version of its own.
        version if sound and version else version + 1,
        valid_from,
        valid_to,
        recorded_at,
        closed_at,
        extra.get("source", "user_input" if sound else "nemori"),
        metadata,
    )
    return Line(raw, check_record(record), place, sound and place > 0)


def _split(record: Record) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata that stays in ``metadata``, and what Nemori has keys of its own for."""
    if _EXTRA in record.metadata:
        return {}, {}
    metadata, promoted = dict(record.metadata), {}
    for key, (name, _) in _PROMOTED[record.kind].items():
        value = metadata.get(key)
        if key not in metadata or not _fits(name, value):
            continue
        if name == "title" and not (value and record.text.startswith(f"{value}\n\n")):
            continue
        promoted[name] = metadata.pop(key)
    return metadata, promoted


def _joined(data: Mapping[str, Any], kind: Kind, metadata: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The record's metadata, its keys in the order in which they were given."""
    if isinstance(extra.get("metadata"), dict):
        return dict(extra["metadata"])
    keys = extra.get("keys")
    named = set(keys) if isinstance(keys, list) else set()
    for key, names in _PROMOTED[kind].items():
        if key in metadata:
            continue
        value = next((data[name] for name in names if name in data), None)
        if _fits(names[0], value) and (key in named or value != _DEFAULTS[names[0]]):
            metadata[key] = value
    if kind == "fact" and isinstance(data.get("source_episode_id"), str):
        metadata.setdefault("source_episodes", [data["source_episode_id"]])
    if isinstance(keys, list):
        ordered = {key: metadata[key] for key in keys if isinstance(key, str) and key in metadata}
        metadata = ordered | metadata
    return metadata


def _fits(name: str, value: object) -> bool:
    shape = _SHAPES[name]
    if name in _LISTS:
        return isinstance(value, list) and all(isinstance(item, shape) for item in value)
    return isinstance(value, shape) and not isinstance(value, bool)


def _check(data: Mapping[str, Any], kind: Kind) -> str:
    """A checksum of all that Nemori may show or change."""
    metadata = data.get("metadata")
    shown = {key: value for key, value in metadata.items() if key != _EXTRA} if isinstance(metadata, dict) else metadata
    names = [_IDS[kind], "content", "timestamp", "created_at", *(name for name, _ in _PROMOTED[kind].values())]
    text = json.dumps([*(data.get(name) for name in names), shown], sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x}"


def _times(
    data: Mapping[str, Any], kind: Kind, extra: Mapping[str, Any], sound: bool
) -> tuple[float, float | None, float, float | None]:
    """`valid_from`, `valid_to`, `recorded_at` and `closed_at`: exactly, unless somebody changed what is shown."""
    created = _seconds(data.get("created_at"))
    event = created if kind == "fact" else _seconds(data.get("timestamp"))
    told = _seconds(data.get("updated_at")) if kind == "fact" else created
    shown = next((time for time in (event, created, told) if time is not None), 0.0)
    times = extra.get("times")
    if not isinstance(times, list) or len(times) != 4:
        return shown, None, shown if told is None else told, None
    valid_from, valid_to, recorded_at, closed_at = times
    if not sound and _seconds(_iso(valid_from)) != shown:
        valid_from = shown
    return valid_from, valid_to, recorded_at, closed_at


def _seconds(value: object) -> float | None:
    if not isinstance(value, (str, int, float)):
        return None
    try:
        return parse_time(value)
    except TimeError:
        return None


def _iso(seconds: float) -> str:
    """A time in UTC as Nemori writes it, without a zone: times of which some have one and some not break it."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.max if seconds > 0 else datetime.min
    return moment.replace(tzinfo=None).isoformat()


def _kept(base: Mapping[str, Any], key: str, text: str) -> Any:
    """What stood there before, if it is the same time."""
    return base[key] if key in base and _seconds(base[key]) == _seconds(text) else text


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0
