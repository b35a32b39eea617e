"""What became of each plugin, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["PluginStatus", "State"]

State = Literal["loaded", "disabled", "failed", "duplicate", "missing"]


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """One plugin and what became of it.

    Attributes:
        name: the name of its entry point, or the one the application registered it under.
        distribution: the distribution that brings it, None for a plugin of the application and for a missing one.
        version: the distribution's version.
        state: ``loaded``; ``disabled`` by the settings; ``failed`` to import, register or offer its components;
            ``duplicate``, if several distributions bring a plugin of that name, so that none of them is loaded;
            ``missing``, if the settings ask for it and nothing installed brings it.
        detail: the reason for the state on one line, empty where there is nothing to say.
    """

    name: str
    distribution: str | None
    version: str | None
    state: State
    detail: str = ""

    @property
    def is_problem(self) -> bool:
        """True where the plugin is not what the settings ask for."""
        return self.state in ("failed", "duplicate", "missing")

    def __str__(self) -> str:
        origin = "" if self.distribution is None else f" ({self.distribution} {self.version})"
        detail = f": {self.detail}" if self.detail else ""
        return f"plugin {self.name!r}{origin} {self.state}{detail}"
