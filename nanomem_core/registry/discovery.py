"""Entry points: which plugins and commands are installed, and loading one of them.

Finding reads metadata only and imports nothing but the standard library, so that ``nanomem --help`` stays fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["COMMANDS", "PLUGINS", "Found", "find", "load"]

PLUGINS = "nanomem.plugins"
"""Entry-point group of plugins."""

COMMANDS = "nanomem.commands"
"""Entry-point group of sub-commands of ``nanomem``."""

_INFO_FOLDERS = (".dist-info", ".egg-info")


@dataclass(frozen=True, slots=True)
class Found:
    """An entry point with the distribution that brings it; `value` is ``module`` or ``module:attribute``."""

    name: str
    distribution: str
    version: str
    group: str
    value: str

    @property
    def origin(self) -> str:
        """The distribution, for a person to read."""
        return f"{self.distribution} {self.version}"


def find(group: str) -> list[Found]:
    """The entry points of `group` that are installed now, sorted by name and then by distribution."""
    # Not by stevedore: its cache forgets the distribution, and its key holds modification times as 32-bit floats, which
    # are 128 seconds apart, so that it misses a fresh reinstall.
    found = _found_in_folders(group) if _only_folders() else _found_anywhere(group)
    return sorted(found, key=lambda each: (each.name, each.distribution))


def load(found: Found) -> Any:
    """Import what the entry point names. Whatever the import raises is raised, `SystemExit` included."""
    from importlib.metadata import EntryPoint

    from stevedore import ExtensionManager

    class Loader(ExtensionManager):  # type: ignore[type-arg]  # not generic before
        # One loader for one entry point: no other plugin is imported on the way, and none hides another's failure.
        def list_entry_points(self) -> list[EntryPoint]:
            return [EntryPoint(found.name, found.value, found.group)]

    def fail(manager: Any, entry_point: EntryPoint, error: BaseException) -> None:
        raise error

    [extension] = Loader(found.group, on_load_failure_callback=fail).extensions
    return extension.plugin


def _found_anywhere(group: str) -> Iterator[Found]:
    import importlib.metadata

    for each in importlib.metadata.entry_points(group=group):
        if each.dist is not None:
            yield Found(each.name, each.dist.name, each.dist.version, group, each.value)


# Importing importlib.metadata takes longer than all that follows, and its entry_points() reads every group of every
# distribution. So where the import path holds nothing but folders, the few files are read here, by its rules.


def _only_folders() -> bool:
    """True if every distribution is found in a folder of the import path: no archives, eggs or finders of others."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    # Python's own finder is a class of the frozen importlib.
    if any(getattr(finder, "__module__", "") != "_frozen_importlib_external" for finder in finders):
        return False
    return not any(path.endswith(".egg") or os.path.isfile(path) for path in sys.path)


def _found_in_folders(group: str) -> Iterator[Found]:
    seen = set()
    for path in sys.path:
        try:
            names = os.listdir(path or os.curdir)
        except OSError:
            continue
        for name in names:
            if not name.lower().endswith(_INFO_FOLDERS):
                continue
            # Of several distributions of one name, the first on the import path counts.
            key = name.rpartition(".")[0].partition("-")[0].replace("_", "-").replace(".", "-").lower()
            if key not in seen:
                seen.add(key)
                yield from _found_in(os.path.join(path, name), group)


def _found_in(info: str, group: str) -> Iterator[Found]:
    """The entry points of one distribution, whose metadata are in the folder `info`."""
    text = _read(info, "entry_points.txt")
    if group not in text:
        return
    distribution = version = section = ""
    for line in (_read(info, "METADATA") or _read(info, "PKG-INFO")).splitlines():
        field, _, value = line.partition(":")
        if not field:
            break
        if field.lower() == "name":
            distribution = value.strip()
        elif field.lower() == "version":
            version = value.strip()
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif section == group and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield Found(name.strip(), distribution, version, group, value.strip())


def _read(folder: str, name: str) -> str:
    """The content of a file, an empty text where there is none."""
    path = os.path.join(folder, name)
    # Most distributions have no entry points, and asking is cheaper than being refused.
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
