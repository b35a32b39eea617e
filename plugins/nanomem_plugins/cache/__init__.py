"""The plugin ``cache``: keeps embeddings on disk, so that no text is given to a model twice."""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanomem_core.errors import ConfigError
from nanomem_core.hookspecs import Plugin, hookimpl

if TYPE_CHECKING:
    from .store import EmbeddingCache

__all__ = ["CachePlugin"]


class CachePlugin(Plugin):
    """Puts a cache around every embedder that is built by name; off unless it is given room.

    ::

        plugins:
          options:
            cache: {embeddings_mb: 256}

    Args:
        embeddings_mb: megabytes that the file may have, about; 0 for no cache. The vectors that were not asked for
            longest make room.
        path: the file. Several processes, and several memories, may share one.

    Raises:
        ConfigError: `embeddings_mb` is negative.
    """

    def __init__(self, embeddings_mb: int = 0, path: Path = Path("embeddings.sqlite")) -> None:
        if embeddings_mb < 0:
            raise ConfigError(f"embeddings_mb: expected 0 or more; found {embeddings_mb}", key="embeddings_mb")
        self.embeddings_mb = embeddings_mb
        self.path = path

    @cached_property
    def store(self) -> EmbeddingCache:
        """What is kept; also there while the cache is off, to look at it and to clear it."""
        from .store import EmbeddingCache

        return EmbeddingCache(self.path, self.embeddings_mb * 1_000_000)

    @hookimpl(wrapper=True)
    def nanomem_build(self, kind: str) -> Generator[None, Any, Any]:  # type: ignore[override]  # a wrapper yields
        component = yield
        if kind != "embedder" or not self.embeddings_mb or component is None:
            return component
        from .embedder import CachedEmbedder

        return CachedEmbedder(component, self.store)
