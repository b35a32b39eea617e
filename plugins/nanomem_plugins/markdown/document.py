"""One record as a Markdown document: YAML front matter, a heading, and the text.

The fields are DeerMem's; metadata of a record are keys beside them. What DeerMem has no word for stands in one mapping
under the key ``nanomem``, which it keeps. A document that has the mapping was written by this store, and says by its
``seal`` whether anything was changed since. The format is documented in ``docs/reference/formats/markdown.md``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nanomem_core.errors import InputError
from nanomem_core.records import Record, check_record

from . import frontmatter
from .facts import (
    CATEGORIES,
    DEFAULT_CATEGORY,
    DEFAULT_CONFIDENCE,
    MAX_TITLE,
    SCHEMA_VERSION,
    derived_title,
    normalise,
    source_form,
    source_text,
)
from .frontmatter import FrontMatter
from .instants import time_text, time_value
from .seals import NO_SEAL, is_sealed, sealed

__all__ = [
    "MAX_FRONT",
    "OURS",
    "SOURCE_FORM",
    "Document",
    "Owner",
    "digest",
    "parse_document",
    "render_document",
    "shown_metadata",
    "source_of",
    "with_fields",
]

OURS = "nanomem"
"""The key of what DeerMem has no word for."""

MAX_FRONT = 1 << 18
"""Characters of a front matter that is read where people and other programs write; it is read in half a second."""

_FORMAT = 1
_DEFAULTS: dict[str, Any] = {
    "category": DEFAULT_CATEGORY,
    "topics": [],
    "confidence": DEFAULT_CONFIDENCE,
    "consolidatedFrom": [],
}
_OPTIONAL = (
    "categoryExtension", "lastConfirmedAt", "confirmationCount", "sourceError", "expected_valid_days", "consolidatedAt",
)  # fmt: skip
_OWN_FIELDS = (
    "id", "schemaVersion", "status", "user_id", "agent_name", "source", "createdAt", "updatedAt", "revision", OURS,
)  # fmt: skip
_TIMES = frozenset({"createdAt", "updatedAt", "lastConfirmedAt", "consolidatedAt"})
_NO_METADATA = frozenset({*_OWN_FIELDS, "content", "scope"})
SOURCE_FORM = "sourceForm"
"""Metadata for a source that its text alone does not tell."""

_FENCE = re.compile(r"---[ \t]*\r?\n")
_CLOSING = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)*")
_REST_OF_BLANK_LINE = re.compile(r"[ \t]*(?:\r?\n|\Z)")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose documents they are, as the front matter names them."""

    user: str | None
    agent: str


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read.

    Attributes:
        record: what it says; `version` is DeerMem's revision.
        birth: microseconds since 1970 at which its id was first written; no two of a scope are the same.
        sealed: True if nothing was changed since this store wrote it.
        updated_at: when it was last written, as it says; None if it doesn't.
        heading: the heading, None where there is none.
        tail: everything behind the front matter.
    """

    record: Record
    birth: int
    sealed: bool
    updated_at: str | None
    front: FrontMatter
    heading: str | None
    tail: str
    newline: str
    bom: bool


def digest(data: bytes) -> str:
    """Tells documents apart: 32 hex digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


# Reading.


