"""The arena: a store that keeps records and their vectors in one append-only file.

The format is documented in ``docs/reference/formats/arena.md``.
"""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_storage"]


@hookimpl
def nanomem_register_storage() -> tuple[Deferred]:
    return (Deferred("arena", "nanomem_plugins.arena.storage:ArenaStorage"),)
