"""The embedder and the generator ``openai``: OpenAI's interface, of whatever server speaks it."""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_embedder", "nanomem_register_generator"]


@hookimpl
def nanomem_register_embedder() -> tuple[Deferred]:
    return (Deferred("openai", "nanomem_plugins.openai.embedder:OpenAIEmbedder"),)


@hookimpl
def nanomem_register_generator() -> tuple[Deferred]:
    return (Deferred("openai", "nanomem_plugins.openai.generator:OpenAIGenerator"),)
