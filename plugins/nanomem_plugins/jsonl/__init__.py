"""JSON Lines: a store of one line a record, in the files of Nemori.

The format is documented in ``docs/reference/formats/jsonl.md``.
"""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_storage"]


@hookimpl
def nanomem_register_storage() -> tuple[Deferred]:
    return (Deferred("jsonl", "nanomem_plugins.jsonl.storage:JsonlStorage"),)
