"""The scopes in an arena file, their chains, and who follows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
import numpy.typing as npt

from nanomem_core.records import Scope

from .documents import id_hash
from .index import Index
from .rows import Rows, sorted_table

__all__ = ["ChainNames", "Chains", "Damaged", "Listener", "ScopeState"]


class Damaged(NamedTuple):
    """A record that is known to be damaged: where, and what is wrong."""

    offset: int
    reason: str


class Listener(Protocol):
    """What wants to hear of new and dead rows of one scope."""

    def appended(self, first: int, rows: npt.NDArray[Any]) -> None: ...

    def killed(self, row: int) -> None: ...


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
        return _chain_name(index, index.item("chain_of", first + code))


def _chain_name(index: Index, number: int) -> str:
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


class Chains:
    """The codes of chains, and the highest revision in each: for those in the index, and for what came behind it.

    A scope is told here by its place in `scopes`.
    """

    def __init__(self, scopes: list[ScopeState], rows: Rows) -> None:
        self._scopes = scopes
        self._rows = rows
        self.forget_tail()

    def forget_tail(self) -> None:
        """All that is known so far is in the index from now on."""
        self._codes: dict[tuple[int, str], int] = {}
        self._tips: dict[tuple[int, int], int] = {}

    def code(self, scope: int, chain: str) -> int:
        """The code of a chain, which gets one if it has none."""
        known = self._find(scope, chain)
        if known is None:
            names = self._scopes[scope].chains
            known = self._codes[scope, chain] = len(names)
            self._tips[scope, known] = 0
            names.append(chain)
        return known

    def _find(self, scope: int, chain: str) -> int | None:
        known = self._codes.get((scope, chain))
        index = self._rows.index
        if known is None and index is not None:
            for number in index.find("chain", id_hash(self._scopes[scope].scope, chain)):
                if index.item("chain_scope", number) == scope and _chain_name(index, number) == chain:
                    known = index.item("chain_code", number)
        return known

    def put(self, scope: int, code: int, revision: int) -> None:
        """A record was added to a chain."""
        tip = self._tip(scope, code)
        if revision >= max(tip, ~tip):
            self._tips[scope, code] = revision

    def killed(self, scope: int, code: int, revision: int) -> None:
        """A record of a chain is dead."""
        if self._tip(scope, code) == revision:
            self._tips[scope, code] = ~revision

    def _tip(self, scope: int, code: int) -> int:
        """The highest revision in a chain; or ``~n``, a negative number, if it is only known to be `n` at most."""
        if (scope, code) in self._tips:
            return self._tips[scope, code]
        assert self._rows.index is not None
        number = self._rows.index.item("chain_of", self._scopes[scope].first_chain + code)
        return int(self._rows.index.item("chain_tip", number))

    def tip(self, scope: int, chain: str) -> int:
        """The highest revision among the live records of a chain, 0 for none."""
        code = self._find(scope, chain)
        if code is None:
            return 0
        tip = self._tip(scope, code)
        if tip < 0:
            rows = self._rows
            mask = rows.column("live") & (rows.column("chain") == code) & (rows.column("scope") == scope)
            tip = self._tips[scope, code] = int(rows.column("revision")[mask].max(initial=0))
        return tip

    def sections(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """What an index holds of the chains."""
        codes = np.fromiter((code for code, _ in self._codes), np.int32)
        texts = [name.encode() for _, name in self._codes]
        hashes = np.fromiter((id_hash(self._scopes[code].scope, name) for code, name in self._codes), np.uint64)
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        names = np.frombuffer(b"".join(texts), np.uint8)
        values = np.arange(len(texts), dtype=np.uint32)
        if self._rows.index is not None:
            old = self._rows.index.column("chain_ends")
            ends = np.concatenate((old, ends[1:] + old[-1]))
            names = np.concatenate((self._rows.index.column("chain_names"), names))
            codes = np.concatenate((self._rows.index.column("chain_scope"), codes))
            hashes = np.concatenate((self._rows.index.column("chain_hash"), hashes))
            values = np.concatenate((self._rows.index.column("chain_value"), values + np.uint32(len(old) - 1)))
        # Sorting by scope, and keeping the order of first appearance in each, gives the order of the codes.
        order = np.argsort(codes, kind="stable")
        firsts = np.concatenate(([0], np.cumsum(np.bincount(codes, minlength=len(self._scopes)))))
        places = np.empty(len(order), np.intp)
        places[order] = np.arange(len(order))
        rows = np.flatnonzero(self._rows.column("live") & (self._rows.column("chain") >= 0))
        tips = np.zeros(len(codes), np.int32)
        chains = order[firsts[self._rows.take("scope", rows)] + self._rows.take("chain", rows)]
        np.maximum.at(tips, chains, self._rows.take("revision", rows))
        yield "chain_names", names
        yield "chain_ends", ends
        yield "chain_scope", codes
        yield "chain_code", (places - firsts[codes]).astype(np.int32)
        yield "chain_of", order.astype(np.int32)
        yield "chain_tip", tips
        yield from sorted_table("chain", hashes, values)
