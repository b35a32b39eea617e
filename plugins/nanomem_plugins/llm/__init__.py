"""The tagger ``llm``: a language model names the attribute of a statement."""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_tagger"]


@hookimpl
def nanomem_register_tagger() -> tuple[Deferred]:
    return (Deferred("llm", "nanomem_plugins.llm.tagger:LlmTagger"),)
