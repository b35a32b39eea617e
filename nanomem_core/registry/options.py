"""Options of a component: the keyword arguments of its constructor, checked and converted by their annotations."""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ConfigDict, Field, SecretStr, ValidationError, create_model

from ..errors import ConfigError
from ..hints import did_you_mean, first_problem, is_secret

__all__ = ["Option", "Options"]

_NO_DEFAULT = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Option:
    """One keyword argument of a constructor."""

    name: str
    annotation: Any
    default: Any = _NO_DEFAULT

    @property
    def required(self) -> bool:
        return self.default is _NO_DEFAULT

    @property
    def secret(self) -> bool:
        """True if its value must not be shown: it is a ``SecretStr``, or its name says so."""
        return SecretStr in _parts(self.annotation) or is_secret(self.name)

    @property
    def is_path(self) -> bool:
        """True if its annotation admits a path object, such as ``Path`` or ``str | os.PathLike[str]``."""
        kinds = (get_origin(part) or part for part in _parts(self.annotation))
        return any(isinstance(kind, type) and issubclass(kind, os.PathLike) for kind in kinds)

    @property
    def type_name(self) -> str:
        """The annotation, for a person to read."""
        return inspect.formatannotation(self.annotation).replace("typing.", "")


class Options:
    """The options that `cls` takes.

    Annotations that can't be resolved (imported for type checkers only, say) or that pydantic knows no check for
    count as ``Any``.

    Attributes:
        declared: the named options, in the order of the constructor.
        open: True if the constructor takes ``**kwargs``, so that further options are passed on unchecked.
    """

    def __init__(self, cls: type) -> None:
        parameters = _parameters(cls)
        self.open = any(each.kind is each.VAR_KEYWORD for each in parameters)
        names = getattr(inspect.unwrap(cls.__init__), "__globals__", {})  # type: ignore[misc]
        self.declared = tuple(
            Option(each.name, _annotation(each.annotation, names), each.default)
            for each in parameters
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        )

    def check(self, options: Mapping[str, Any], component: str, data_dir: Path | None = None) -> dict[str, Any]:
        """`options` with every value converted to its annotation.

        Relative paths, given or default, are taken from `data_dir`; without one they stay as they are.

        Raises:
            ConfigError: an option is unknown, missing or has a wrong value; `component` names whose option it is.
        """
        known = {option.name: option for option in self.declared}
        for name in options:
            if name not in known and not self.open:
                listed = ", ".join(sorted(known)) or "none"
                hint = did_you_mean(name, known)
                raise ConfigError(f"{component} has no option {name!r}{hint} (its options: {listed})", key=name)
        plain = {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in options.items()
        }
        # Fields have names of their own, since an option may be called like an attribute of the model.
        fields: dict[str, Any] = {
            f"option_{number}": (
                option.annotation,
                Field(... if option.required else option.default, alias=option.name),
            )
            for number, option in enumerate(self.declared)
        }
        model = create_model("Options", __config__=_CONFIG, **fields)
        try:
            result = model.model_validate(plain)
        except ValidationError as error:
            where, problem = first_problem(error)
            raise ConfigError(f"{component}, option {where[0]!r}: {problem}", key=str(where[0])) from error
        checked = {
            option.name: getattr(result, f"option_{number}")
            for number, option in enumerate(self.declared)
            if f"option_{number}" in result.model_fields_set
        }
        checked.update((name, value) for name, value in plain.items() if name not in known)
        if data_dir is not None:
            checked.update(self._located(checked, data_dir))
        return checked

    def _located(self, checked: Mapping[str, Any], data_dir: Path) -> dict[str, Any]:
        values = {option.name: checked.get(option.name, option.default) for option in self.declared if option.is_path}
        return {
            name: data_dir / Path(value).expanduser()
            for name, value in values.items()
            if isinstance(value, (str, os.PathLike))
        }


_CONFIG = ConfigDict(arbitrary_types_allowed=True, extra="ignore", hide_input_in_errors=True)


def _parameters(cls: type) -> list[inspect.Parameter]:
    if sys.version_info >= (3, 14):
        # Names that are imported for type checkers only can't be evaluated; they stay forward references.
        import annotationlib

        signature = inspect.signature(cls, annotation_format=annotationlib.Format.FORWARDREF)
    else:
        signature = inspect.signature(cls)
    return list(signature.parameters.values())


def _annotation(annotation: Any, names: dict[str, Any]) -> Any:
    """The annotation as a type that pydantic can check, or Any."""
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        if isinstance(annotation, str):
            annotation = eval(annotation, names)
        probe = create_model("Probe", __config__=_CONFIG, option=(annotation, ...))
    except Exception:
        # A name that is imported for type checkers only, a protocol that can't be checked at run time, and the like.
        return Any
    return annotation if probe.__pydantic_complete__ else Any


def _parts(annotation: Any) -> list[Any]:
    """The members of a union, or the annotation alone; ``Annotated`` is taken off."""
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for member in get_args(annotation) for part in _parts(member)]
    return [annotation]
