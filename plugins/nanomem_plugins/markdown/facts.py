"""DeerMem's form of a fact: a mapping of JSON types, as its repository takes and gives it.

Keys: ``id``, ``schemaVersion`` (2), ``content``, ``title``, ``category``, ``confidence``, ``status`` ("active"),
``scope`` ({userId, agentName}), ``topics``, ``consolidatedFrom``, ``source`` ({type, threadId}), ``createdAt``,
``updatedAt``, ``revision``; where they apply ``categoryExtension``, ``lastConfirmedAt``, ``confirmationCount``,
``sourceError``, ``expected_valid_days``, ``consolidatedAt``; and any other key, which is kept as it is.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from nanomem_core.errors import InputError
from nanomem_core.records import read_share
from nanomem_core.times import format_time, parse_time

__all__ = [
    "CATEGORIES",
    "DEFAULT_CATEGORY",
    "DEFAULT_CONFIDENCE",
    "MAX_TITLE",
    "SCHEMA_VERSION",
    "SOURCE_TYPES",
    "Fact",
    "category_of",
    "check_id",
    "derived_title",
    "duplicate_key",
    "new_fact_id",
    "normalise",
    "public_form",
    "same_fact",
    "source_form",
    "source_text",
]

Fact = dict[str, Any]

SCHEMA_VERSION = 2
CATEGORIES = frozenset(
    {
        "behavior", "cognitive", "constraint", "context", "correction", "decision", "goal", "identity", "other",
        "preference",
    }
)  # fmt: skip
"""What may stand in a file; any other category is ``other`` there, with its name in ``categoryExtension``."""

MAX_TITLE = 160
"""Characters."""

DEFAULT_CATEGORY = "context"
DEFAULT_CONFIDENCE = 0.5
SOURCE_TYPES = frozenset({"consolidation", "import", "manual", "unknown"})
"""Texts that name the type of a source; any other is the id of a conversation."""

_ID = re.compile(r"[A-Za-z0-9_-]+")


def new_fact_id() -> str:
    return f"fact_{uuid.uuid4().hex}"


def check_id(id: object) -> str:
    """`id` if DeerMem can name a file by it.

    Raises:
        InputError: it holds something other than ASCII letters, digits, ``_`` and ``-``.
    """
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise InputError(f"id: expected ASCII letters, digits, _ and -; found {id!r}")
    return id


def normalise(fact: Mapping[str, Any], scope: Mapping[str, str | None], now: float, stored: Fact | None = None) -> Fact:
    """`fact` checked, complete and in the order of the file, as it follows `stored`.

    `createdAt` and, unless something changed, `updatedAt` and `revision` are those of `stored`; else `revision` is the
    next one and `updatedAt` is `now`. A title that was made of the old content is made anew.

    Raises:
        InputError: a value has the wrong form or range; the message names the key.
    """
    if not isinstance(fact, Mapping):
        raise InputError(f"fact: expected a mapping; found {type(fact).__name__}")
    given = {key: value for key, value in fact.items() if value is not None or key not in _OPTIONAL}
    content = given.get("content")
    if not isinstance(content, str) or not content.strip():
        raise InputError(f"content: expected a text that is not empty; found {content!r:.80}")
    content = content.strip()
    if given.get("status", "active") != "active":
        raise InputError(f"status: expected 'active' (what is no longer so is deleted); found {given['status']!r}")
    if "scope" in given:
        _check_scope(given["scope"], scope)
    created = stored["createdAt"] if stored else _time(given.get("createdAt", format_time(now)), "createdAt")
    category, extension = _category(given)
    result: Fact = {
        "id": check_id(given.get("id", stored["id"] if stored else new_fact_id())),
        "schemaVersion": SCHEMA_VERSION,
        "content": content,
        "title": _title(given, content, stored),
        "category": category,
        **({} if extension is None else {"categoryExtension": extension}),
        "topics": _texts(given.get("topics", []), "topics"),
        "confidence": _confidence(given.get("confidence", DEFAULT_CONFIDENCE)),
        "status": "active",
        "scope": dict(scope),
        "source": source_form(given.get("source")),
        "createdAt": created,
        "updatedAt": _time(given.get("updatedAt", created), "updatedAt"),
        "revision": _count(given.get("revision", 1), "revision"),
        "consolidatedFrom": _texts(given.get("consolidatedFrom", []), "consolidatedFrom"),
    }
    for key, value in given.items():
        if key not in result and key != "categoryExtension":
            result[key] = _OPTIONAL[key](value, key) if key in _OPTIONAL else _plain(value, str(key))
    if stored is not None and same_fact(result, stored):
        return stored
    if stored is not None:
        result |= {"revision": stored["revision"] + 1, "updatedAt": format_time(now)}
    if result["consolidatedFrom"]:
        result.setdefault("consolidatedAt", result["updatedAt"])
    return result


def same_fact(fact: Fact, other: Fact) -> bool:
    """True if nothing but `revision` and `updatedAt` differs."""
    return _significant(fact) == _significant(other)


def _significant(fact: Fact) -> dict[str, Any]:
    return {key: value for key, value in fact.items() if key not in ("revision", "updatedAt")}


def category_of(fact: Mapping[str, Any]) -> str:
    """The category as it was given: the extension where there is one."""
    extension = fact.get("categoryExtension")
    return str(extension if fact.get("category") == "other" and extension else fact.get("category", DEFAULT_CATEGORY))


def source_text(source: Mapping[str, Any]) -> str:
    """`source` as one text: the thread of a conversation, else the type; ``unknown`` where neither is there."""
    if source.get("type") == "conversation" and source.get("threadId"):
        return str(source["threadId"])
    return str(source.get("type") or "unknown")


def public_form(fact: Fact) -> Fact:
    """`fact` with its source and its category as one text each."""
    shown = {key: value for key, value in fact.items() if key != "categoryExtension"}
    return shown | {"source": source_text(fact["source"]), "category": category_of(fact)}


def duplicate_key(content: str) -> str:
    """Facts with one key say the same."""
    return content.strip().casefold()


def derived_title(content: str) -> str:
    """The title of a fact that was given none: its first line."""
    return (content.strip().splitlines() or [""])[0].strip()[:MAX_TITLE].rstrip()


def _title(given: Mapping[str, Any], content: str, stored: Fact | None) -> str:
    title = given.get("title", None if stored is None else stored["title"])
    if title is None:
        return derived_title(content)
    if not isinstance(title, str):
        raise InputError(f"title: expected a text; found {title!r:.80}")
    title = " ".join(title.split())[:MAX_TITLE].rstrip()
    if not title or (stored is not None and title == stored["title"] == derived_title(stored["content"])):
        return derived_title(content)
    return title


def _category(given: Mapping[str, Any]) -> tuple[str, str | None]:
    category, extension = given.get("category", DEFAULT_CATEGORY), given.get("categoryExtension")
    for name, value in (("category", category), ("categoryExtension", "-" if extension is None else extension)):
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{name}: expected a text that is not empty; found {value!r:.80}")
    category = str(category).strip()
    if category not in CATEGORIES:
        return "other", category
    return category, str(extension).strip() if category == "other" and extension is not None else None


def _check_scope(found: object, scope: Mapping[str, str | None]) -> None:
    if not isinstance(found, Mapping):
        raise InputError(f"scope: expected {{'userId': …, 'agentName': …}}; found {found!r:.80}")
    user, agent = found.get("userId"), found.get("agentName")
    if (user is not None and user != scope["userId"]) or (
        agent is not None and str(agent).casefold() != str(scope["agentName"]).casefold()
    ):
        raise InputError(f"scope: expected {dict(scope)}; found {dict(found)}. A fact is written to its own scope")


def source_form(given: object) -> dict[str, Any]:
    """`given`, a text or a mapping, as the mapping that stands in a file.

    Raises:
        InputError: it has another form.
    """
    if given is None:
        return {"type": "unknown", "threadId": None}
    if isinstance(given, str):
        text = given.strip()
        if not text or text in SOURCE_TYPES:
            return {"type": text or "unknown", "threadId": None}
        return {"type": "conversation", "threadId": text}
    if isinstance(given, Mapping):
        kind, thread = given.get("type", "unknown"), given.get("threadId")
        if isinstance(kind, str) and kind.strip() and isinstance(thread, str | None):
            return {**_plain(given, "source"), "type": kind, "threadId": thread}
    raise InputError(f"source: expected a text, or {{'type': text, 'threadId': text or None}}; found {given!r:.80}")


def _confidence(value: object) -> float:
    share = read_share(value)
    if share is None:
        raise InputError(f"confidence: expected a number from 0 to 1; found {value!r}")
    return share


def _texts(value: object, name: str) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{name}: expected a list of texts; found {value!r:.80}")
    return list(value)


def _time(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name}: expected a time as an ISO 8601 text; found {value!r}")
    parse_time(value, name)
    return value


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name}: expected a whole number from 1; found {value!r}")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name}: expected a text; found {value!r:.80}")
    return value


def _days(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name}: expected a whole number of days; found {value!r:.80}")
    return value


_OPTIONAL: dict[str, Callable[[object, str], Any]] = {
    "confirmationCount": _count,
    "consolidatedAt": _time,
    "expected_valid_days": _days,
    "lastConfirmedAt": _time,
    "sourceError": _text,
}


def _plain(value: Any, name: str) -> Any:
    """A copy of `value` if a YAML file can hold it as it is."""
    if value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item, name) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, name) for key, item in value.items()}
    raise InputError(f"{name}: expected texts, finite numbers, lists and mappings; found {value!r:.80}")
