"""The embedder ``lexical``: vectors of words and letters, without a model."""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_embedder"]


@hookimpl
def nanomem_register_embedder() -> tuple[Deferred]:
    return (Deferred("lexical", "nanomem_plugins.lexical.embedder:LexicalEmbedder"),)
