"""A record as a fact of DeerMem's form, and back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from nanomem_core.errors import InputError
from nanomem_core.records import Record

from .document import SOURCE_FORM, Owner, shown_metadata, source_of
from .edits import is_new_value, supersede
from .eviction import Candidate, Usage
from .facts import (
    CATEGORIES,
    DEFAULT_CATEGORY,
    DEFAULT_CONFIDENCE,
    SCHEMA_VERSION,
    Fact,
    category_of,
    derived_title,
    source_form,
    source_text,
)
from .instants import time_text, time_value

__all__ = ["candidate", "changed_records", "fact_of", "new_record"]

_FIELDS = frozenset(
    {
        "content", "createdAt", "id", "revision", "schemaVersion", "scope", "source", "status", "title", "updatedAt",
    }
)  # fmt: skip


def fact_of(record: Record, owner: Owner, updated: str | None = None) -> Fact:
    """The fact that DeerMem finds in the file of `record`.

    Args:
        updated: when the file was last written, as it says; None stands for the time of its creation.
    """
    metadata = copy.deepcopy(shown_metadata(record))
    content = record.text.strip()
    created = str(time_text(record.recorded_at))
    category = metadata.get("category", DEFAULT_CATEGORY)
    extension = {} if category in CATEGORIES else {"categoryExtension": category}
    metadata.pop("category", None)
    fact: Fact = {
        "id": record.id,
        "schemaVersion": SCHEMA_VERSION,
        "content": content,
        "title": metadata.get("title") or derived_title(content),
        "category": "other" if extension else category,
        **extension,
        "topics": metadata.get("topics", []),
        "confidence": float(metadata.get("confidence", DEFAULT_CONFIDENCE)),
        "status": "active",
        "scope": {"userId": owner.user, "agentName": owner.agent},
        "source": copy.deepcopy(source_form(source_of(record))),
        "createdAt": created,
        "updatedAt": updated or created,
        "revision": record.version,
        "consolidatedFrom": metadata.get("consolidatedFrom", []),
    }
    return fact | {key: value for key, value in metadata.items() if key not in fact}


def new_record(fact: Fact) -> Record:
    """The record of a fact that is new."""
    created = time_value(fact["createdAt"])
    record = Record(
        fact["id"], fact["content"], version=fact["revision"], valid_from=created, recorded_at=created, source=""
    )
    return _with_fields(record, fact)


def changed_records(before: Record, fact: Fact, now: float, tip: Callable[[str], int]) -> tuple[Record | None, Record]:
    """The record of `fact` after `before`; and, if its value changed, the record that keeps the old value."""
    text = before.text if before.text.strip() == fact["content"] else fact["content"]
    after = _with_fields(replace(before, text=text), fact)
    if not is_new_value(before, after):
        return None, after
    return supersede(before, after, now, tip)


def _with_fields(record: Record, fact: Fact) -> Record:
    """`record` with the source and the metadata of `fact`; metadata that no fact can hold stays."""
    shown = shown_metadata(record)
    metadata = {key: value for key, value in record.metadata.items() if key not in shown}
    metadata |= {key: value for key, value in fact.items() if key not in _FIELDS}
    metadata["category"] = category_of(fact)
    metadata.pop("categoryExtension", None)
    for name in ("topics", "consolidatedFrom"):
        if not metadata[name]:
            del metadata[name]
    if fact["title"] != derived_title(fact["content"]):
        metadata["title"] = fact["title"]
    source = record.source
    if not source or source_form(source_of(record)) != fact["source"]:
        source = source_text(fact["source"])
        metadata.pop(SOURCE_FORM, None)
        if fact["source"] != source_form(source):
            metadata[SOURCE_FORM] = fact["source"]
    return replace(record, source=source, metadata=metadata)


def candidate(record: Record, usage: Usage | None) -> Candidate:
    """What a policy of eviction needs to know of a fact."""
    metadata = shown_metadata(record)
    confirmed = metadata.get("lastConfirmedAt")
    return Candidate(
        record.id,
        float(metadata.get("confidence", DEFAULT_CONFIDENCE)),
        str(metadata.get("category", DEFAULT_CATEGORY)),
        source_of(record).get("type") == "manual",
        record.recorded_at,
        _time_or_none(confirmed),
        usage or Usage(),
    )


def _time_or_none(text: object) -> float | None:
    try:
        return None if text is None else time_value(text)
    except InputError:
        return None
