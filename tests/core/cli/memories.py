"""Memories for the tests of commands."""

from __future__ import annotations

import json
from typing import Any

from click.testing import Result

from nanomem_core import Vault

EMPLOYER = (("2025-01-10", "I work at Alder Foods as an engineer"), ("2026-02-01", "Moved to Birch Labs"))


def job_history(path: str = "memory.dat", **scope: str) -> list[str]:
    """A memory of two employers, an allergy and a note of a document; returns the ids."""
    with Vault(path, **scope) as vault:
        ids = [vault.add(text, entity="employer", timestamp=when, source="cli") for when, text in EMPLOYER]
        ids.append(vault.add("Peanuts make me ill", timestamp="2025-03-01", source="cli", metadata={"topic": "health"}))
        ids.append(vault.add("Peanuts are legumes", timestamp="2025-03-02", source="notes.md"))
    return ids


def answer(result: Result) -> Any:
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def texts(result: Result) -> list[str]:
    """The texts of the results that a command printed as JSON."""
    return [entry["text"] for entry in answer(result)["results"]]
