"""The tagger ``keyword``: guesses which attribute a statement is about by its wording, without a model."""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_tagger"]


@hookimpl
def nanomem_register_tagger() -> tuple[Deferred]:
    return (Deferred("keyword", "nanomem_plugins.keyword.tagger:KeywordTagger"),)
