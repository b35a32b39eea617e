"""The embedder and the generator ``ollama``: an Ollama server, here or elsewhere."""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_embedder", "nanomem_register_generator"]


@hookimpl
def nanomem_register_embedder() -> tuple[Deferred]:
    return (Deferred("ollama", "nanomem_plugins.ollama.embedder:OllamaEmbedder"),)


@hookimpl
def nanomem_register_generator() -> tuple[Deferred]:
    return (Deferred("ollama", "nanomem_plugins.ollama.generator:OllamaGenerator"),)
