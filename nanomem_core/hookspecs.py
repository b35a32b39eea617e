"""Every hook there is. Subclass `Plugin`, override what you need, and register an instance; or write module-level
functions of the same names, marked with `hookimpl`, and name the module in the ``nanomem.plugins`` entry-point group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pluggy

if TYPE_CHECKING:
    from .changes import Change, Commit
    from .interfaces import ChatMessage, Component, Embedder, Generator, Segmenter, Storage, Tagger
    from .records import Record, Scope

__all__ = ["API_LEVEL", "PROJECT", "Deferred", "Plugin", "StoreVerdict", "hookimpl", "hookspec"]

PROJECT = "nanomem"
API_LEVEL = 1
"""Rises when a hook or an interface changes so that plugins must follow. A plugin may state the levels it supports as
``NANOMEM_API_LEVELS = (1,)`` on its module or class."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Deferred(NamedTuple):
    """A component class that is imported only when somebody chooses it.

    For classes that need other libraries or much code: a look-up by name asks every plugin for all that it offers.

    Attributes:
        name: that of the component, the same as on its class.
        location: ``module:Class``.
    """

    name: str
    location: str


class StoreVerdict(NamedTuple):
    """Whether something that was said is worth remembering, and why, for a person to read."""

    store: bool
    reason: str


class Plugin:
    """The hook specifications. Every method is optional to override."""

    @hookspec
    def nanomem_register_storage(self) -> Iterable[type[Storage] | Deferred]:
        """Storage classes this plugin offers."""
        return ()

    @hookspec
    def nanomem_register_embedder(self) -> Iterable[type[Embedder] | Deferred]:
        """Embedder classes this plugin offers."""
        return ()

    @hookspec
    def nanomem_register_segmenter(self) -> Iterable[type[Segmenter] | Deferred]:
        """Segmenter classes this plugin offers."""
        return ()

    @hookspec
    def nanomem_register_tagger(self) -> Iterable[type[Tagger] | Deferred]:
        """Tagger classes this plugin offers."""
        return ()

    @hookspec
    def nanomem_register_generator(self) -> Iterable[type[Generator] | Deferred]:
        """Generator classes this plugin offers."""
        return ()

    @hookspec(firstresult=True)
    def nanomem_build(self, kind: str, cls: type[Component], options: Mapping[str, Any]) -> Component | None:
        """Build the component `cls` of `kind` (``storage``, ``embedder``, …) with checked `options`.

        The first result counts; None leaves it to the next plugin, at last to core, which calls ``cls(**options)``.
        A wrapper (``@hookimpl(wrapper=True)``) can decorate every component.
        """
        return None

    @hookspec
    def nanomem_should_store(self, scope: Scope, text: str, context: Sequence[ChatMessage]) -> StoreVerdict | None:
        """Judge whether `text`, said after the turns of `context`, is worth remembering; None leaves it to the next.

        The first verdict counts: plugins of the application are asked before installed ones. What nobody judges is
        stored. An exception here is logged, and counts as None.
        """
        return None

    @hookspec
    def nanomem_before_commit(self, scope: Scope, changes: Sequence[Change]) -> Sequence[Change] | None:
        """Change what is about to be committed; plugins are called in turn, each with the result of the one before.

        None keeps the changes as they are. Raise `VetoError` to refuse the commit.
        """
        return None

    @hookspec
    def nanomem_committed(self, commit: Commit) -> None:
        """A commit is durable, and every lock is released. An exception here is logged and disturbs nobody."""

    @hookspec
    def nanomem_searched(self, scope: Scope, query: str, results: Sequence[Mapping[str, Any]]) -> None:
        """A search was answered. An exception here is logged and disturbs nobody."""

    @hookspec
    def nanomem_episode_created(self, scope: Scope, episode: Record) -> None:
        """Messages became an episode. An exception here is logged and disturbs nobody."""

    @hookspec
    def nanomem_episode_distilled(self, scope: Scope, id: str, report: Mapping[str, Any]) -> None:
        """The facts of an episode were drawn. An exception here is logged and disturbs nobody."""

    @hookspec
    def nanomem_episode_deleted(self, scope: Scope, id: str, facts: Sequence[str]) -> None:
        """An episode was deleted, with the `facts` that had no other source. An exception here is logged and disturbs
        nobody."""

    @hookspec
    def nanomem_fact_deleted(self, scope: Scope, id: str) -> None:
        """A fact was deleted by its id, or with an episode. An exception here is logged and disturbs nobody."""
