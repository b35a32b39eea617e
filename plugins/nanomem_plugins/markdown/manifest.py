"""DeerMem's ``memory.json``: the summaries of a user, and the number of the last commit of any of the user's agents."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nanomem_core.errors import CorruptionError
from nanomem_core.times import format_time

__all__ = ["FILE", "SECTIONS", "VERSION", "Manifest", "empty_sections", "parse_manifest"]

FILE = "memory.json"
VERSION = "2.0"
SECTIONS: dict[str, tuple[str, ...]] = {
    "user": ("workContext", "personalContext", "topOfMind"),
    "history": ("recentMonths", "earlierContext", "longTermBackground"),
}
"""The summaries of each section; others are kept too."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``memory.json``.

    Attributes:
        version: ``2.0``; anything else, or `facts`, has to be migrated before it is written.
        revision: rises by one with each commit of any agent of the user.
        facts: what a file of version 1 holds as facts; None in version 2.
    """

    version: str
    revision: int
    updated_at: str
    user: Mapping[str, Any]
    history: Mapping[str, Any]
    facts: Any = None

    @property
    def is_current(self) -> bool:
        return self.version == VERSION and self.facts is None

    def next(self, now: float, sections: Mapping[str, Mapping[str, Any]] | None = None) -> Manifest:
        """The manifest after one more commit, at unix seconds `now`; `sections` replace those of the same name."""
        given = sections or {}
        return Manifest(
            VERSION,
            self.revision + 1,
            format_time(now),
            given.get("user", self.user),
            given.get("history", self.history),
        )

    def encode(self) -> bytes:
        found = {
            "version": self.version,
            "revision": self.revision,
            "lastUpdated": self.updated_at,
            "user": self.user,
            "history": self.history,
        }
        return json.dumps(found, ensure_ascii=False, indent=2).encode()


def empty_sections() -> dict[str, dict[str, Any]]:
    """Every summary, empty."""
    return {section: {name: {"summary": "", "updatedAt": ""} for name in names} for section, names in SECTIONS.items()}


def parse_manifest(data: bytes | None, path: str) -> Manifest:
    """Read ``memory.json``; an absent one is of version 1.0, with nothing in it.

    Raises:
        CorruptionError: it is no JSON object of that form.
    """
    if data is None:
        return Manifest(VERSION, 0, "", **copy.deepcopy(empty_sections()))
    try:
        found = json.loads(data)
    except ValueError as error:
        raise CorruptionError(path, getattr(error, "pos", None), f"expected JSON; {error}") from None
    if not isinstance(found, dict):
        raise CorruptionError(path, None, f"expected a JSON object; found {type(found).__name__}")
    revision = found.get("revision", 0)
    if isinstance(revision, bool) or not isinstance(revision, int) or revision < 0:
        raise CorruptionError(path, None, f"revision: expected a whole number from 0; found {revision!r}")
    sections = {name: found.get(name) or {} for name in SECTIONS}
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise CorruptionError(path, None, f"{name}: expected an object; found {type(section).__name__}")
    return Manifest(
        str(found.get("version", "1.0")),
        revision,
        str(found.get("lastUpdated", "")),
        **sections,
        facts=found.get("facts"),
    )
