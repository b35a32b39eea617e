"""The Markdown store: one file a fact, in the folders of DeerMem, for people to edit and programs to trust.

The format is documented in ``docs/reference/formats/markdown.md``.
"""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_storage"]


@hookimpl
def nanomem_register_storage() -> tuple[Deferred]:
    return (Deferred("markdown", "nanomem_plugins.markdown.storage:MarkdownStorage"),)
