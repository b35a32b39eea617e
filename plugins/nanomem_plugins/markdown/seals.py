"""The seal of a document, by which it tells that nothing was changed since this store wrote it."""

from __future__ import annotations

import hashlib

__all__ = ["NO_SEAL", "is_sealed", "sealed"]

NO_SEAL = "b2-" + "0" * 16
"""Stands in a document until it is sealed."""


def sealed(data: bytes) -> bytes:
    """The document with its seal in place of `NO_SEAL`."""
    mark = f"  seal: {NO_SEAL}".encode()
    if data.count(mark) != 1:
        return data
    return data.replace(mark, f"  seal: b2-{_seal_of(data)}".encode())


def is_sealed(data: bytes, seal: object) -> bool:
    """True if `seal`, which stands in the document, is the one that it was given."""
    if not isinstance(seal, str) or seal == NO_SEAL:
        return False
    mark = f"  seal: {seal}".encode()
    if data.count(mark) != 1:
        return False
    return seal == "b2-" + _seal_of(data.replace(mark, f"  seal: {NO_SEAL}".encode()))


def _seal_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
