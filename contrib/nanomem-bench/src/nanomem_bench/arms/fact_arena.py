"""The arena, holding facts without vectors."""

from __future__ import annotations

from .fact_records import RecordArm

__all__ = ["Product"]


class Product(RecordArm):
    settings = "Storage.commit and Storage.snapshot over one file, fsync; no vectors"

    def options(self) -> dict[str, str]:
        return {"use": "arena", "path": str(self.folder / "memory.dat")}
