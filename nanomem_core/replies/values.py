"""Reading one object or array that may be written or cut off wrongly."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..records import clean_text

__all__ = ["MAX_DEPTH", "Broken", "TooDeep", "Value", "read_value"]

MAX_DEPTH = 64
"""Objects and arrays inside one another; a reply with more is refused."""

_SPACE = re.compile(r"[\s\ufeff]*+")
_STRINGS = {
    '"': re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CONTROL = re.compile(r"[\x00-\x1f]")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_NUMBER_TAIL = re.compile(r"[.eE+-]*+\Z")
_WORD = re.compile(r"-?[A-Za-z]++")
_WORDS: dict[str, tuple[bool | None, str | None]] = {
    "true": (True, None),
    "false": (False, None),
    "null": (None, None),
    "True": (True, "python_literal"),
    "False": (False, "python_literal"),
    "None": (None, "python_literal"),
    "NaN": (None, "not_a_number"),
    "Infinity": (None, "not_a_number"),
    "-Infinity": (None, "not_a_number"),
}


class Broken(Exception):
    """What was begun is no JSON; `args[0]` is the position where that shows."""


class TooDeep(Exception):
    """More than `MAX_DEPTH` containers are open."""


@dataclass(slots=True)
class Value:
    """A value found in the text, from `start` to `end`; `cut` if its end is missing."""

    value: Any
    start: int
    end: int
    cut: bool
    repairs: Counter[str]


def read_value(text: str, start: int) -> Value:
    """The object or array that begins at `start`.

    Raises:
        Broken: it is none, and can't be mended with certainty.
        TooDeep: it has too many levels.
    """
    repairs: Counter[str] = Counter()
    root: Any = {} if text[start] == "{" else []
    stack: list[Any] = [root]
    position, after, comma = start + 1, False, False  # behind an element? behind a comma?
    while True:
        position = _skip(text, position)
        top = stack[-1]
        if position == len(text):
            return Value(_closed(stack), start, position, True, repairs)
        char = text[position]
        if char == ("}" if isinstance(top, dict) else "]"):
            if comma:
                repairs["trailing_comma"] += 1
            position += 1
            stack.pop()
            if not stack:
                return Value(root, start, position, False, repairs)
            after, comma = True, False
            continue
        if after:
            if char != ",":
                raise Broken(position)
            position, after, comma = position + 1, False, True
            continue
        key: str | None = None
        if isinstance(top, dict):
            read = _read_key(text, position, repairs)
            if read is None:
                return Value(_closed(stack), start, len(text), True, repairs)
            key, position = read
            char = text[position]
        value: Any
        if char in "[{":
            if len(stack) == MAX_DEPTH:
                raise TooDeep
            value, position = ({} if char == "{" else []), position + 1
            stack.append(value)
            after = False
        else:
            scalar = _read_scalar(text, position, repairs)
            if scalar is None:
                return Value(_closed(stack), start, len(text), True, repairs)
            value, position = scalar
            after = True
        comma = False
        if key is None:
            top.append(value)
        else:
            top[key] = value


def _skip(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return position if space is None else space.end()


def _closed(stack: list[Any]) -> Any:
    """The root of the open containers `stack` without what is unfinished in it; None if nothing is left."""
    place = next((i for i, container in enumerate(stack) if isinstance(container, list)), len(stack) - 1)
    del stack[place + 2 :]
    if place + 1 < len(stack):
        stack[place].pop()
        stack.pop()
    for parent, child in reversed(list(itertools.pairwise(stack))):
        if not child:
            del parent[next(key for key, value in parent.items() if value is child)]
    return stack[0] or None


def _read_key(text: str, position: int, repairs: Counter[str]) -> tuple[str, int] | None:
    """A key and the position of its value; None if the text ends before."""
    if text[position] not in _STRINGS:
        raise Broken(position)
    read = _read_string(text, position, repairs)
    if read is None:
        return None
    key, position = read[0], _skip(text, read[1])
    if position == len(text):
        return None
    if text[position] != ":":
        raise Broken(position)
    position = _skip(text, position + 1)
    return None if position == len(text) else (key, position)


def _read_scalar(text: str, position: int, repairs: Counter[str]) -> tuple[Any, int] | None:
    """A string, number or word and the position behind it; None if the text ends in it, or might."""
    if text[position] in _STRINGS:
        return _read_string(text, position, repairs)
    word = _WORD.match(text, position)
    if word is not None:
        if word[0] in _WORDS:
            value, repair = _WORDS[word[0]]
            if repair is not None:
                repairs[repair] += 1
            return value, word.end()
        if word.end() == len(text) and any(known.startswith(word[0]) for known in _WORDS):
            return None
        raise Broken(position)
    number = _NUMBER.match(text, position)
    if number is None:
        if text[position] == "-" and position + 1 == len(text):
            return None
        raise Broken(position)
    # What follows decides whether it is whole: "12" at the end may have been 123, "12." 12.5, and "1e" 1e9.
    if _NUMBER_TAIL.match(text, number.end()):
        return None
    return _number(number[0], repairs), number.end()


def _number(digits: str, repairs: Counter[str]) -> int | float | None:
    try:
        number = float(digits) if any(mark in digits for mark in ".eE") else int(digits)
    except ValueError:  # Python refuses whole numbers of thousands of digits
        number = float("inf")
    if isinstance(number, float) and not math.isfinite(number):
        repairs["not_a_number"] += 1
        return None
    return number


def _read_string(text: str, position: int, repairs: Counter[str]) -> tuple[str, int] | None:
    """A string and the position behind it; None if it is not closed."""
    quote = text[position]
    found = _STRINGS[quote].match(text, position)
    if found is None:
        return None
    value = found[1]
    if quote == "'":
        repairs["single_quotes"] += 1
    if _CONTROL.search(value):
        repairs["control_character"] += 1
    if "\\" in value:
        bad = 0

        def plain(escape: re.Match[str]) -> str:
            nonlocal bad
            if escape[1] is not None:
                return chr(int(escape[1], 16))
            if escape[2] in _ESCAPES:
                return _ESCAPES[escape[2]]
            bad += quote != escape[2]
            return "'" if escape[2] == "'" else escape[0]

        decoded = _ESCAPE.sub(plain, value)
        value = clean_text(decoded)
        bad += value.count("\ufffd") - decoded.count("\ufffd")  # halves of an emoji
        if bad:
            repairs["bad_escape"] += bad
    return value, found.end()
