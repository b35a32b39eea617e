"""What there is to set."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from ..hints import is_secret

__all__ = [
    "COMPONENTS",
    "MASK",
    "ComponentSetting",
    "ConversationSettings",
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
_URL_QUERY_SECRET = re.compile(r"(?<=[?&])([\w.-]*(?:key|token|secret|sig|signature|password|code)=)[^&#\s]+", re.I)


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
    return _hidden(value)


def _hidden(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
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
    # Deferred, since building the validators takes longer than opening a memory; see `load_settings`.
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True, defer_build=True
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Headers and URLs hold secrets that are no SecretStr.
        for name, value in super().__repr_args__():
            yield name, masked(value) if isinstance(value, (Mapping, tuple)) else value


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


class ConversationSettings(_Group):
    """How messages become episodes, and episodes facts.

    Attributes:
        batch_threshold: so many waiting messages become episodes.
        token_threshold: so many tokens of waiting messages (estimated) do; None sets no limit.
        gap_minutes: what was said before a longer pause does; None ignores pauses.
        min_messages: an episode of fewer is joined with its neighbour, where there is one.
        max_messages: an episode of more is cut.
        merge: let new messages go on with a stored episode; needs a generator.
        merge_similarity: least cosine for that.
        merge_gap_minutes: longest pause for that.
        merge_top_k: how many stored episodes are looked at.
        facts: draw facts from episodes; needs a generator.
        related_facts: how many facts a model is shown for that, at most.
        related_similarity: least cosine of those facts.
        search_top_k_episodes, search_top_k_facts: hits of `MemorySystem.search_all`.
        attempts: how often drawing the facts of an episode is tried.
        workers: how many scopes are worked on at once.
        token_budget: tokens that a generator may use while this is open; None sets no limit.
    """

    batch_threshold: int = Field(default=20, ge=1)
    token_threshold: int | None = Field(default=8000, ge=1)
    gap_minutes: float | None = Field(default=60.0, gt=0)
    min_messages: int = Field(default=2, ge=1)
    max_messages: int = Field(default=25, ge=1)
    merge: bool = True
    merge_similarity: float = Field(default=0.85, gt=0, le=1)
    merge_gap_minutes: float = Field(default=60.0, ge=0)
    merge_top_k: int = Field(default=5, ge=1)
    facts: bool = True
    related_facts: int = Field(default=10, ge=1)
    related_similarity: float = Field(default=0.7, gt=0, le=1)
    search_top_k_episodes: int = Field(default=10, ge=0)
    search_top_k_facts: int = Field(default=10, ge=0)
    attempts: int = Field(default=3, ge=1)
    workers: int = Field(default=8, ge=1)
    token_budget: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.max_messages < self.min_messages:
            raise ValueError(
                f"expected max_messages from min_messages ({self.min_messages}) on; found {self.max_messages}"
            )
        return self


class PluginSettings(_Group):
    """Which plugins are loaded.

    Attributes:
        load: names of the plugins to load; None means all that are installed, an empty list none.
        disable: names of plugins not to load.
        strict: make it an error if a plugin can't be loaded, is missing or a duplicate.
        options: by a plugin's name, the options that it takes itself, beside those of its components.
    """

    load: Names | None = None
    disable: Names = ()
    strict: bool = False
    options: Mapping[str, Annotated[Mapping[str, Any], BeforeValidator(_hidden)]] = Field(default={})


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
    search: SearchSettings = Field(default_factory=SearchSettings.model_construct)
    conversation: ConversationSettings = Field(default_factory=ConversationSettings.model_construct)
    plugins: PluginSettings = Field(default_factory=PluginSettings.model_construct)


def masked(value: Any, secrets: Collection[str] = ()) -> Any:
    """`value` as JSON types with every secret replaced by `MASK`.

    Secret are ``SecretStr`` values, texts under a name that says so or that is among `secrets`, the values of
    ``headers``, and passwords and keys in URLs.
    """
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        return {
            str(key): MASK
            if isinstance(item, str) and (is_secret(str(key)) or key in secrets)
            else masked(item, item if str(key) == "headers" and isinstance(item, Mapping) else secrets)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked(item, secrets) for item in value]
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, str):
        value = _URL_PASSWORD.sub(rf"\1:{MASK}", value)
        return _URL_QUERY_SECRET.sub(rf"\1{MASK}", value) if "://" in value else value
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
