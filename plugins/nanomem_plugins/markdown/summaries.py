"""The summaries of a user, as they stand in ``memory.json``: two sections, and in each of them texts under fixed names.

``{"user": {"workContext": {"summary": text, "updatedAt": time}, …}, "history": {…}}``. Other names are kept.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

from nanomem_core.errors import InputError, TimeError
from nanomem_core.records import Record
from nanomem_core.times import format_time, parse_time

from .manifest import SECTIONS, Manifest, empty_sections

__all__ = ["Summaries", "adopted", "complete", "patched", "profile_records", "sections_of"]

Summaries = dict[str, Any]

_HEADINGS = {"user": "User Context", "history": "History"}
_TITLES = {
    "workContext": "Work",
    "personalContext": "Personal",
    "topOfMind": "Current Focus",
    "cognitiveStyle": "Cognitive Style",
    "recentMonths": "Recent",
    "earlierContext": "Earlier",
    "longTermBackground": "Background",
}
"""Headings in a prompt."""


def complete(found: Mapping[str, Any]) -> Summaries:
    """A copy of the sections of `found`, with every known name."""
    result: Summaries = empty_sections()
    for section in SECTIONS:
        given = found.get(section)
        if isinstance(given, Mapping):
            result[section] |= copy.deepcopy(dict(given))
    return result


def sections_of(manifest: Manifest) -> Summaries:
    """The summaries of a user, with every known name."""
    return complete({"user": manifest.user, "history": manifest.history})


def patched(current: Mapping[str, Any], patch: Mapping[str, Any], now: float) -> Summaries:
    """`current` with the summaries that `patch` names; all others stay. One with the same text keeps its time.

    Raises:
        InputError: `patch` has another form.
    """
    if not isinstance(patch, Mapping) or not set(patch) <= set(SECTIONS):
        raise InputError(f"summaries: expected a mapping with {' and '.join(SECTIONS)}; found {patch!r:.80}")
    result = complete(current)
    for section, children in patch.items():
        if not isinstance(children, Mapping):
            raise InputError(f"summaries: {section}: expected a mapping of names; found {children!r:.80}")
        for name, child in children.items():
            if not isinstance(name, str) or not name:
                raise InputError(f"summaries: {section}: expected a name; found {name!r}")
            result[section][name] = _child(f"summaries: {section}.{name}", result[section].get(name), child, now)
    return result


def _child(where: str, before: Any, given: Any, now: float) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not isinstance(given.get("summary"), str):
        raise InputError(f"{where}: expected {{'summary': text, 'updatedAt': time}}; found {given!r:.80}")
    updated = given.get("updatedAt")
    if not isinstance(updated, str | None):
        raise InputError(f"{where}: updatedAt: expected a time as an ISO 8601 text; found {updated!r}")
    if updated:
        parse_time(updated, f"{where}: updatedAt")
    if not updated:
        same = isinstance(before, Mapping) and before.get("summary") == given["summary"]
        updated = before.get("updatedAt", "") if same else format_time(now)
    return {**given, "updatedAt": updated}


def adopted(live: Mapping[str, Any], legacy: Mapping[str, Any], source: str) -> Summaries:
    """`live` with the summaries of `legacy`, where `live` has none or the same.

    Raises:
        InputError: both have different texts under one name; the message names `source`.
    """
    result = complete(live)
    for section, name, child in _texts(legacy):
        there = _text_of(result[section].get(name))
        if there and there != _text_of(child):
            raise InputError(
                f"{source}: {section}.{name}: expected no text, or that of memory.json; found another. Decide which "
                f"one stays, and empty the other"
            )
        if not there:
            result[section][name] = copy.deepcopy(child)
    return result


def profile_records(summaries: Mapping[str, Any]) -> list[Record]:
    """The summaries that have a text, as records for a prompt."""
    records = []
    for section, name, child in _texts(summaries):
        at = 0.0
        with contextlib.suppress(TimeError, TypeError):
            at = parse_time(child.get("updatedAt"), "updatedAt")
        metadata = {"section": _HEADINGS[section], "title": _TITLES.get(name, name)}
        records.append(
            Record(
                f"{section}.{name}",
                _text_of(child),
                kind="summary",
                revision=1,
                version=1,
                valid_from=at,
                recorded_at=at,
                source="memory.json",
                metadata=metadata,
            )
        )
    return records


def _texts(summaries: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for section in SECTIONS:
        children = summaries.get(section)
        for name, child in children.items() if isinstance(children, Mapping) else ():
            if _text_of(child):
                yield section, name, child


def _text_of(child: Any) -> str:
    text = child.get("summary") if isinstance(child, Mapping) else None
    return text.strip() if isinstance(text, str) else ""
