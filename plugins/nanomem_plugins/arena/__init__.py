"""The arena: a store that keeps records and their vectors in one append-only file.

The format is documented in ``docs/reference/formats/arena.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanomem_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nanomem_core.interfaces import Storage

__all__ = ["nanomem_register_storage"]


@hookimpl
def nanomem_register_storage() -> tuple[type[Storage]]:
    from .storage import ArenaStorage

    return (ArenaStorage,)
