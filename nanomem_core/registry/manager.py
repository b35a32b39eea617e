"""The plugin manager: loads the plugins that the settings allow, and asks them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from pluggy import HookImpl

from ..changes import Change, Commit, Delete, Put
from ..errors import (
    ConfigError,
    DuplicateComponentError,
    InputError,
    NanomemError,
    PluginError,
    PluginLoadError,
    UnknownComponentError,
)
from ..hints import did_you_mean, one_line
from ..hookspecs import Plugin, StoreVerdict, hookimpl
from ..interfaces import ChatMessage, Component
from ..records import Record, Scope
from .components import KINDS, Offer, checked_offers, clash, interface, label
from .discovery import load
from .entries import Entry, PluginSelection, found_entries, plugin_object
from .hooks import HOOKS, Hooks, call
from .options import Options
from .report import PluginStatus

__all__ = ["PluginManager"]


class _Core(Plugin):
    """What core itself does in the hooks."""

    @hookimpl(trylast=True)
    def nanomem_build(self, kind: str, cls: type[Component], options: Mapping[str, Any]) -> Component:
        try:
            return cls(**options)
        except NanomemError:
            raise
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{kind} {label(cls)} could not be built: {one_line(error)}") from error


class PluginManager:
    """Plugins, loaded when a hook is first needed. Without `discover` there are only those that are registered.

    Managers share nothing: two memories in one process may use different plugins. May be used by several threads.
    """

    def __init__(self) -> None:
        self._hooks = Hooks()
        self._hooks.register(_Core(), "nanomem_core")
        self._entries: list[Entry] = []
        self._strict = False
        self._data_dir: Path | None = None
        self._offers: dict[str, list[Offer]] = {}
        self._implementations: dict[str, list[HookImpl]] = {}
        self._lock = threading.RLock()

    @classmethod
    def discover(cls, settings: PluginSelection | None = None, *, data_dir: Path | None = None) -> Self:
        """A manager of the installed plugins that `settings` allow (None: all). Reads metadata, imports none.

        Relative paths among the options of plugins are taken from `data_dir`.
        """
        manager = cls()
        manager._data_dir = data_dir
        manager._strict = settings is not None and settings.strict
        manager._entries = found_entries(settings)
        return manager

    def register(self, plugin: object, name: str | None = None) -> str:
        """Add a plugin of the application: an instance of a `Plugin` subclass, the class, or a module.

        Its components go before those of installed plugins that have the same name; of two registered ones the later
        counts. Returns the plugin's name, which is made from the class or module if `name` is None.

        Raises:
            HookError: a hook has a wrong name or signature.
            PluginError: `name` is taken, or `plugin` is nothing that could be one.
        """
        plugin = plugin_object(plugin)
        with self._lock:
            taken = {entry.name for entry in self._entries}
            if name is None:
                base = plugin.__name__ if isinstance(plugin, ModuleType) else type(plugin).__name__
                name = next(
                    n for i in range(1, len(taken) + 2) if (n := base if i == 1 else f"{base}-{i}") not in taken
                )
            elif name in taken:
                raise PluginError(
                    f"a plugin named {name!r} is known already; register yours under another name", plugin=name
                )
            if any(entry.plugin is plugin for entry in self._entries):
                raise PluginError(f"this plugin is registered already: {plugin!r}", plugin=name)
            self._hooks.verify(plugin, name)
            self._entries.append(Entry(name, plugin=plugin))
            self._offers.clear()
            self._implementations.clear()
        return name

    def load(self) -> None:
        """Load what is not loaded yet; otherwise done when a hook is first needed.

        A plugin that fails is no error unless the settings are strict; `statuses` tells.

        Raises:
            PluginLoadError: the settings are strict, and a plugin failed, is missing or a duplicate.
        """
        failures = [entry for entry in self._settled() if entry.status.is_problem]
        if failures and self._strict:
            lines = "".join(f"\n  {entry.status}" for entry in failures)
            raise PluginLoadError(
                f"plugins.strict is set, and not every plugin can be used:{lines}", plugin=failures[0].name
            ) from _first_error(failures)

    def _settled(self) -> list[Entry]:
        """Every plugin, after loading those that are yet to be loaded."""
        with self._lock:
            for entry in self._entries:
                if entry.state is None:
                    self._load_one(entry)
            return list(self._entries)

    def _load_one(self, entry: Entry) -> None:
        try:
            if entry.found is not None:
                entry.plugin = plugin_object(load(entry.found), entry, self._data_dir)
                self._hooks.verify(entry.plugin, entry.name)
            self._hooks.register(entry.plugin, entry.name)
        # A plugin that calls sys.exit() when it is imported must not end the application.
        except (Exception, SystemExit) as error:
            entry.settle("failed", one_line(error), error)
        else:
            entry.settle("loaded", "" if entry.found is not None else "registered by the application")

    @property
    def statuses(self) -> list[PluginStatus]:
        """What became of each plugin so far, after loading those that are enabled. A failure is data here."""
        return [entry.status for entry in self._settled()]

    def hooks(self, plugin: str) -> list[str]:
        """Names of the hooks that the plugin of that name implements."""
        self._settled()
        return [hook for hook in HOOKS if any(each.plugin_name == plugin for each in self._hooks.implementations(hook))]

    def plugin(self, name: str) -> object:
        """The plugin of that name, loaded: a module, or an instance of a subclass of `Plugin`.

        Raises:
            PluginLoadError: it can't be used; the cause is chained.
            PluginError: there is none of that name.
        """
        entries = self._settled()
        for entry in entries:
            if entry.name == name:
                if entry.state == "loaded":
                    return entry.plugin
                raise PluginLoadError(str(entry.status), plugin=name) from entry.error
        raise PluginError(
            f"there is no plugin {name!r}{did_you_mean(name, [each.name for each in entries])}", plugin=name
        )

    # Components.

    def classes(self, kind: str) -> list[Offer]:
        """The components of a kind that plugins offer, by name; of equal names, the application's plugins' last.

        A plugin that fails to offer its components is marked as failed, and the others' are returned.

        Raises:
            InputError: there is no such kind.
            PluginLoadError: the settings are strict, and a plugin failed.
        """
        return self._usable(kind)

    def _usable(self, kind: str, name: str | None = None) -> list[Offer]:
        """The components of a kind, those of one name only if it is given, whose classes can be imported."""
        interface(kind)
        usable = [offer for offer in self._collect(kind) if name in (None, offer.name) and self._imported(offer)]
        self.load()
        return usable

    def _imported(self, offer: Offer) -> bool:
        """True if the class is there; else its plugin is marked as failed, and not asked for it again."""
        try:
            offer.cls  # noqa: B018  # imports it
        except (Exception, SystemExit) as error:
            with self._lock:
                entry = next(entry for entry in self._entries if entry.name == offer.plugin)
                entry.settle("failed", f"{offer.kind} {offer.name!r}: {one_line(error)}", error)
                entry.lost.add((offer.kind, offer.name))
                self._offers[offer.kind] = [other for other in self._collect(offer.kind) if other is not offer]
            return False
        return True

    def _collect(self, kind: str) -> list[Offer]:
        with self._lock:
            entries = {entry.name: entry for entry in self._settled()}
            if kind not in self._offers:
                offers: list[Offer] = []
                for implementation in self._hooks.implementations(f"nanomem_register_{kind}"):
                    entry = entries[implementation.plugin_name]
                    origin = entry.found.origin if entry.found is not None else None
                    try:
                        offers += list(checked_offers(kind, entry.name, origin, call(implementation)))
                    except (Exception, SystemExit) as error:
                        entry.settle("failed", f"nanomem_register_{kind}: {one_line(error)}", error)
                self._offers[kind] = sorted(offers, key=lambda offer: (offer.name, offer.distribution is None))
            return self._offers[kind]

    def find(self, kind: str, name: str) -> Offer:
        """The component of that kind and name.

        Raises:
            UnknownComponentError: no plugin offers it; names those that are offered, and the plugins that failed.
            DuplicateComponentError: several installed plugins offer it; names their distributions.
            PluginLoadError: the plugin of that name failed to load; the cause is chained.
        """
        offers = self._usable(kind, name)
        if not offers:
            raise self._not_offered(kind, name)
        problem = clash(offers)
        if problem is not None:
            raise DuplicateComponentError(problem, plugin=offers[0].plugin)
        return offers[-1]

    def _not_offered(self, kind: str, name: str) -> PluginError:
        entries = self._settled()
        problems = [entry for entry in entries if entry.status.is_problem]
        for entry in problems:
            # Mostly nobody can know what a plugin would have offered; by convention a component of its own name.
            if (kind, name) in entry.lost or _folded(entry.name) == _folded(name):
                error = PluginLoadError(f"{kind} {name!r} can't be used: {entry.status}", plugin=entry.name)
                error.__cause__ = entry.error
                return error
        names = sorted({offer.name for offer in self._collect(kind)})
        listed = ", ".join(names) or "none"
        text = f"no {kind} named {name!r} is offered{did_you_mean(name, names)} (offered: {listed})"
        for entry in entries:
            if entry.state == "disabled" and _folded(entry.name) == _folded(name):
                text += f"; {entry.status}"
        if problems:
            text += f"; not loaded: {', '.join(entry.name for entry in problems)} (see `nanomem plugins check`)"
        unknown = UnknownComponentError(text)
        unknown.__cause__ = _first_error(problems)
        return unknown

    @property
    def offers(self) -> list[Offer]:
        """Every component that plugins offer, of every kind. A failure is data here, see `statuses`."""
        return [offer for kind in KINDS for offer in self._collect(kind) if self._imported(offer)]

    def problems(self) -> list[str]:
        """Everything that is wrong with the plugins and what they offer, one line each."""
        groups = [list(same) for _, same in groupby(self.offers, lambda offer: (offer.kind, offer.name))]
        clashes = [problem for offers in groups if (problem := clash(offers)) is not None]
        return [str(status) for status in self.statuses if status.is_problem] + clashes

    def build(self, kind: str, spec: object, *, data_dir: Path | None = None) -> Any:
        """The component that `spec` describes, made by the ``nanomem_build`` hook.

        `spec` is a name, a mapping ``{"use": name, **options}``, a class, or an instance, which is returned as it is;
        ``use`` may be a class too. Options are checked and converted by the annotations of the constructor. Relative
        paths among them are taken from `data_dir`.

        Raises:
            ConfigError: an option is unknown, missing or wrong; `key` is ``kind.option``.
            InputError: `spec` has another form.
            PluginError: as in `find`, or a hook returned something else than a component of that kind.
        """
        base = interface(kind)
        if isinstance(spec, base):
            return spec
        options = {key: value for key, value in spec.items() if key != "use"} if isinstance(spec, Mapping) else {}
        use = spec.get("use") if isinstance(spec, Mapping) else spec
        if isinstance(use, str):
            cls = self.find(kind, use).cls
        elif isinstance(use, type) and issubclass(use, base):
            cls = use
        else:
            # A mapping may hold secrets, so only its keys are shown.
            found = f"a mapping of {', '.join(map(str, spec))}" if isinstance(spec, Mapping) else repr(spec)
            raise InputError(
                f"{kind}: expected a name, a mapping with `use` and options, or an instance or subclass of "
                f"{base.__name__}; found {found}"
            )
        self.load()
        try:
            checked = Options(cls).check(options, f"{kind} {label(cls)}", data_dir)
            component = self._hooks.hook.nanomem_build(kind=kind, cls=cls, options=checked)
        except ConfigError as error:
            if (error.key or "").partition(".")[0] not in KINDS:  # else a component that this one is made of
                error.key = f"{kind}.{error.key}" if error.key else kind
            raise
        if not isinstance(component, base):
            raise PluginError(
                f"nanomem_build for {kind} {label(cls)}: expected an instance of {base.__name__}; found {component!r}"
            )
        return component

    # What happens to a memory.

    def before_commit(self, scope: Scope, changes: Sequence[Change]) -> tuple[Change, ...]:
        """What the ``nanomem_before_commit`` hooks make of `changes`, each taking the result of the one before.

        Raises:
            VetoError: a plugin refused; any other error of this library passes through in the same way.
            PluginError: a plugin failed otherwise, or returned something else than changes.
        """
        current = tuple(changes)
        for implementation in self._loaded("nanomem_before_commit"):
            name = implementation.plugin_name
            try:
                result = call(implementation, scope=scope, changes=current)
                current = current if result is None else tuple(result)
            except NanomemError:
                raise
            except (Exception, SystemExit) as error:
                raise PluginError(
                    f"plugin {name!r} failed in nanomem_before_commit: {one_line(error)}; nothing was written",
                    plugin=name,
                ) from error
            for change in current:
                if not isinstance(change, (Put, Delete)):
                    raise PluginError(
                        f"plugin {name!r}: nanomem_before_commit must return Put and Delete objects; found {change!r}",
                        plugin=name,
                    )
        return current

    def should_store(self, scope: Scope, text: str, context: Sequence[ChatMessage]) -> tuple[StoreVerdict, str] | None:
        """The first verdict of a ``nanomem_should_store`` hook, and who gave it; None if nobody could judge.

        The plugins that were registered last are asked first, so that an application goes before what is installed.
        """
        found = reversed(self._loaded("nanomem_should_store"))
        for implementation in sorted(found, key=lambda each: each.trylast - each.tryfirst):
            name = implementation.plugin_name
            try:
                verdict = call(implementation, scope=scope, text=text, context=context)
                if verdict is not None and not isinstance(verdict, StoreVerdict):
                    raise TypeError(f"expected a StoreVerdict or None; found {verdict!r}")
            except (Exception, SystemExit) as error:
                _log_failure(name, "nanomem_should_store", error)
            else:
                if verdict is not None:
                    return verdict, name
        return None

    def committed(self, commit: Commit) -> None:
        """Tell every plugin of a commit. One that raises is logged and keeps it from nobody."""
        self._notify("nanomem_committed", commit=commit)

    def searched(self, scope: Scope, query: str, results: Sequence[Mapping[str, Any]]) -> None:
        """Tell every plugin of a search. One that raises is logged and keeps it from nobody."""
        self._notify("nanomem_searched", scope=scope, query=query, results=results)

    def episode_created(self, scope: Scope, episode: Record) -> None:
        """Tell every plugin of a new episode. One that raises is logged and keeps it from nobody."""
        self._notify("nanomem_episode_created", scope=scope, episode=episode)

    def episode_distilled(self, scope: Scope, id: str, report: Mapping[str, Any]) -> None:
        """Tell every plugin that an episode's facts were drawn, likewise."""
        self._notify("nanomem_episode_distilled", scope=scope, id=id, report=report)

    def episode_deleted(self, scope: Scope, id: str, facts: Sequence[str]) -> None:
        """Tell every plugin that an episode was deleted, and the `facts` with it, likewise."""
        self._notify("nanomem_episode_deleted", scope=scope, id=id, facts=facts)
        for fact in facts:
            self.fact_deleted(scope, fact)

    def fact_deleted(self, scope: Scope, id: str) -> None:
        """Tell every plugin that a fact was deleted, likewise."""
        self._notify("nanomem_fact_deleted", scope=scope, id=id)

    def _loaded(self, hook: str) -> list[HookImpl]:
        """Who implements a hook, after `load`. Kept, since this is asked for every commit and every search."""
        found = self._implementations.get(hook)
        if found is None:
            with self._lock:
                self.load()
                found = self._implementations[hook] = self._hooks.implementations(hook)
        return found

    def _notify(self, hook: str, **arguments: Any) -> None:
        for implementation in self._loaded(hook):
            try:
                call(implementation, **arguments)
            except (Exception, SystemExit) as error:
                _log_failure(implementation.plugin_name, hook, error)


def _log_failure(plugin: str, hook: str, error: BaseException) -> None:
    import logging

    logging.getLogger("nanomem").error("plugin %r failed in %s: %s", plugin, hook, one_line(error), exc_info=error)


def _first_error(entries: Sequence[Entry]) -> BaseException | None:
    return next((entry.error for entry in entries if entry.error is not None), None)


def _folded(name: str) -> str:
    return name.replace("-", "_").casefold()