def parse_document(data: bytes, owner: Owner, stem: str | None = None) -> Document:
    """Read a document.

    Args:
        stem: the name of the file without ``.md``, which must be the id, where DeerMem reads it too; then everything
            that DeerMem demands is demanded. None for a document in a folder of our own.

    Raises:
        InputError: it is no such document; the message says why.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start}: no UTF-8") from None
    bom = text.startswith("\ufeff")
    text = text.removeprefix("\ufeff")
    opening = _FENCE.match(text)
    if opening is None:
        raise InputError("expected a first line ---, which begins the front matter; found none")
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        raise InputError("expected a second line ---, which ends the front matter; found none")
    if stem is not None and closing.start() > MAX_FRONT:
        raise InputError(f"front matter: at most {MAX_FRONT} characters; found {closing.start()}")
    front = frontmatter.parse(text[opening.end() : closing.start()])
    tail = text[closing.end() :]
    heading, body = _split_tail(tail)
    values = front.values
    ours = values.get(OURS, {})
    if not isinstance(ours, dict):
        raise InputError(f"{OURS}: expected a mapping; found {type(ours).__name__}")
    if ours.get("format", _FORMAT) != _FORMAT:
        raise InputError(f"{OURS}: format {ours['format']!r} is of another release; update nanomem_core")
    if values.get("id") is None:
        raise InputError("id: expected the id of the fact; found none")
    if not isinstance(values["id"], str):
        raise InputError(f"id: expected a text; found {values['id']!r} (put it in quotes)")
    if stem is not None:
        _check_fact(values, heading, body, owner, stem)
    recorded = _created(values, ours)
    lead, trail = _outer(ours.get("outer", ["", ""]))
    record = Record(
        id=values["id"],
        text=f"{lead}{body.strip()}{trail}",
        kind=ours.get("kind", "fact"),
        entity=ours.get("entity"),
        declared=ours.get("declared", False),
        revision=ours.get("revision", 1),
        version=values.get("revision", 1),
        valid_from=time_value(ours.get("valid_from", recorded)),
        valid_to=_optional_time(ours.get("valid_to")),
        recorded_at=recorded,
        closed_at=_optional_time(ours.get("closed_at")),
        source=ours.get("source", source_text(_source(values.get("source")))),
        metadata=_metadata(values, ours, heading, body.strip()),
    )
    as_written = is_sealed(data, ours.get("seal"))
    if not as_written:
        check_record(record)
    birth = ours.get("birth")
    return Document(
        record,
        birth if isinstance(birth, int) else int(recorded * 1_000_000),
        as_written,
        _text_or_none(values.get("updatedAt")),
        front,
        heading,
        tail,
        "\r\n" if opening[0].endswith("\r\n") else "\n",
        bom,
    )


def _split_tail(tail: str) -> tuple[str | None, str]:
    # No single pattern: on a hostile line one that allows blanks at both ends takes quadratic time.
    start = _end(_BLANK_LINES, tail, 0)
    end = tail.find("\n", start)
    end = len(tail) if end < 0 else end + 1
    line = tail[start:end]
    if not line.startswith(("# ", "#\t")):
        return None, tail
    return line[1:].strip(), tail[_end(_REST_OF_BLANK_LINE, tail, end) :]


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where what `pattern` finds at `start` ends; `start` itself if it finds nothing."""
    found = pattern.match(text, start)
    return start if found is None else found.end()


