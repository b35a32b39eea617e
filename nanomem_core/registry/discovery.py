"""Entry points: which plugins and commands are installed, and loading one of them.

Finding reads metadata only and imports nothing but the standard library, so that ``nanomem --help`` stays fast.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Any

__all__ = ["COMMANDS", "PLUGINS", "Found", "find", "load"]

PLUGINS = "nanomem.plugins"
"""Entry-point group of plugins."""

COMMANDS = "nanomem.commands"
"""Entry-point group of sub-commands of ``nanomem``."""


@dataclass(frozen=True, slots=True)
class Found:
    """An entry point with the distribution that brings it."""

    name: str
    distribution: str
    version: str
    entry_point: importlib.metadata.EntryPoint

    @property
    def origin(self) -> str:
        """The distribution, for a person to read."""
        return f"{self.distribution} {self.version}"


def find(group: str) -> list[Found]:
    """The entry points of `group` that are installed now, sorted by name and then by distribution."""
    # Read by importlib.metadata rather than by stevedore: stevedore's cache forgets the distribution, and its key
    # holds modification times as 32-bit floats, which are 128 seconds apart, so that it misses a fresh reinstall.
    found = [
        Found(entry_point.name, entry_point.dist.name, entry_point.dist.version, entry_point)
        for entry_point in importlib.metadata.entry_points(group=group)
        if entry_point.dist is not None
    ]
    return sorted(found, key=lambda each: (each.name, each.distribution))


def load(found: Found) -> Any:
    """Import what the entry point names. Whatever the import raises is raised, `SystemExit` included."""
    from stevedore import ExtensionManager

    class Loader(ExtensionManager):  # type: ignore[type-arg]  # not generic before
        # One loader for one entry point: no other plugin is imported on the way, and none hides another's failure.
        def list_entry_points(self) -> list[importlib.metadata.EntryPoint]:
            return [found.entry_point]

    def fail(manager: Any, entry_point: importlib.metadata.EntryPoint, error: BaseException) -> None:
        raise error

    [extension] = Loader(found.entry_point.group, on_load_failure_callback=fail).extensions
    return extension.plugin
