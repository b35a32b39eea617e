"""Where settings come from, and which source counts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from ..errors import ConfigError, InputError
from ..hints import did_you_mean, first_problem
from .files import CONFIG_VARIABLE, PROJECT_FILE, read_settings_file, user_file
from .model import COMPONENTS, Settings, component

__all__ = ["PRECEDENCE", "LoadedSettings", "flatten", "load_settings", "settings_files", "settings_of"]

ENVIRONMENT_PREFIX = "NANOMEM_"
_DEFAULT = "default"

Keys = tuple[str, ...]
Values = dict[Keys, tuple[Any, str]]
"""Values by their keys from the outside in, each with its origin."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and where each value came from.

    Attributes:
        origins: dotted key → a file and line, a variable, ``call argument``, ``command line`` or ``default``.
    """

    settings: Settings
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Request:
    path: Path | None
    arguments: Mapping[str, Any]
    command_line: Mapping[str, Any]
    environ: Mapping[str, str]
    cwd: Path


def load_settings(
    path: str | os.PathLike[str] | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    command_line: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> LoadedSettings:
    """Gather the settings from every source; `PRECEDENCE` says which counts.

    `path` takes the place of ``./nanomem.yaml``, and must exist. `arguments` and `command_line` are nested mappings
    like the files. A source that names another component (``use``) starts that component's options afresh. A relative
    ``data_dir`` in a file starts from the file's folder, any other from `cwd`.

    Raises:
        ConfigError: a file can't be read, a setting is unknown or has a wrong value; `key` and `source` say where.
    """
    request = _Request(
        path=Path(path) if path is not None else None,
        arguments=arguments or {},
        command_line=command_line or {},
        environ=os.environ if environ is None else environ,
        cwd=Path(cwd) if cwd is not None else Path.cwd(),
    )
    merged: Values = {}
    for source in reversed(PRECEDENCE):
        _merge(merged, source(request))
    data_dir, origin = merged["data_dir",]
    if isinstance(data_dir, (str, os.PathLike)):
        merged["data_dir",] = (request.cwd / Path(data_dir).expanduser(), origin)
    _refuse_unknown(merged)
    return LoadedSettings(
        _checked(merged), MappingProxyType({".".join(keys): origin for keys, (_, origin) in sorted(merged.items())})
    )


def _checked(merged: Values) -> Settings:
    # Pydantic takes longer to build its validators than a search takes. So where nothing is set but components, which
    # need none, what is set is checked here; the defaults are right already.
    tree = _nested({keys: value for keys, value in merged.items() if value[1] != _DEFAULT or keys[0] in COMPONENTS})
    data_dir = tree.get("data_dir", merged["data_dir",][0])
    if tree.keys() <= {"data_dir", *COMPONENTS} and isinstance(data_dir, Path):
        with contextlib.suppress(ValueError):  # told below
            parts = {name: None if tree[name] is None else component(tree[name]) for name in COMPONENTS}
            if None not in (parts["storage"], parts["embedder"]):
                return Settings.model_construct(data_dir=data_dir, **parts)
    try:
        return Settings.model_validate(_nested(merged))
    except ValidationError as error:
        where, problem = first_problem(error)
        keys = next((keys for keys in merged if _overlap(keys, tuple(map(str, where)))), ())
        key, source_name = ".".join(keys), merged[keys][1]
        raise ConfigError(f"setting {key}: {problem} ({source_name})", key=key, source=source_name) from error


def settings_of(source: str | os.PathLike[str] | Settings | None, arguments: Mapping[str, Any]) -> Settings:
    """What a program gives to open something: settings as they are; else those of a file (None: of the files and
    variables that apply here), and `arguments` before all others.

    Raises:
        ConfigError: a setting is wrong.
        InputError: settings as an object, and arguments beside.
    """
    if not isinstance(source, Settings):
        return load_settings(source, arguments=arguments).settings
    if arguments:
        raise InputError(f"settings are given as an object or as arguments ({', '.join(arguments)}), not both")
    return source


def settings_files(
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> dict[str, Path | None]:
    """The files that `load_settings` reads if they exist: ``project`` and ``user``."""
    folder = Path(cwd) if cwd is not None else Path.cwd()
    return {
        "project": folder / (PROJECT_FILE if path is None else path),
        "user": user_file(os.environ if environ is None else environ),
    }


# The sources. Each gives what it sets, and nothing else.


def _arguments(request: _Request) -> Values:
    return {keys: (value, "call argument") for keys, value in flatten(request.arguments)}


def _command_line(request: _Request) -> Values:
    return {keys: (value, "command line") for keys, value in flatten(request.command_line)}


def _environment(request: _Request) -> Values:
    values: Values = {}
    for name in sorted(request.environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name == CONFIG_VARIABLE:
            continue
        keys = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        # Other programs use the prefix too. A name is taken for a setting if it is one, nearly is one, or is nested.
        if len(keys) > 1 or keys[0] in Settings.model_fields or did_you_mean(keys[0], Settings.model_fields):
            values[keys] = (request.environ[name], f"environment variable {name}")
    return values


def _project_file(request: _Request) -> Values:
    path = settings_files(request.path, environ=request.environ, cwd=request.cwd)["project"]
    return _file(path, required=request.path is not None)


def _user_file(request: _Request) -> Values:
    path = settings_files(environ=request.environ, cwd=request.cwd)["user"]
    return _file(path, required=CONFIG_VARIABLE in request.environ)


def _file(path: Path | None, required: bool) -> Values:
    if path is None or not (required or path.is_file()):
        return {}
    values: Values = read_settings_file(path)
    data_dir, origin = values.get(("data_dir",), (None, ""))
    if isinstance(data_dir, str):
        values["data_dir",] = (path.parent / Path(data_dir).expanduser(), origin)
    return values


def _defaults(request: _Request) -> Values:
    return {keys: (value, _DEFAULT) for keys, value in flatten(Settings.model_construct())}


PRECEDENCE: tuple[Callable[[_Request], Values], ...] = (
    _arguments,
    _command_line,
    _environment,
    _project_file,
    _user_file,
    _defaults,
)
"""The sources; an earlier one counts before a later one."""


def flatten(tree: Mapping[str, Any] | BaseModel, above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Every value in nested mappings, or models, by its keys from the outside in.

    An empty mapping is a value of an option; of a whole group it sets nothing.
    """
    for name, value in tree.items() if isinstance(tree, Mapping) else tree:
        if isinstance(value, BaseModel) or (isinstance(value, Mapping) and (value or not above)):
            yield from flatten(value, (*above, name))
        else:
            yield (*above, name), value


