"""What there is to set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Secret, SecretStr, model_validator

from ..masking import is_secret, mask_urls

__all__ = [
    "COMPONENTS",
    "ComponentSetting",
    "ConversationSettings",
    "PluginSettings",
    "SearchSettings",
    "SecretUrl",
    "Settings",
    "component",
    "masked",
]

COMPONENTS = ("storage", "embedder", "segmenter", "generator")
"""The settings that name one component, with its options."""


class SecretUrl(Secret[str]):
    """A URL with a password or the like in it: it is shown without that, and given away by `get_secret_value` alone."""

    def _display(self) -> str:
        return mask_urls(self.get_secret_value())


def component(value: Any) -> Any:
    """A component setting in its full form: ``jsonl`` as ``{"use": "jsonl"}``, secrets out of sight.

    Raises:
        ValueError: it is neither a name nor a mapping with ``use``.
    """
    if isinstance(value, str):
        value = {"use": value}
    if not (isinstance(value, Mapping) and isinstance(value.get("use"), str) and value["use"]):
        found = f"a mapping without `use` ({', '.join(map(str, value))})" if isinstance(value, Mapping) else repr(value)
        expected = "the name of a component, or a mapping with `use` and its options"
        raise ValueError(f"expected {expected}; found {mask_urls(found)}")
    return _hidden(value)


def _hidden(value: Any, secret: bool = False, names: Collection[str] = ()) -> Any:
    """`value` with all that must not be shown as a pydantic `Secret`: what stands below a name that `is_secret` or is
    among `names` (or anywhere, if `secret`), and URLs with a password or the like.

    A number below such a name becomes a text, as which it can be hidden.
    """
    if isinstance(value, Mapping):
        return {
            str(key): _hidden(item, secret or is_secret(str(key)) or key in names, names) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_hidden(item, secret, names) for item in value]
    if secret and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return SecretStr(str(value))
    return SecretUrl(value) if isinstance(value, str) and mask_urls(value) != value else value


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


class SearchSettings(_Group):
    """How questions are answered where the call doesn't say.

    Attributes:
        mode: by meaning (``vector``), by words (``text``), or both.
        neighbours: let each record gain from those that were told just before and after it: for turns of conversations.
        top_k: hits of a search.
        language: of the stemmer, a Snowball name such as ``english``.
    """

    mode: Literal["vector", "text", "hybrid"] = "hybrid"
    neighbours: bool = False
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
    """`value` as JSON types with a mask for every secret: what `component` hides, and what stands below a name that is
    among `secrets`.
    """
    return _shown(_hidden(dict(value) if isinstance(value, BaseModel) else value, names=secrets))


def _shown(value: Any) -> Any:
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        return {str(key): _shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
