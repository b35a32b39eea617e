"""The embedder ``lexical``: vectors of words and letters, without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanomem_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nanomem_core.interfaces import Embedder

__all__ = ["nanomem_register_embedder"]


@hookimpl
def nanomem_register_embedder() -> tuple[type[Embedder]]:
    from .embedder import LexicalEmbedder

    return (LexicalEmbedder,)
