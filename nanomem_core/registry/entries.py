"""The plugins that settings allow, and what became of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ..errors import ConfigError, PluginError
from ..hints import did_you_mean
from ..hookspecs import API_LEVEL, Plugin
from .discovery import PLUGINS, Found, find
from .options import Options
from .report import PluginStatus, State

__all__ = ["Entry", "PluginSelection", "found_entries", "plugin_object"]


class PluginSelection(Protocol):
    """Which plugins to load; `nanomem_core.config.model.PluginSettings` is one.

    `load` None means all that are installed, an empty sequence none. With `strict`, any plugin that is not what the
    settings ask for is an error. `options` are, by name, the keyword arguments of plugins that are subclasses of
    `Plugin`.
    """

    @property
    def load(self) -> Sequence[str] | None: ...

    @property
    def disable(self) -> Sequence[str]: ...

    @property
    def strict(self) -> bool: ...

    @property
    def options(self) -> Mapping[str, Mapping[str, Any]]: ...


class Entry:
    """A plugin that is known, and what became of it so far; `state` None means that it is yet to be loaded."""

    def __init__(
        self, name: str, found: Found | None = None, plugin: object = None, options: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.found = found
        self.plugin = plugin
        self.options = options or {}
        self.state: State | None = None
        self.detail = ""
        self.error: BaseException | None = None
        self.lost: set[tuple[str, str]] = set()
        """Kind and name of components that it offered and whose import failed."""

    def settle(self, state: State, detail: str = "", error: BaseException | None = None) -> None:
        self.state, self.detail, self.error = state, detail, error

    @property
    def status(self) -> PluginStatus:
        distribution, version = (self.found.distribution, self.found.version) if self.found else (None, None)
        assert self.state is not None
        return PluginStatus(self.name, distribution, version, self.state, self.detail)


def found_entries(settings: PluginSelection | None) -> list[Entry]:
    """The installed plugins, and those that `settings` name and nothing installed brings; imports none."""
    chosen = settings.load if settings is not None else None
    disabled = settings.disable if settings is not None else ()
    options = settings.options if settings is not None else {}
    installed = find(PLUGINS)
    entries: list[Entry] = []
    for found in installed:
        entry = Entry(found.name, found, options=options.get(found.name))
        others = [other.origin for other in installed if other.name == found.name and other is not found]
        if found.name in disabled:
            entry.settle("disabled", "plugins.disable names it")
        elif chosen is not None and found.name not in chosen:
            entry.settle("disabled", "plugins.load does not name it")
        elif others:
            entry.settle(
                "duplicate",
                f"{', '.join(others)} brings a plugin of that name too; uninstall one, or disable the name",
            )
        entries.append(entry)
    names = {found.name for found in installed}
    for name in dict.fromkeys((*(chosen or ()), *options)):
        if name not in names:
            entry = Entry(name)
            by = "plugins.load" if name in (chosen or ()) else "plugins.options"
            entry.settle("missing", f"{by} names it, but nothing installed brings it{did_you_mean(name, names)}")
            entries.append(entry)
    return entries


def plugin_object(plugin: object, entry: Entry | None = None, data_dir: Path | None = None) -> object:
    """The object that holds the hooks, checked for being one and for the API levels it states."""
    options = {} if entry is None else entry.options
    if isinstance(plugin, type) and issubclass(plugin, Plugin):
        plugin = plugin(**Options(plugin).check(options, "the plugin", data_dir))
    elif options:
        raise ConfigError(
            f"it takes no options, but plugins.options gives it {', '.join(options)}", key="plugins.options"
        )
    if not isinstance(plugin, (Plugin, ModuleType)):
        raise PluginError(f"a plugin is a module, or a subclass of Plugin or an instance of one; found {plugin!r}")
    levels = getattr(plugin, "NANOMEM_API_LEVELS", (API_LEVEL,))
    if not isinstance(levels, Collection) or API_LEVEL not in levels:
        raise PluginError(f"it supports the API levels {levels!r}, and this nanomem_core has level {API_LEVEL}")
    return plugin
