"""Records on their way between memories, and the ``.jsonl`` form of an export.

A header line, then one line a record; vectors are base64 of little-endian float32 rows.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..changes import Vectors
from ..errors import FormatError
from ..fileio import atomic
from ..interfaces import VectorSpace
from ..pipeline.jsonlines import json_objects
from ..records import Record, Scope

__all__ = ["Parcel", "read_parcels", "write_parcels"]

_FORMAT = "nanomem-export"
_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """One record on its way, with its scope and, where they travel, its vectors and their space."""

    scope: Scope
    record: Record
    vectors: Vectors | None = None
    space: VectorSpace | None = None


def write_parcels(path: str | os.PathLike[str], parcels: Sequence[Parcel]) -> None:
    """Write an export, in place of a file that is there."""
    space = next((parcel.space for parcel in parcels if parcel.space is not None), None)
    header: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
    if space is not None:
        header |= {"embedder": space.embedder, "dim": space.dim}
    with atomic.replacing(path) as descriptor:
        atomic.write_all(descriptor, _line(header))
        for parcel in parcels:
            line: dict[str, Any] = {"user": parcel.scope.user, "agent": parcel.scope.agent}
            line["record"] = parcel.record.to_dict()
            if parcel.vectors is not None:
                rows = np.ascontiguousarray(parcel.vectors, "<f4").tobytes()
                line["vectors"] = base64.b64encode(rows).decode("ascii")
            atomic.write_all(descriptor, _line(line))


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def read_parcels(path: str | os.PathLike[str]) -> Iterator[Parcel]:
    """The parcels of an export.

    Raises:
        FormatError: the file is no export, of a newer version, or a line of it is malformed; the line is named.
    """
    with open(path, encoding="utf-8") as file:
        lines = json_objects(file, os.fspath(path))
        place, header = next(lines, (f"{os.fspath(path)}, line 1", {}))
        if header.get("format") != _FORMAT:
            raise FormatError(f"{place}: expected a file written by `nanomem export` (first line with {_FORMAT!r})")
        if header.get("version") != _VERSION:
            raise FormatError(
                f"{place}: version {header.get('version')!r} of the export form; this release reads {_VERSION}"
            )
        with _malformed(place):
            space = VectorSpace(header["embedder"], header["dim"]) if "embedder" in header else None
        for place, data in lines:
            with _malformed(place):
                parcel = _parcel(data, space)
            yield parcel


@contextlib.contextmanager
def _malformed(place: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError, TypeError) as error:
        raise FormatError(f"{place}: not a record of an export: {error}") from error


def _parcel(data: Mapping[str, Any], space: VectorSpace | None) -> Parcel:
    vectors = None
    if space is not None and "vectors" in data:
        rows = np.frombuffer(base64.b64decode(data["vectors"], validate=True), "<f4")
        vectors = rows.reshape(-1, space.dim).astype(np.float32)
    return Parcel(Scope(data["user"], data["agent"]), Record.from_dict(data["record"]), vectors, space)
