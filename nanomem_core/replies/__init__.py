"""Reading what a language model answered: the one parser of model output.

A model that was asked for JSON may put it in a code fence, talk around it, think aloud first, stop in the middle, or
write Python. `parse_reply` finds the value and mends what can be mended with certainty; each repair is counted by its
kind (`REPAIRS`). What would be a guess is refused with `ReplyError`, which never quotes the answer.

Which value counts: the first whole object or array outside every other that fits the wanted shape. What stands in a
thought (``<think>…</think>``, or anything before a lone ``</think>``) never counts; after a thought that is not closed,
only a value that ends the reply does. Fences and tags inside a string are part of that string.

An answer that stops in the middle is closed where the rest is certain: from the first unfinished element of its
outermost array on everything is dropped, and likewise an unfinished value of an object, or an array of which nothing is
left. If what remains has not the wanted shape, it is no answer.

Reading takes time in proportion to the length, and no recursion.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ReplyError
from ..records import clean_text
from .shape import misfit, only_array, wanted
from .thoughts import THOUGHTS
from .values import MAX_DEPTH, Broken, TooDeep, Value, read_value

__all__ = ["MAX_DEPTH", "REPAIRS", "Reply", "parse_reply"]

REPAIRS = {
    "bad_escape": "an escape that JSON does not know, or half an emoji; the backslash was kept (except before ')",
    "bare_list": "an array where an object with one required property, an array, was asked for",
    "byte_order_mark": "U+FEFF at the start",
    "control_character": "a line break or another control character inside a string",
    "fence": "``` around the value",
    "in_array": "the object that was asked for, as the only element of an array",
    "not_a_number": "NaN, an infinity, or a number too large; read as null",
    "prose": "other text around the value",
    "python_literal": "True, False or None",
    "several": "more than one fitting value; the first one counts",
    "single_quotes": "a string in single quotes",
    "thinking": "a thought before the value",
    "trailing_comma": "a comma before a closing bracket",
    "truncated": "the end was missing; an unfinished last element was dropped",
}
"""The kinds of repairs, and what each one found."""

_READINGS = 4
"""How often a reply is read again from behind a bracket that is never closed."""

_THOUGHTS = "|".join(THOUGHTS)
_LANDMARK = re.compile(rf"[\[{{]|<(/?)(?:{_THOUGHTS})>", re.IGNORECASE)
_THOUGHT_END = re.compile(rf"</(?:{_THOUGHTS})>", re.IGNORECASE)
_FENCE = re.compile(r"```[\w+-]*")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model meant.

    Attributes:
        value: an object or array, in JSON types; its strings are valid text.
        repairs: how often each kind of `REPAIRS` was needed.
    """

    value: Any
    repairs: Mapping[str, int] = field(default_factory=dict)


def parse_reply(text: str, schema: Mapping[str, Any] | None = None) -> Reply:
    """The value that `text` gives as an answer.

    `schema` is a JSON Schema; of it the shape is checked: ``type``, ``required``, and the ``type`` and ``enum`` of the
    root's ``properties``. What lies deeper is left to the caller, so that one bad element does not cost the others.
    None takes any object or array.

    Raises:
        ReplyError: there is no value of that shape.
    """
    return _Reading(clean_text(text), {} if schema is None else schema).reply()


class _Reading:
    """One search through a reply."""

    def __init__(self, text: str, schema: Mapping[str, Any]) -> None:
        self.text = text
        self.schema = schema
        self.answer: Value | None = None
        self.second: Value | None = None
        self.misfit: str | None = None
        self.several = False
        self.thought_end: int | None = None
        self.unclosed = False
        self.quoted = False  # what looked like the end of a thought may be quoted in an answer behind it
        self.last = len(text.rstrip(" \t\r\n`"))

    def reply(self) -> Reply:
        self._search()
        if self.answer is None and self.second is None and self.thought_end is not None:
            self.quoted = True
            self._search()
        found = self.answer or self.second
        if found is None:
            raise ReplyError(wanted(self.schema), self.misfit or self._nothing())
        found.repairs.update(self._surroundings(found))
        return Reply(found.value, dict(sorted(found.repairs.items())))

    def _search(self) -> None:
        """Look at one value of the text after another, until a second one fits."""
        position, readings = 0, 1
        while (mark := _LANDMARK.search(self.text, position)) is not None:
            position = mark.end()
            if mark[0] not in "[{":
                position = self._think(position, closing=bool(mark[1]))
                continue
            try:
                found = read_value(self.text, mark.start())
            except Broken as broken:
                position = max(position, broken.args[0])
                continue
            except TooDeep:
                self.misfit = self.misfit or f"more than {MAX_DEPTH} levels of brackets"
                return
            if self.answer is None:
                self._consider(found)
            elif self._fits(found):
                self.several = True
                return
            if not found.cut:
                position = found.end
            elif self.answer is not None or readings == _READINGS:
                return
            else:
                readings += 1  # it was a bracket in the prose, perhaps, and the answer stands behind it

    def _think(self, position: int, closing: bool) -> int:
        """Where to read on behind a tag that ends at `position`."""
        if closing:  # all so far was a thought; its beginning stood in the prompt, or it holds another one
            self.answer = self.second = self.misfit = None
            self.unclosed = False
        elif self.unclosed:
            return position
        elif not self.quoted and (end := _THOUGHT_END.search(self.text, position)):
            position = end.end()
        else:
            self.unclosed = True
        if self.answer is None:
            self.thought_end = position
        return position

    def _consider(self, found: Value) -> None:
        if self._fits(found):
            self.answer = found
            return
        if self.misfit is None and not self.unclosed:
            self.misfit = misfit(found.value, self.schema)
        if not isinstance(found.value, list) or found.cut:
            return
        fitting = [element for element in found.value if misfit(element, self.schema) is None]
        name = only_array(self.schema)
        if fitting and len(found.value) == 1:
            self._take(found, fitting[0], "in_array")
        elif not fitting and name is not None:
            self._take(found, {name: found.value}, "bare_list")

    def _take(self, found: Value, value: Any, repair: str) -> None:
        """Let `value`, which was made of `found`, be the answer if there is no better one."""
        made = replace(found, value=value, repairs=found.repairs + Counter([repair]))
        if self.second is None and self._fits(made):
            self.second = made

    def _fits(self, found: Value) -> bool:
        if self.unclosed and (found.cut or found.end < self.last):
            return False
        return misfit(found.value, self.schema) is None

    def _surroundings(self, found: Value) -> list[str]:
        """The kinds of repairs that concern what stands around the value."""
        start = found.start if self.unclosed else self.thought_end or 0
        before, behind = self.text[start : found.start], self.text[found.end :]
        around = _FENCE.sub("", before.removeprefix("\ufeff")) + _FENCE.sub("", behind)
        seen = {
            "byte_order_mark": self.text.startswith("\ufeff"),
            "fence": "```" in before or "```" in behind,
            "prose": bool(around.strip()) and not self.several,
            "several": self.several,
            "thinking": self.thought_end is not None,
            "truncated": found.cut,
        }
        return [kind for kind, yes in seen.items() if yes]

    def _nothing(self) -> str:
        if not self.text.strip():
            return "an empty answer"
        if self.thought_end is not None:
            return "a thought without an answer behind it"
        return f"{len(self.text)} characters without one"
