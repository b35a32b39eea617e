"""What is measured: each module has a function `run`, which lets the arms of a `Bench` do something and writes down
figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..bench import Bench
from . import concurrency, delete, facts_as_files, growth, history, memory, open, recall, search, startup, write

__all__ = ["SUITES"]

SUITES: Mapping[str, Callable[[Bench], None]] = {
    "search": search.run,
    "open": open.run,
    "write": write.run,
    "delete": delete.run,
    "memory": memory.run,
    "concurrency": concurrency.run,
    "history": history.run,
    "startup": startup.run,
    "recall": recall.run,
    "facts-as-files": facts_as_files.run,
    "growth": growth.run,
}
