"""What is known of single files of an agent: that they hold a record, or none, or not what was known before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nanomem_core.records import Record

from .files import Signature

__all__ = ["Bad", "Held", "Sweep"]


@dataclass(frozen=True, slots=True)
class Held:
    """A record and the file it lies in.

    Attributes:
        path: relative to the user's folder.
        signature: of the file when it was known to have this content, None if that must be looked at again.
        digest: of the file's content.
        own: True if the file says by itself that it is as this store, or a commit of it, left it.
        updated: when it was last written, as the file says.
        edited_at: when somebody else changed the file, unix seconds; None if that is not known.
    """

    record: Record
    birth: int
    path: str
    digest: str
    signature: Signature | None = None
    own: bool = True
    updated: str | None = None
    edited_at: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """What a file that this store knows holds, as JSON types."""
        said = {} if self.updated is None else {"updated": self.updated}
        return {"path": self.path, "digest": self.digest, "birth": self.birth, "record": self.record.to_dict(), **said}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Held:
        """What `to_dict` gave."""
        record = Record.from_dict(data["record"])
        return cls(record, data["birth"], data["path"], data["digest"], updated=data.get("updated"))


@dataclass(frozen=True, slots=True)
class Bad:
    """A file that is no document of this agent, and why; `id` is the record it held before, if any."""

    signature: Signature | None
    reason: str
    id: str | None = None


@dataclass(slots=True)
class Sweep:
    """In what the files differ from the state.

    Attributes:
        unsure: files of which only a look under the lock can tell whether they were edited.
    """

    found: dict[str, Held] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)
