"""Settings files: where they are, and reading one with the line of every value."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    import yaml

__all__ = ["CONFIG_VARIABLE", "PROJECT_FILE", "read_settings_file", "user_file"]

PROJECT_FILE = "nanomem.yaml"
"""Name of the file that is looked for in the current directory."""

CONFIG_VARIABLE = "NANOMEM_CONFIG"
"""Environment variable that names another user file; set but empty, it means that there is none."""


def user_file(environ: Mapping[str, str]) -> Path | None:
    """The user's own settings file, whether it exists or not; None where there is no place for one."""
    named = environ.get(CONFIG_VARIABLE)
    if named is not None:
        return Path(named).expanduser() if named else None
    home = environ.get("USERPROFILE" if os.name == "nt" else "HOME")
    if os.name == "nt":
        folder = environ.get("APPDATA") or (home and Path(home, "AppData", "Roaming"))
    elif sys.platform == "darwin":
        folder = home and Path(home, "Library", "Application Support")
    else:
        folder = environ.get("XDG_CONFIG_HOME") or (home and Path(home, ".config"))
    return Path(folder, "nanomem", "config.yaml") if folder else None


def read_settings_file(path: Path) -> dict[tuple[str, ...], tuple[Any, str]]:
    """Every value in a YAML file by its keys from the outside in, each with where it stands.

    Raises:
        ConfigError: the file can't be read or is no YAML mapping with texts as keys; names the line.
    """
    import yaml  # only where there is a file

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the settings file {path} can't be read: {error.strerror}", source=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the settings file {path} is not UTF-8: {error}", source=str(path)) from error
    # What yaml.safe_load() does, in two steps, since the nodes between them know their lines.
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return {} if node is None else dict(_values(loader, node, (), path))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        source = str(path) if mark is None else _place(path, mark)
        raise ConfigError(f"{source}: no valid YAML: {error.problem or error.context}", source=source) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: no valid YAML: {' '.join(str(error).split())}", source=str(path)) from error


def _values(
    loader: yaml.SafeLoader, node: yaml.Node, keys: tuple[str, ...], path: Path
) -> Iterator[tuple[tuple[str, ...], tuple[Any, str]]]:
    import yaml

    place = _place(path, node.start_mark)
    if not (isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map"):
        value = loader.construct_object(node, deep=True)
        if keys:
            yield keys, (value, place)
        elif value is not None:
            raise ConfigError(f"{place}: expected a mapping of settings; found {value!r}", source=place)
        return
    seen: list[object] = []
    for key_node, _ in node.value:
        key = key_node.value
        if key in seen:
            dotted = ".".join((*keys, str(key)))
            raise ConfigError(
                f"{_place(path, key_node.start_mark)}: {dotted!r} is given twice", key=dotted, source=place
            )
        seen.append(key)
    loader.flatten_mapping(node)
    if len(keys) > 1 and not node.value:
        yield keys, ({}, place)
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise ConfigError(
                f"{_place(path, key_node.start_mark)}: expected a text as a key; found {key!r}, put it in quotes",
                source=place,
            )
        yield from _values(loader, value_node, (*keys, key), path)


def _place(path: Path, mark: yaml.Mark) -> str:
    return f"{path}, line {mark.line + 1}"
