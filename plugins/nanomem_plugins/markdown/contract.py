"""What the methods of DeerMem's contract have in common: whose facts a call is about, and which facts it asks for."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from nanomem_core.errors import InputError
from nanomem_core.interfaces import Storage
from nanomem_core.records import Scope

from .eviction import Policy
from .facts import Fact, category_of, source_text
from .layout import DEFAULT_AGENT, Layout

if TYPE_CHECKING:
    from .state import AgentState
    from .storage import MarkdownTransaction
    from .user import User

__all__ = ["Contract", "passes"]

_AGENT = re.compile(r"[A-Za-z0-9-]+")


class Contract(Storage):
    """A store with users, scopes and options as DeerMem names them."""

    _layout: Layout
    _max_facts: int | None
    _eviction: Policy
    _strict_user_scope: bool

    @abstractmethod
    def _user(self, name: str, *, migrate: bool = True) -> User: ...

    @contextmanager
    def _reading(self, scope: Scope) -> Iterator[AgentState]:
        with self._user(scope.user).reading(scope.agent) as state:
            yield state

    @abstractmethod
    def transaction(self, scope: Scope, *, look: bool = True) -> AbstractContextManager[MarkdownTransaction]: ...

    def _name(self, user_id: str | None) -> str:
        if user_id is None and self._strict_user_scope:
            raise InputError("user_id: expected the name of a user (strict_user_scope is set); found None")
        return "default" if user_id is None else user_id

    def _scope(self, user_id: str | None, agent_name: str | None) -> Scope:
        name = self._name(user_id)
        if agent_name in ("default", DEFAULT_AGENT):
            return Scope(name)
        if not isinstance(agent_name, str) or not _AGENT.fullmatch(agent_name):
            raise InputError(f"agent_name: expected ASCII letters, digits and -; found {agent_name!r}")
        return Scope(name, agent_name.lower())

    def _scope_of(self, given: Scope | Mapping[str, str | None]) -> Scope:
        if isinstance(given, Scope):
            return given
        if not isinstance(given, Mapping):
            raise InputError(f"scopes: expected a Scope, or {{'userId': …, 'agentName': …}}; found {given!r:.80}")
        return self._scope(given.get("userId"), given.get("agentName"))


def passes(fact: Fact, filters: Mapping[str, Any]) -> bool:
    """True if each key has the value asked for; the category and the source also by their one text."""
    texts = {"category": category_of(fact), "source": source_text(fact["source"])}
    return all(key in fact and value in (fact[key], texts.get(key, fact[key])) for key, value in filters.items())
