"""Files of JSON lines: an object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import FormatError

__all__ = ["is_json_lines", "json_objects"]


def is_json_lines(path: str | os.PathLike[str]) -> bool:
    """True if the name of a file says that it holds JSON lines."""
    return Path(path).suffix.lower() in (".jsonl", ".ndjson")


def json_objects(lines: Iterable[str], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The object on each line that is not blank, after its place as errors name it; `name` is that of the source.

    Raises:
        FormatError: a line is no JSON object, or no UTF-8.
    """
    try:
        for number, line in enumerate(lines, 1):
            if line.strip():
                place = f"{name}, line {number}"
                yield place, _json_object(line, place)
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: expected UTF-8; {error}") from None


def _json_object(line: str, place: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{place}: expected a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise FormatError(f"{place}: expected a JSON object; found {type(found).__name__}")
    return found