def _nested(values: Values) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for keys, (value, _) in values.items():
        branch = tree
        for key in keys[:-1]:
            branch = branch.setdefault(key, {})
        branch[keys[-1]] = value
    return tree


def _merge(merged: Values, values: Values) -> None:
    """Lay `values` over `merged`."""
    for name in COMPONENTS:
        if (name,) in values:
            value, origin = values.pop((name,))
            # A name alone stands for `use`; an empty one, all that the environment can say, for no component.
            values[(name, "use") if isinstance(value, str) and value else (name,)] = (value or None, origin)
        use, old = values.get((name, "use")), merged.get((name, "use"))
        if use is not None and old is not None and use[0] != old[0]:
            for keys in [keys for keys in merged if keys[0] == name]:
                del merged[keys]
    for keys, value in values.items():
        for other in [other for other in merged if _overlap(keys, other)]:
            del merged[other]
        merged[keys] = value


def _overlap(keys: Keys, other: Keys) -> bool:
    """True if one is the other, or leads to it."""
    shorter = min(len(keys), len(other))
    return keys[:shorter] == other[:shorter]


def _refuse_unknown(values: Values) -> None:
    for keys, (_, origin) in values.items():
        known = Settings.model_fields
        for depth, key in enumerate(keys):
            if key not in known:
                dotted = ".".join(keys[: depth + 1])
                listed = ", ".join(known)
                raise ConfigError(
                    f"there is no setting {dotted!r}{did_you_mean(key, known)} ({origin}; there are: {listed})",
                    key=dotted,
                    source=origin,
                )
            group = known[key].annotation
            if not (isinstance(group, type) and issubclass(group, BaseModel)):
                break
            known = group.model_fields
