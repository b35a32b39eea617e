"""The facts of an agent that DeerMem finds, in its form."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nanomem_core.records import Record

from .facts import Fact
from .held import Held
from .layout import place_folder
from .mapping import fact_of
from .state import AgentState

__all__ = ["Shown", "fact_in", "is_shown", "read_fact", "read_facts", "shown_fact", "shown_facts"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A fact that was asked for, kept since others are asked for with it again and again.

    Attributes:
        record, updated: what it was made of, as in `Held`.
        flat, nested: its lists and mappings by key, which a copy needs copies of; `nested` hold others in turn.
    """

    record: Record
    updated: str | None
    fact: Fact
    flat: tuple[tuple[str, Any], ...]
    nested: tuple[tuple[str, Any], ...]


def is_shown(state: AgentState, held: Held) -> bool:
    """True for a fact that lies where DeerMem finds it."""
    return held.path.startswith(f"{place_folder(state.folder, 'facts')}/")


def shown_fact(state: AgentState, id: str) -> Held | None:
    """The fact with that id, if DeerMem finds one."""
    held = state.preview[id] if id in state.preview else state.held.get(id)
    return held if held is not None and is_shown(state, held) else None


def shown_facts(state: AgentState) -> list[Held]:
    """Every fact that DeerMem finds, by id."""
    prefix = f"{place_folder(state.folder, 'facts')}/"
    every = {**state.held, **state.preview} if state.preview else state.held
    ids = sorted(id for id, held in every.items() if held is not None and held.path.startswith(prefix))
    return [held for id in ids if (held := every[id]) is not None]


def fact_in(state: AgentState, held: Held) -> Fact:
    """The fact in the file of `held`; not to be changed."""
    return _shown(state, held).fact


def read_fact(state: AgentState, held: Held) -> Fact:
    """As `fact_in`, but the caller's own."""
    return read_facts(state, (held,))[0]


def read_facts(state: AgentState, many: Iterable[Held]) -> list[Fact]:
    """The facts in the files of `many`; they are the caller's own."""
    facts = []
    with _collector_paused():
        for held in many:
            kept = _shown(state, held)
            fact = kept.fact.copy()
            for key, value in kept.flat:
                fact[key] = value.copy()
            for key, value in kept.nested:
                fact[key] = copy.deepcopy(value)
            facts.append(fact)
    return facts


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Without looking for garbage: of many new containers that all stay, each look would pass over all, and find none.

    Of a list of 10,000 facts that is two thirds of the time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _shown(state: AgentState, held: Held) -> Shown:
    kept = state.shown_facts.get(held.record.id)
    if kept is None or kept.record is not held.record or kept.updated != held.updated:
        fact = fact_of(held.record, state.owner, held.updated)
        containers = [(key, value) for key, value in fact.items() if isinstance(value, (dict, list))]
        flat = tuple((key, value) for key, value in containers if _is_flat(value))
        nested = tuple((key, value) for key, value in containers if not _is_flat(value))
        kept = Shown(held.record, held.updated, fact, flat, nested)
        state.shown_facts[held.record.id] = kept
    return kept


def _is_flat(value: dict[str, Any] | list[Any]) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return not any(isinstance(item, (dict, list)) for item in items)
