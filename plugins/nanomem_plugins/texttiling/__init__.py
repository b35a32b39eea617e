"""The segmenter ``texttiling``: cuts a conversation where its words change, without a model."""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_segmenter"]


@hookimpl
def nanomem_register_segmenter() -> tuple[Deferred]:
    return (Deferred("texttiling", "nanomem_plugins.texttiling.segmenter:TextTilingSegmenter"),)
