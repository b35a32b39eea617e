"""Records by their ids, as the store has them now."""

from __future__ import annotations

from collections.abc import Iterable

from ..memory import Memory
from ..records import Record, Scope

__all__ = ["stored"]


def stored(memory: Memory, scope: Scope, ids: Iterable[str]) -> list[Record]:
    """The records with these ids, in their order, without those that are gone."""
    found = (memory.storage.get(scope, id) for id in ids)
    return [record for record in found if record is not None]
