"""The embedder ``fastembed``: models in the process itself, without a server."""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_embedder"]


@hookimpl
def nanomem_register_embedder() -> tuple[Deferred]:
    return (Deferred("fastembed", "nanomem_fastembed.embedder:FastembedEmbedder"),)
