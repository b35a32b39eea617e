"""What there is to set."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from ..hints import is_secret

__all__ = [
    "COMPONENTS",
    "MASK",
    "ComponentSetting",
    "PluginSettings",
    "SearchSettings",
    "Settings",
    "component",
    "masked",
]

COMPONENTS = ("storage", "embedder", "segmenter", "generator")
"""The settings that name one component, with its options."""

MASK = "**********"
"""Shown in place of a secret."""

_URL_PASSWORD = re.compile(r"(?<=://)([^/?#@\s:]*):[^/?#\s]*(?=@)")


def component(value: Any) -> Any:
    """A component setting in its full form: ``jsonl`` as ``{"use": "jsonl"}``, secrets out of sight.

    Raises:
        ValueError: it is neither a name nor a mapping with ``use``.
    """
    if isinstance(value, str):
        value = {"use": value}
    if not (isinstance(value, Mapping) and isinstance(value.get("use"), str) and value["use"]):
        found = f"a mapping without `use` ({', '.join(map(str, value))})" if isinstance(value, Mapping) else repr(value)
        raise ValueError(f"expected the name of a component, or a mapping with `use` and its options; found {found}")
    return {
        str(key): SecretStr(item) if isinstance(item, str) and is_secret(str(key)) else item
        for key, item in value.items()
    }


def _names(value: Any) -> Any:
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _components(value: Any) -> Any:
    value = _names(value)
    return [component(item) for item in value] if isinstance(value, (list, tuple)) else value


ComponentSetting = Annotated[Mapping[str, Any], BeforeValidator(component)]
"""``{"use": name, **options}``; a name alone is accepted."""

Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""A list of names; as a text, separated by commas."""


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)


class SearchSettings(_Group):
    """How questions are answered where the call doesn't say.

    Attributes:
        mode: by meaning (``vector``), by words (``text``), or both.
        top_k: hits of a search.
        language: of the stemmer, a Snowball name such as ``english``.
    """

    mode: Literal["vector", "text", "hybrid"] = "hybrid"
    top_k: int = Field(default=3, ge=1)
    language: str = "english"


class PluginSettings(_Group):
    """Which plugins are loaded.

    Attributes:
        load: names of the plugins to load; None means all that are installed, an empty list none.
        disable: names of plugins not to load.
        strict: make it an error if a plugin can't be loaded, is missing or a duplicate.
    """

    load: Names | None = None
    disable: Names = ()
    strict: bool = False


class Settings(_Group):
    """Everything there is to set.

    Attributes:
        data_dir: where relative paths among the options of components start from.
        storage, embedder, segmenter, generator: a component each, ``{"use": name, **options}``; the last two may be
            None.
        taggers: components that are asked in turn.
    """

    data_dir: Path = Path(".")
    storage: ComponentSetting = Field(default={"use": "arena", "path": "memory.dat"})
    embedder: ComponentSetting = Field(default={"use": "lexical"})
    segmenter: ComponentSetting | None = None
    generator: ComponentSetting | None = None
    taggers: Annotated[tuple[Mapping[str, Any], ...], BeforeValidator(_components)] = Field(
        default=({"use": "keyword"},)
    )
    search: SearchSettings = SearchSettings()
    plugins: PluginSettings = PluginSettings()


def masked(value: Any, secrets: Collection[str] = ()) -> Any:
    """`value` as JSON types with every secret replaced by `MASK`.

    Secret are ``SecretStr`` values, texts under a name that says so or that is among `secrets`, and passwords in URLs.
    """
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        return {
            str(key): MASK
            if isinstance(item, str) and (is_secret(str(key)) or key in secrets)
            else masked(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked(item, secrets) for item in value]
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, str):
        return _URL_PASSWORD.sub(rf"\1:{MASK}", value)
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