def _check_fact(values: Mapping[str, Any], heading: str | None, body: str, owner: Owner, stem: str) -> None:
    if values["id"] != stem:
        raise InputError(f"id: expected {stem!r}, the name of the file; found {values['id']!r}")
    user, agent = values.get("user_id", owner.user), values.get("agent_name", owner.agent)
    if user != owner.user:
        raise InputError(f"user_id: expected {owner.user!r}; found {user!r}")
    if not isinstance(agent, str) or agent.lower() != owner.agent.lower():
        raise InputError(f"agent_name: expected {owner.agent!r}; found {agent!r}")
    if values.get("schemaVersion", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise InputError(f"schemaVersion: expected {SCHEMA_VERSION}; found {values['schemaVersion']!r}")
    fact = {key: value for key, value in values.items() if key not in (OURS, "user_id", "agent_name")}
    for name in _TIMES:
        if isinstance(fact.get(name), str):
            del fact[name]  # DeerMem takes any text
    if not isinstance(fact.get("source"), dict):
        fact.pop("source", None)
    normalise(fact | {"content": body, "title": heading or None}, {"userId": user, "agentName": agent}, 0.0)


def _outer(given: object) -> list[str]:
    if (
        isinstance(given, list)
        and len(given) == 2
        and all(isinstance(part, str) and not part.strip() for part in given)
    ):
        return given
    raise InputError(f"{OURS}: outer: expected two texts of blank space; found {given!r:.80}")


def _source(given: object) -> Mapping[str, Any]:
    if isinstance(given, str):
        return source_form(given)
    return given if isinstance(given, dict) else {}


def _created(values: Mapping[str, Any], ours: Mapping[str, Any]) -> float:
    for given in (ours.get("recorded_at"), values.get("createdAt"), values.get("updatedAt")):
        if given is not None:
            try:
                return time_value(given)
            except InputError:
                continue
    return 0.0


def _metadata(values: Mapping[str, Any], ours: Mapping[str, Any], heading: str | None, content: str) -> dict[str, Any]:
    found = _natural_metadata(values, ours, heading, content)
    keys = ours.get("keys")
    if not isinstance(keys, list):
        return found
    # What stands here with its default was put in for DeerMem, unless it is listed.
    spare = {**_spare(values), **({} if heading is None else {"title": heading}), **found}
    ordered = {key: spare[key] for key in keys if isinstance(key, str) and key in spare}
    return ordered | {key: value for key, value in found.items() if key not in ordered}


def _natural_metadata(
    values: Mapping[str, Any], ours: Mapping[str, Any], heading: str | None, content: str
) -> dict[str, Any]:
    """The metadata where no ``keys`` say more."""
    is_ours = bool(ours)
    found: dict[str, Any] = {}
    for key, value in values.items():
        if not _is_metadata(key, value):
            continue
        if key in _DEFAULTS and is_ours and value == _DEFAULTS[key]:
            continue
        found[key] = value
    extension = found.get("categoryExtension")
    if found.get("category") == "other" and isinstance(extension, str) and extension not in CATEGORIES:
        found["category"] = found.pop("categoryExtension")
    if heading and not is_ours and heading != derived_title(content):
        found["title"] = heading
    source = values.get("source")
    if isinstance(source, dict) and "source" not in ours and source != source_form(source_text(source)):
        found |= {SOURCE_FORM: source} if frontmatter.is_json(source) else {}
    nested = ours.get("metadata")
    return found | nested if isinstance(nested, dict) else found


def _is_metadata(key: Any, value: Any) -> bool:
    return isinstance(key, str) and key not in _NO_METADATA and key != "title" and frontmatter.is_json(value)


def _spare(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: values[key] for key in _DEFAULTS if key in values}


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _optional_time(value: object) -> float | None:
    return None if value is None else time_value(value)


# Writing.


def render_document(record: Record, birth: int, owner: Owner, updated: float, like: Document | None = None) -> bytes:
    """The document of `record`; what is as in `like` keeps its bytes.

    Args:
        updated: what it says it was written at, unix seconds.
    """
    bare = record.text.strip()
    values, ours, title = _values(record, owner, bare, like)
    created, shown = time_text(record.recorded_at), None if like is None else like.front.values.get("createdAt")
    if like is None or like.record.recorded_at != record.recorded_at or not isinstance(shown, str):
        shown = created if isinstance(created, str) else time_text(0.0)
    values["createdAt"] = shown
    said = time_text(updated)
    values["updatedAt"] = said if isinstance(said, str) else shown
    if _created(values, {}) != record.recorded_at:
        ours["recorded_at"] = created
    if bare != record.text:
        start = len(record.text) - len(record.text.lstrip()) if bare else len(record.text)
        ours["outer"] = [record.text[:start], record.text[start + len(bare) :]]
    ours |= {"birth": birth, "seal": NO_SEAL}
    values[OURS] = ours
    heading = derived_title(bare) or "Memory fact" if title is None else title
    newline = "\n" if like is None else like.newline
    if like is not None and _split_tail(like.tail)[1].strip() == bare and like.heading == heading:
        tail = like.tail
    else:
        tail = f"{newline}# {heading}{newline}{newline}{bare}{newline}"
    front = frontmatter.render(values, None if like is None else like.front, newline)
    data = f"{chr(0xFEFF) if like is not None and like.bom else ''}---{newline}{front}---{newline}{tail}".encode()
    return sealed(data)


def shown_metadata(record: Record) -> dict[str, Any]:
    """The metadata that stand beside DeerMem's fields, as they are."""
    return {k: v for k, v in record.metadata.items() if k != SOURCE_FORM and _can_be_shown(k, v)}


def source_of(record: Record) -> dict[str, Any]:
    """The source of a record in DeerMem's form."""
    form = record.metadata.get(SOURCE_FORM)
    if isinstance(form, dict) and source_text(form) == record.source:
        return form
    return source_form("manual" if record.source == "user_input" else record.source)


def _values(
    record: Record, owner: Owner, bare: str, like: Document | None
) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """The front matter but for times, the mapping of ours in it so far, and the heading that the metadata gives."""
    metadata = dict(record.metadata)
    shown, form = shown_metadata(record), source_of(record)
    title = shown.pop("title", None)
    values: dict[str, Any] = {
        "id": record.id,
        "schemaVersion": SCHEMA_VERSION,
        **_category_fields(shown.get("category", _DEFAULTS["category"])),
        "topics": shown.get("topics", []),
        "confidence": shown.get("confidence", _DEFAULTS["confidence"]),
        "status": "active",
        "user_id": owner.user,
        "agent_name": owner.agent,
        "source": form,
        "createdAt": "",
        "updatedAt": "",
        "revision": record.version,
        "consolidatedFrom": shown.get("consolidatedFrom", []),
        **{key: value for key, value in shown.items() if key not in _DEFAULTS},
    }
    if like is not None:
        # Keys of others that no metadata can hold.
        values |= {k: v for k, v in like.front.values.items() if k not in values and not _is_metadata(k, v)}
    ours: dict[str, Any] = {"format": _FORMAT}
    if record.kind != "fact":
        ours["kind"] = record.kind
    if record.entity is not None:
        ours |= {"entity": record.entity, **({"declared": True} if record.declared else {})}
    elif record.declared:
        ours["declared"] = True
    if record.revision != 1:
        ours["revision"] = record.revision
    if record.valid_from != record.recorded_at:
        ours["valid_from"] = time_text(record.valid_from)
    for name, value in (("valid_to", record.valid_to), ("closed_at", record.closed_at)):
        if value is not None:
            ours[name] = time_text(value)
    if source_text(form) != record.source:
        ours["source"] = record.source
    nested = {key: value for key, value in metadata.items() if not _can_be_shown(key, value)}
    if SOURCE_FORM in metadata and metadata[SOURCE_FORM] != form:
        nested[SOURCE_FORM] = metadata[SOURCE_FORM]
    if nested:
        ours["metadata"] = nested
    if title is not None or list(_natural_metadata(values, ours, None, bare)) != list(metadata):
        ours["keys"] = list(metadata)
    return values, ours, title


def _category_fields(category: str) -> dict[str, str]:
    return {"category": category} if category in CATEGORIES else {"category": "other", "categoryExtension": category}


def _can_be_shown(key: str, value: Any) -> bool:
    """True if metadata may stand beside DeerMem's fields as it is."""
    if key in _NO_METADATA or key in ("", "categoryExtension"):
        return False
    if key == "category" and (not isinstance(value, str) or value != value.strip()):
        return False
    if key == "title":
        return isinstance(value, str) and 0 < len(value) <= MAX_TITLE and value == " ".join(value.split())
    if key in _TIMES:
        return isinstance(value, str)
    if key in _DEFAULTS or key in _OPTIONAL:
        try:
            normalise({"content": "-", key: value}, {}, 0.0)
        except InputError:
            return False
    return True


def with_fields(document: Document, fields: Mapping[str, Any]) -> Document:
    """`document` with other fields in its record."""
    return replace(document, record=replace(document.record, **fields))
