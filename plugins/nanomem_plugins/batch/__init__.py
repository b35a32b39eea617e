"""The segmenter ``batch``: a language model groups a run of messages by topic."""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_segmenter"]


@hookimpl
def nanomem_register_segmenter() -> tuple[Deferred]:
    return (Deferred("batch", "nanomem_plugins.batch.segmenter:BatchSegmenter"),)
