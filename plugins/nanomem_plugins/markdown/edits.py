"""What it means that the text of a fact was changed in place: the old text stays, as the value before the new one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nanomem_core.records import MAX_ENTITY, Record, normalize_entity

if TYPE_CHECKING:
    from .held import Held

__all__ = ["is_new_value", "supersede", "taken_up"]


def taken_up(
    edited: Mapping[str, Held | None], held: Mapping[str, Held], tip: Callable[[str], int], now: float
) -> tuple[dict[str, Held | None], dict[str, Record]]:
    """What a commit makes of edited files: each with its version and place in the chain, and the values they replaced.

    Args:
        edited: what the files say, by id; None for a file that is gone.
        held: what there was before.
        tip: highest revision number in a chain, as `Transaction.tip`.
    """
    taken: dict[str, Held | None] = {}
    kept: dict[str, Record] = {}
    tips: dict[str, int] = {}

    def last(chain: str) -> int:
        return max(tips.get(chain, 0), tip(chain))

    for id, found in edited.items():
        known = held.get(id)
        if found is None or known is None:
            taken[id] = found
            continue
        before, after = known.record, found.record
        if replace(after, version=before.version) == before:
            after = before
        else:
            after = replace(after, version=max(after.version, before.version + 1))
            if is_new_value(before, after) and before.kind == after.kind == "fact":
                when = after.valid_from if after.valid_from != before.valid_from else _changed_at(found, now)
                old, after = supersede(before, after, when, last)
                kept[old.id] = old
                tips[after.chain or ""] = after.revision
        taken[id] = replace(found, record=after, birth=known.birth)
    return taken, kept


def _changed_at(held: Held, now: float) -> float:
    return now if held.edited_at is None else min(now, held.edited_at)


def is_new_value(before: Record, after: Record) -> bool:
    """True if `after` says something else than `before`: other line ends, or other metadata, don't."""
    return _plain(before.text) != _plain(after.text)


def supersede(before: Record, after: Record, when: float, tip: Callable[[str], int]) -> tuple[Record, Record]:
    """The record that keeps the value of `before`, under an id of its own, and `after` as the value that follows it.

    Its id is the same whoever works it out, and no other value's. Both are in one chain: that of `before`, or one that
    is made for the fact. Where the chain is one that a tagger guessed, and so may hold other facts that still stand,
    the old value also gets an end.

    Args:
        when: since when the new value is true, unix seconds.
        tip: highest revision number in a chain, as `Transaction.tip`.
    """
    entity = after.entity or before.entity or _entity_of(before.id)
    declared = before.entity is None or before.declared or after.declared
    when = max(when, before.valid_from)
    old = replace(before, entity=entity, declared=declared, version=1)
    new = replace(after, entity=entity, declared=declared, valid_from=when)
    if not declared:
        old = replace(old, valid_to=when, closed_at=when)
    last = tip(new.chain or "")
    if before.chain == old.chain:
        new = replace(new, revision=max(last, before.revision) + 1)
    else:
        old, new = replace(old, revision=last + 1), replace(new, revision=last + 2)
    mark = f"{before.id}\0{new.chain}\0{new.revision}\0{before.text}".encode()
    return replace(old, id=hashlib.blake2b(mark, digest_size=16).hexdigest()), new


def _entity_of(id: str) -> str:
    """A name for the attribute that a fact without one is the value of; no two ids have the same."""
    try:
        name = normalize_entity(id)
    except ValueError:
        name = "fact"
    mark = hashlib.sha256(id.encode()).hexdigest()[:8]
    return f"{name[: MAX_ENTITY - len(mark) - 1].rstrip('_')}_{mark}"


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")
