"""The scopes in an arena file, and the names of their chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

from nanomem_core.records import Scope

from .index import Index

__all__ = ["ChainNames", "ScopeState", "chain_name"]


class ChainNames(Sequence[str]):
    """The chain keys of a scope, in the order of their codes. Those in the index are read when they are asked for."""

    def __init__(self, index: Index | None = None, first: int = 0, count: int = 0) -> None:
        # One tuple, so that a reader in another thread never sees a new index with old names.
        self._state: tuple[Index | None, int, int, list[str]] = (index, first, count, [])

    def rebase(self, index: Index, first: int) -> None:
        """Take all names so far from a new index."""
        self._state = (index, first, len(self), [])

    def append(self, name: str) -> None:
        self._state[3].append(name)

    def __len__(self) -> int:
        return self._state[2] + len(self._state[3])

    @overload
    def __getitem__(self, code: int) -> str: ...
    @overload
    def __getitem__(self, code: slice) -> list[str]: ...
    def __getitem__(self, code: int | slice) -> str | list[str]:
        if isinstance(code, slice):
            return [self[number] for number in range(*code.indices(len(self)))]
        index, first, count, new = self._state
        if code < 0:
            code += count + len(new)
        if index is None or code >= count:
            return new[code - count]
        return chain_name(index, index.item("chain_of", first + code))


def chain_name(index: Index, number: int) -> str:
    """The name of the chain with that number in the index. Numbers count over all scopes, codes in one."""
    start, end = index.item("chain_ends", number), index.item("chain_ends", number + 1)
    return index.text("chain_names", start, end)


@dataclass(slots=True)
class ScopeState:
    """One scope: its head, how many records are alive in it, and its chains."""

    scope: Scope
    head: int = 0
    alive: int = 0
    first_chain: int = 0
    chains: ChainNames = field(default_factory=ChainNames)
