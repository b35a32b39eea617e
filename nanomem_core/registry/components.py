"""The kinds of components, and the classes of each that plugins offer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import HookError, InputError
from ..hints import did_you_mean
from ..interfaces import Component, Embedder, Generator, Segmenter, Storage, Tagger

__all__ = ["KINDS", "Offer", "checked_offers", "clash", "interface", "label"]

KINDS: Mapping[str, type[Component]] = {
    "storage": Storage,
    "embedder": Embedder,
    "segmenter": Segmenter,
    "tagger": Tagger,
    "generator": Generator,
}
"""The kinds, each with its interface."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A component class that a plugin offers.

    Attributes:
        plugin: the plugin's name.
        distribution: name and version of what brings the plugin, None for a plugin of the application.
    """

    kind: str
    name: str
    cls: type[Component]
    plugin: str
    distribution: str | None


def interface(kind: str) -> type[Component]:
    """The interface of a kind.

    Raises:
        InputError: there is no such kind.
    """
    if kind not in KINDS:
        raise InputError(
            f"there is no kind of component {kind!r}{did_you_mean(kind, KINDS)} (the kinds: {', '.join(KINDS)})"
        )
    return KINDS[kind]


def checked_offers(kind: str, plugin: str, distribution: str | None, classes: Iterable[Any]) -> Iterator[Offer]:
    """An offer for each of the `classes` that a plugin's hook returned.

    Raises:
        HookError: one of them is no subclass of the interface, has no name, or leaves methods abstract.
    """
    base = interface(kind)
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise HookError(f"expected subclasses of {base.__name__}; found {cls!r}", plugin=plugin)
        name = getattr(cls, "name", None)
        if not (isinstance(name, str) and name):
            raise HookError(
                f"{cls.__name__}.name: expected the text that users choose it by; found {name!r}", plugin=plugin
            )
        abstract = sorted(getattr(cls, "__abstractmethods__", ()))
        if abstract:
            raise HookError(f"{cls.__name__} does not implement {', '.join(abstract)}", plugin=plugin)
        yield Offer(kind, name, cls, plugin, distribution)


def clash(offers: Sequence[Offer]) -> str | None:
    """What is wrong with several offers of one name: the plugins that bring them, or None where one of them counts."""
    # A plugin of the application replaces others on purpose, and one class may be offered twice.
    if any(offer.distribution is None for offer in offers) or len({offer.cls for offer in offers}) <= 1:
        return None
    who = " and ".join(f"plugin {offer.plugin!r} of {offer.distribution}" for offer in offers)
    return (
        f"{offers[0].kind} {offers[0].name!r} is offered by {who}; uninstall one, name one in plugins.disable, "
        f"or register yours in the application"
    )


def label(cls: type[Component]) -> str:
    """The name of a component class for messages."""
    return repr(getattr(cls, "name", cls.__name__))
