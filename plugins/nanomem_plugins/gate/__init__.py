"""The write gate's rules: what people say that is plainly not worth remembering, and what they ask to be remembered."""

from __future__ import annotations

from nanomem_core.hookspecs import StoreVerdict, hookimpl

__all__ = ["nanomem_should_store"]


@hookimpl
def nanomem_should_store(text: str) -> StoreVerdict | None:
    from .rules import judge

    return judge(text)
