"""Small files beside an agent's records that nothing depends on: how often facts were found, and what was evicted."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from nanomem_core.fileio import atomic
from nanomem_core.fileio.journal import Remove, Replace, Write
from nanomem_core.fileio.names import confined
from nanomem_core.times import format_time

from .eviction import Policy, Usage
from .state import AgentState, Read

__all__ = ["audit_writes", "count_accesses", "read_usage", "without_sidecars"]

_log = logging.getLogger("nanomem.markdown")

_LONGEST_AUDIT = 200


def audit_writes(
    state: AgentState,
    read: Read,
    evictions: Mapping[str, dict[str, float]],
    deleted: Collection[str],
    policy: Policy,
    now: float,
) -> list[Write]:
    """The write that adds a line for each eviction, without any content, and drops those of facts that are deleted."""
    before = (read(state.audit_path) or b"").splitlines()
    lines = [line for line in before if _id_of(line) not in deleted]
    for id, parts in evictions.items():
        score = {name: round(value, 6) for name, value in parts.items()}
        lines.append(json.dumps({"at": format_time(now), "id": id, "policy": policy, "score": score}).encode())
    if lines == before:
        return []
    return [Replace(state.audit_path, b"".join(line + b"\n" for line in lines[-_LONGEST_AUDIT:]))]


def _id_of(line: bytes) -> object:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found.get("id") if isinstance(found, dict) else None


def read_usage(state: AgentState, read: Read) -> dict[str, Usage]:
    """How often each fact was found."""
    data = read(state.usage_path)
    if data is None:
        return {}
    try:
        return {str(id): Usage(float(heat), float(at)) for id, (heat, at) in json.loads(data).items()}
    except (ValueError, TypeError, AttributeError):
        _log.warning("%s can't be read and is ignored; it will be written anew", state.usage_path)
        return {}


def count_accesses(root: Path, state: AgentState, read: Read, ids: Iterable[str], now: float) -> None:
    """Count one more access of each of `ids`; forgets those that are no records any more."""
    usage = {id: count for id, count in read_usage(state, read).items() if id in state.held}
    for id in ids:
        usage[id] = usage.get(id, Usage()).accessed(now)
    data = json.dumps({id: [count.heat, count.at] for id, count in usage.items()}).encode()
    path = confined(root, *state.usage_path.split("/"))
    atomic.make_directory(path.parent)
    atomic.write(path, data, durable=False)


def without_sidecars(state: AgentState) -> list[Write]:
    """Writes that remove these files."""
    return [Remove(state.audit_path), Remove(state.usage_path)]
