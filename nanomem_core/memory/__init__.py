"""`Memory`: the one object an application talks to.

Follow `Writing.add` and `Searching.search` to see how the parts work together: `add` makes a record, lets the hooks see
it, embeds it and commits it; `search` takes the scope's columns at their head, scores every row, arranges chains and
loads the hits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..registry.manager import PluginManager
from .answering import Answering
from .removing import FORGET_FLOOR
from .tagging import PERSONAL_SOURCES, TagChange, TagPlan

if TYPE_CHECKING:
    from ..config.model import Settings

__all__ = ["FORGET_FLOOR", "PERSONAL_SOURCES", "Memory", "TagChange", "TagPlan"]


class Memory(Answering):
    """A memory over any storage and embedder.

    Every method takes ``user=`` and ``agent=``, which choose the scope; scopes share nothing. Reads also take, where
    they can honour them: ``filter=`` (see `nanomem_core.filters`), ``entity=``, ``as_of=`` (only what was true by
    then) and ``known_at=`` (only what the memory had been told by then). Times are given as unix seconds, aware
    datetimes, dates or ISO texts; what names no zone is UTC.

    Args:
        storage: an instance, a name, or ``{"use": name, **options}``.
        embedder: likewise.
        taggers: likewise, a list; asked in turn for the entity of a statement that declares none.
        generator: likewise, the model that `ask`, `chat` and some taggers ask; it is built when it is first needed.
        plugins: where names are looked up and hooks live; by default all installed plugins.
        user, agent: the scope of calls that name none.
        mode: how `search` and what rests on it rank by default: ``vector``, ``text`` or ``hybrid``.
        neighbours: whether they let records gain from those next to them by default; see `search`.
        top_k: how many hits `search` returns by default.
        language: language of the words, for stemming; ``none`` leaves words as they are.
        clock: the present, in unix seconds.
        data_dir: where relative paths among the options of components start from; the current directory for None.
    """

    @classmethod
    def open(
        cls,
        source: str | Path | Settings | None = None,
        *,
        plugins: PluginManager | None = None,
        user: str = "default",
        agent: str = "default",
        **arguments: Any,
    ) -> Memory:
        """A memory as configured: by a YAML file, by `Settings`, or by the files and variables that apply here.

        `arguments` are settings (``storage=``, ``embedder=``, ``search=`` …) that go before all others.

        Raises:
            ConfigError: a setting is wrong.
        """
        from ..config.sources import settings_of

        settings = settings_of(source, arguments)
        plugins = PluginManager.discover(settings.plugins, data_dir=settings.data_dir) if plugins is None else plugins
        return Memory(
            settings.storage,
            settings.embedder,
            taggers=settings.taggers,
            generator=settings.generator,
            plugins=plugins,
            user=user,
            agent=agent,
            mode=settings.search.mode,
            neighbours=settings.search.neighbours,
            top_k=settings.search.top_k,
            language=settings.search.language,
            data_dir=settings.data_dir,
        )
