"""The generator ``anthropic``: Claude."""

from __future__ import annotations

from nanomem_core.hookspecs import Deferred, hookimpl

__all__ = ["nanomem_register_generator"]


@hookimpl
def nanomem_register_generator() -> tuple[Deferred]:
    return (Deferred("anthropic", "nanomem_plugins.anthropic.generator:AnthropicGenerator"),)
