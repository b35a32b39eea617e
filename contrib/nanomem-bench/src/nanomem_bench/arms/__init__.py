"""The products that are compared. Each module has a class `Product`; importing it needs the product installed."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version

from .base import OPERATIONS, Arm

__all__ = ["ARMS", "FACT_ARMS", "OPERATIONS", "OURS", "OUR_FILES", "Arm", "installed_version", "load"]

OURS = "nanomem-core"
OUR_FILES = "markdown"

ARMS: dict[str, tuple[str, str]] = {
    OURS: ("core", "nanomem-core"),
    "nanomem-0.8": ("nanomem08", "nanomem"),
    "faiss": ("faiss_flat", "faiss-cpu"),
    "sqlite-vec": ("sqlitevec", "sqlite-vec"),
    "chroma": ("chroma", "chromadb"),
    "lancedb": ("lance", "lancedb"),
    "usearch": ("usearch_exact", "usearch"),
    "numpy": ("numpy_scan", "numpy"),
    "sqlite": ("sqlite_rows", "nanomem-bench"),
}
"""Arm → its module, and the distribution that has to be installed."""

FACT_ARMS: dict[str, tuple[str, str]] = {
    OUR_FILES: ("fact_markdown", OURS),
    "jsonl": ("fact_jsonl", OURS),
    "arena": ("fact_arena", OURS),
    "sqlite-facts": ("fact_sqlite", "nanomem-bench"),
}
"""The same for the stores of facts, which have no vectors."""


def installed_version(name: str) -> str | None:
    """The version of the product, or None where it is not installed. Imports nothing."""
    try:
        return version((ARMS | FACT_ARMS)[name][1])
    except PackageNotFoundError:
        return None


def load(name: str) -> type[Arm]:
    """The class of an arm.

    Raises:
        ImportError: the product is not installed, or can't be imported.
    """
    product: type[Arm] = importlib.import_module(f".{(ARMS | FACT_ARMS)[name][0]}", __name__).Product
    return product
