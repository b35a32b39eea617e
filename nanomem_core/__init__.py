"""A memory for AI applications that knows what changed.

``Vault("memory.dat")`` is a memory in one file; `Memory` is the same over any storage and embedder.
`MemorySystem` adds conversations to a `Memory`. Plugin authors find their interfaces in `nanomem_core.interfaces` and
the hooks in `nanomem_core.hookspecs`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .changes import Change, Commit, Delete, Put
    from .errors import NanomemError
    from .hookspecs import Plugin, hookimpl
    from .memory import Memory
    from .pipeline.messages import Message
    from .records import Record, Scope
    from .registry.manager import PluginManager
    from .results import Entry, SearchResults
    from .system import MemorySystem
    from .vault import Vault

__version__ = "0.1.0"

_HOMES = {
    "Change": "changes",
    "Commit": "changes",
    "Delete": "changes",
    "Entry": "results",
    "Memory": "memory",
    "MemorySystem": "system",
    "Message": "pipeline.messages",
    "NanomemError": "errors",
    "Plugin": "hookspecs",
    "PluginManager": "registry.manager",
    "Put": "changes",
    "Record": "records",
    "Scope": "records",
    "SearchResults": "results",
    "Vault": "vault",
    "hookimpl": "hookspecs",
}

__all__ = [
    "Change",
    "Commit",
    "Delete",
    "Entry",
    "Memory",
    "MemorySystem",
    "Message",
    "NanomemError",
    "Plugin",
    "PluginManager",
    "Put",
    "Record",
    "Scope",
    "SearchResults",
    "Vault",
    "__version__",
    "hookimpl",
]


def __getattr__(name: str) -> Any:
    # Loaded when asked for, so that `nanomem --help` does not wait for numpy.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
