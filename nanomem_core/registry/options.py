"""Options of a component: the keyword arguments of its constructor, checked and converted by their annotations."""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from ..errors import ConfigError
from ..hints import did_you_mean, first_problem
from ..masking import is_secret

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["Option", "Options"]

# Importing pydantic takes longer than opening a memory, so it is imported only for what can't be done without it.

_NO_DEFAULT = inspect.Parameter.empty

_PLAIN = (str, int, float, bool, bytes, Path, types.NoneType, Any, ...)
_PLAIN_GENERIC = (Union, types.UnionType, Literal, os.PathLike, dict, frozenset, list, set, tuple)
"""What annotations may be made of to be known as checkable without asking pydantic."""


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
        from pydantic import SecretStr

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
        checked = {name: _revealed(value) for name, value in options.items()}
        if not all(
            _fits(checked[name], option) if name in checked else not option.required for name, option in known.items()
        ):
            checked.update(self._converted(checked, component))
        if data_dir is not None:
            checked.update(self._located(checked, data_dir))
        return checked

    def _converted(self, given: Mapping[str, Any], component: str) -> dict[str, Any]:
        """The declared ones among the options that are `given`, checked and converted by pydantic."""
        from pydantic import Field, ValidationError

        # Fields have names of their own, since an option may be called like an attribute of the model.
        fields: dict[str, Any] = {
            f"option_{number}": (
                option.annotation,
                Field(... if option.required else option.default, alias=option.name),
            )
            for number, option in enumerate(self.declared)
        }
        try:
            result = _model(**fields).model_validate(given)
        except ValidationError as error:
            where, problem = first_problem(error)
            raise ConfigError(f"{component}, option {where[0]!r}: {problem}", key=str(where[0])) from error
        return {
            option.name: getattr(result, f"option_{number}")
            for number, option in enumerate(self.declared)
            if f"option_{number}" in result.model_fields_set
        }

    def _located(self, checked: Mapping[str, Any], data_dir: Path) -> dict[str, Any]:
        values = {option.name: checked.get(option.name, option.default) for option in self.declared if option.is_path}
        return {
            name: data_dir / Path(value).expanduser()
            for name, value in values.items()
            if isinstance(value, (str, os.PathLike))
        }


def _revealed(value: Any) -> Any:
    """`value` with what the settings hide, at any depth, as it is."""
    if hasattr(value, "get_secret_value"):  # a secret of pydantic, which need not be imported to be recognised
        return value.get_secret_value()
    if type(value) is dict:
        return {key: _revealed(item) for key, item in value.items()}
    return [_revealed(item) for item in value] if type(value) is list else value


def _model(**fields: Any) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    config = ConfigDict(arbitrary_types_allowed=True, extra="ignore", hide_input_in_errors=True)
    return create_model("Options", __config__=config, **fields)


def _fits(value: Any, option: Option) -> bool:
    """True if `value` is known without pydantic to be what the annotation asks for."""
    parts = _parts(option.annotation)
    choices = [choice for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    fits = type(value) in parts or any(type(value) is type(choice) and value == choice for choice in choices)
    return fits and _is_plain(option.annotation)


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
        checkable = _is_plain(annotation) or _model(option=(annotation, ...)).__pydantic_complete__
    except Exception:
        # A name that is imported for type checkers only, a protocol that can't be checked at run time, and the like.
        return Any
    return annotation if checkable else Any


def _is_plain(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is None:
        return annotation in _PLAIN
    return origin in _PLAIN_GENERIC and (origin is Literal or all(map(_is_plain, get_args(annotation))))


def _parts(annotation: Any) -> list[Any]:
    """The members of a union, or the annotation alone; ``Annotated`` is taken off."""
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for member in get_args(annotation) for part in _parts(member)]
    return [annotation]
