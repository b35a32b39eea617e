"""The parsed records of an agent in one file, so that opening it costs a look at each file's stat data.

Derived: it may be deleted at any time, and is ignored where anything about it is not as expected. The first line is the
CRC-32 of the rest, in hex; the rest is one JSON object.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from nanomem_core.fileio import atomic
from nanomem_core.records import Record

from .held import Held
from .state import AgentState

__all__ = ["load_cache", "save_cache"]

_VERSION = 2


def save_cache(folder: Path, state: AgentState, origin: str, seen: int) -> None:
    """Keep what `state` holds.

    Args:
        origin, seen: the journal, and the number of the last commit that was taken over from it.
    """
    rows: list[Any] = []
    for held in state.held.values():
        record = held.record
        rows.append([
            record.id, record.text, record.kind, record.entity, record.declared, record.revision, record.version,
            record.valid_from, record.valid_to, record.recorded_at, record.closed_at, record.source,
            record.metadata, held.birth, held.path, held.digest, held.signature, held.own, held.updated,
        ])  # fmt: skip
    content = {
        "version": _VERSION,
        "scope": [state.scope.user, state.scope.agent],
        "origin": origin,
        "seen": seen,
        "epoch": state.epoch,
        "rows": rows,
    }
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    atomic.make_directory(folder)
    atomic.write(folder / state.cache_name, b"%08x\n" % zlib.crc32(data) + data, durable=False)


def load_cache(folder: Path | None, state: AgentState, origin: str) -> int | None:
    """Fill `state` and return the number of the commit that it was kept after; None where there is nothing to use."""
    data = None if folder is None else atomic.read(folder / state.cache_name)
    if data is None or data[:9] != b"%08x\n" % zlib.crc32(memoryview(data)[9:]):
        return None
    try:
        content = json.loads(memoryview(data)[9:].tobytes())
        scope = [state.scope.user, state.scope.agent]
        if (content["version"], content["scope"], content["origin"]) != (_VERSION, scope, origin):
            return None
        held = [
            Held(Record(*row[:13]), row[13], row[14], row[15], None if row[16] is None else tuple(row[16]), *row[17:])
            for row in content["rows"]
        ]
        state.epoch = content["epoch"]
        seen = int(content["seen"])
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    for one in held:
        state.put(one)
    return seen
