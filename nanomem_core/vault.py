"""`Vault`: a memory in a single file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal

from .interfaces import Embedder, Generator, Tagger
from .memory import Memory
from .pipeline.search import Mode
from .registry.manager import PluginManager
from .times import Clock, system_clock

__all__ = ["Vault"]


class Vault(Memory):
    """A `Memory` over the arena store, kept in the one file `path`; the file is made by the first write.

    Args:
        vector_dtype: how vectors are stored in a new file; an existing file keeps its own.
        durability: ``fsync`` acknowledges a write when the disk has it; ``os`` when the operating system has it, which
            survives a crash of the program, but not of the machine.
        read_only: refuse writes; the directory need not be writable.

    For the other arguments see `Memory`.
    """

    def __init__(
        self,
        path: str | PathLike[str] = "memory.dat",
        embedder: Embedder | str | Mapping[str, Any] = "lexical",
        *,
        vector_dtype: Literal["float16", "float32"] = "float16",
        durability: Literal["fsync", "os"] = "fsync",
        read_only: bool = False,
        taggers: Sequence[Tagger | str | Mapping[str, Any]] = ("keyword",),
        generator: Generator | str | Mapping[str, Any] | None = None,
        plugins: PluginManager | None = None,
        user: str = "default",
        agent: str = "default",
        mode: Mode = "hybrid",
        neighbours: bool = False,
        top_k: int = 3,
        language: str = "english",
        clock: Clock = system_clock,
    ) -> None:
        storage = {
            "use": "arena",
            "path": fspath(path),
            "vector_dtype": vector_dtype,
            "durability": durability,
            "read_only": read_only,
        }
        super().__init__(
            storage,
            embedder,
            taggers=taggers,
            generator=generator,
            plugins=plugins,
            user=user,
            agent=agent,
            mode=mode,
            neighbours=neighbours,
            top_k=top_k,
            language=language,
            clock=clock,
        )
