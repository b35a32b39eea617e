"""The kinds of components, and the classes of each that plugins offer."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import HookError, InputError
from ..hints import did_you_mean
from ..hookspecs import Deferred
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
        given: the class, or where it is.
        plugin: the plugin's name.
        distribution: name and version of what brings the plugin, None for a plugin of the application.
    """

    kind: str
    name: str
    given: type[Component] | Deferred
    plugin: str
    distribution: str | None

    @property
    def cls(self) -> type[Component]:
        """The class, imported when it is first asked for.

        Raises:
            HookError: what was deferred is no component of that kind and name; else whatever its import raises.
        """
        if not isinstance(self.given, Deferred):
            return self.given
        module, _, attribute = self.given.location.partition(":")
        cls = _checked_class(self.kind, self.plugin, getattr(importlib.import_module(module), attribute))
        if cls.name != self.name:
            raise HookError(
                f"{self.given.location}: expected the name {self.name!r}, as it was offered; found {cls.name!r}",
                plugin=self.plugin,
            )
        return cls


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


def checked_offers(kind: str, plugin: str, distribution: str | None, given: Iterable[Any]) -> Iterator[Offer]:
    """An offer for each class, or `Deferred`, that a plugin's hook returned.

    Raises:
        HookError: one of them is no subclass of the interface, has no name, or leaves methods abstract; of what is
            deferred only the form is checked.
    """
    for each in given:
        if not isinstance(each, Deferred):
            each = _checked_class(kind, plugin, each)
        elif not (each.name and all(part for part in each.location.partition(":"))):
            raise HookError(
                f"expected Deferred(name, 'module:Class'); found {each!r}",
                plugin=plugin,
            )
        yield Offer(kind, each.name, each, plugin, distribution)


def _checked_class(kind: str, plugin: str, cls: Any) -> type[Component]:
    base = interface(kind)
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
    return cls


def clash(offers: Sequence[Offer]) -> str | None:
    """What is wrong with several offers of one name: the plugins that bring them, or None where one of them counts."""
    # A plugin of the application replaces others on purpose, and one class may be offered twice.
    if any(offer.distribution is None for offer in offers) or len({offer.given for offer in offers}) <= 1:
        return None
    who = " and ".join(f"plugin {offer.plugin!r} of {offer.distribution}" for offer in offers)
    return (
        f"{offers[0].kind} {offers[0].name!r} is offered by {who}; uninstall one, name one in plugins.disable, "
        f"or register yours in the application"
    )


def label(cls: type[Component]) -> str:
    """The name of a component class for messages."""
    return repr(getattr(cls, "name", cls.__name__))
