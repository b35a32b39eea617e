"""Searching the facts of DeerMem's contract, by the search that every store has."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nanomem_core.errors import InputError
from nanomem_core.records import Scope

from .contract import Contract, passes
from .held import Held
from .shown import fact_in, read_fact, shown_fact, shown_facts
from .sidecars import count_accesses

if TYPE_CHECKING:
    from nanomem_core import Memory

__all__ = ["Searching"]

_MODES = {"hybrid": "hybrid", "vector": "vector", "text": "text", "fts5": "text", "lexical": "text"}


class Searching(Contract):
    """The part of the contract that searches."""

    _memory: Memory | None = None

    def search_facts(
        self,
        query: str,
        scopes: Iterable[Scope | Mapping[str, str | None]],
        top_k: int = 10,
        mode: str = "hybrid",
        filters: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """The facts that answer `query` best, best first: ``fact``, ``score`` and ``matchType`` (the mode) of each.

        Args:
            scopes: whose facts; a scope, or ``{"userId": …, "agentName": …}``.
            mode: ``hybrid``, ``vector`` or ``text`` (also ``fts5`` and ``lexical``).
            filters: as for `list_facts`; applied before the cut.
        """
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0:
            raise InputError(f"top_k: expected a whole number from 0; found {top_k!r}")
        if mode not in _MODES:
            raise InputError(f"mode: expected one of {', '.join(_MODES)}; found {mode!r}")
        found = []
        for scope in dict.fromkeys(self._scope_of(given) for given in scopes):
            user = self._user(scope.user)
            hits = self._hits(query, scope, top_k, _MODES[mode], filters)
            with user.reading(scope.agent) as state:
                found += [(score, read_fact(state, held)) for score, held in hits]
            if hits and self._eviction == "hybrid-v1" and not self.read_only:
                count_accesses(user.path, state, user.read, [held.record.id for _, held in hits], time.time())
        found.sort(key=lambda item: -item[0])
        return [{"fact": fact, "score": score, "matchType": _MODES[mode]} for score, fact in found[:top_k]]

    def _hits(
        self, query: str, scope: Scope, top_k: int, mode: Any, filters: Mapping[str, Any] | None
    ) -> list[tuple[float, Held]]:
        """The best facts of a scope with their scores. Asks for more until enough of them are shown and pass."""
        memory = self._searcher()
        depth = max(2 * top_k, 20)
        while True:
            hits = memory.search(query, depth, mode=mode, decompose=False, user=scope.user, agent=scope.agent)
            with self._user(scope.user).reading(scope.agent) as state:
                shown = [(hit["score"], shown_fact(state, hit["id"])) for hit in hits]
            kept = [
                (float(score), held)
                for score, held in shown
                if held is not None and (not filters or passes(fact_in(state, held), filters))
            ]
            if len(kept) >= top_k or len(hits) < depth:
                return kept[:top_k]
            depth *= 4

    def _searcher(self) -> Memory:
        if self._memory is None:
            from nanomem_core import Memory

            self._memory = Memory(self, taggers=())
        return self._memory

    def rebuild_index(self, scopes: Iterable[Scope | Mapping[str, str | None]] | None = None) -> dict[str, Any]:
        """Drop what searches derived, look at every file, and tell how many facts are ``indexed`` and files
        ``failed``."""
        chosen = self.scopes() if scopes is None else [self._scope_of(given) for given in scopes]
        self._memory = None
        indexed = failed = 0
        for scope in chosen:
            with self._user(scope.user).reading(scope.agent, force=True) as state:
                indexed += len(shown_facts(state))
                failed += len(state.bad)
        return {"supported": True, "indexed": indexed, "failed": failed}
