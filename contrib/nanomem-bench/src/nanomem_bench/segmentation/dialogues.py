"""Dialogues whose right groups are known, from JSONL files.

A line is one dialogue, a JSON object in one of these forms, with an ``id`` or without:

* ``{"dialogue": "user: Hi.[NEWLINE]agent: Hello.[NEWLINE][BOUNDARY][NEWLINE]user: Next."}``: ``[NEWLINE]`` between
  messages, ``[BOUNDARY]`` between segments.
* ``{"utterances": ["Hi.", "Hello.", "Next."], "segments": [2, 1]}``: how many messages each segment has, in order.
* ``{"utterances": ["Hi.", "Next.", "Hello."], "groups": [[0, 2], [1]]}``: the messages of each group, counted from 0;
  groups may interleave.

Where every message of a dialogue begins with ``name: ``, that is the speaker; it is the message's role and no part of
its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from nanomem_core.errors import FormatError, NotFoundError
from nanomem_core.records import Record

__all__ = ["Dialogue", "Partition", "read_dialogues"]

Partition = list[list[int]]
"""An exact partition of the messages of a dialogue, by number from 0."""

_SPEAKER = re.compile(r"(\S{1,40}):(?:\s+|\Z)")


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The messages of a dialogue, at least one, and the groups that they belong to."""

    messages: tuple[Record, ...]
    groups: Partition


def read_dialogues(path: str | Path) -> list[Dialogue]:
    """The dialogues of a file.

    Raises:
        NotFoundError: no such file.
        FormatError: a line has another form, or there is none; the message names the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file; a JSONL file of dialogues is expected") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8: {error}") from None
    dialogues = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                dialogues.append(_dialogue(json.loads(line)))
            except (TypeError, ValueError) as error:
                raise FormatError(f"{path}:{number}: expected a dialogue as a JSON object; {error}") from None
    if not dialogues:
        raise FormatError(f"{path}: expected a dialogue on each line; found none")
    return dialogues


def _dialogue(item: Any) -> Dialogue:
    if not isinstance(item, Mapping):
        raise ValueError(f"found {type(item).__name__}")
    if isinstance(item.get("dialogue"), str):
        parts = [list(_utterances(part)) for part in item["dialogue"].split("[BOUNDARY]")]
        texts, groups = list(chain.from_iterable(parts)), _consecutive(map(len, parts))
    elif isinstance(item.get("utterances"), list) and ("segments" in item or "groups" in item):
        texts = item["utterances"]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("utterances: expected texts")
        groups = _consecutive(item["segments"]) if "segments" in item else [sorted(group) for group in item["groups"]]
    else:
        raise ValueError(
            f"expected the key dialogue, or utterances with segments or groups; found {', '.join(map(str, item))}"
        )
    if not texts:
        raise ValueError("it has no message")
    members = list(chain.from_iterable(groups))
    if not all(type(member) is int for member in members) or sorted(members) != list(range(len(texts))):
        raise ValueError(f"expected each of its {len(texts)} messages in one segment or group; found {groups!r:.200}")
    return Dialogue(tuple(_messages(texts)), sorted(group for group in groups if group))


def _utterances(part: str) -> Iterator[str]:
    return (text.strip() for text in part.split("[NEWLINE]") if text.strip())


def _consecutive(lengths: Any) -> Partition:
    groups: Partition = []
    start = 0
    for length in lengths:
        if type(length) is not int or length < 0:
            raise ValueError(f"segments: expected numbers of messages; found {length!r}")
        groups.append(list(range(start, start + length)))
        start += length
    return groups


def _messages(texts: list[str]) -> Iterator[Record]:
    speakers = [_SPEAKER.match(text) for text in texts]
    named = all(speakers)
    for number, (text, speaker) in enumerate(zip(texts, speakers, strict=True)):
        if named and speaker is not None:
            yield Record(str(number), text[speaker.end() :], "message", metadata={"role": speaker[1]})
        else:
            yield Record(str(number), text, "message")
