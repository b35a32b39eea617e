"""JSON Lines files, holding facts without vectors."""

from __future__ import annotations

from .fact_records import RecordArm

__all__ = ["Product"]


class Product(RecordArm):
    settings = "Storage.commit and Storage.snapshot over a file a user, fsync; no vectors"

    def options(self) -> dict[str, str]:
        return {"use": "jsonl", "root": str(self.folder)}
