"""The tagger ``keyword``: guesses which attribute a statement is about by its wording, without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanomem_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nanomem_core.interfaces import Tagger

__all__ = ["nanomem_register_tagger"]


@hookimpl
def nanomem_register_tagger() -> tuple[type[Tagger]]:
    from .tagger import KeywordTagger

    return (KeywordTagger,)
