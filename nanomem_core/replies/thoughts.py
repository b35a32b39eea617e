"""Thoughts that a model writes before its answer: ``<think>…</think>`` and its kin."""

from __future__ import annotations

import re

__all__ = ["THOUGHTS", "AnswerFilter", "without_thoughts"]

THOUGHTS = ("think", "thinking", "thought", "thoughts", "reasoning", "reflection", "scratchpad")
"""Names of the tags around thoughts."""

_OPENING = re.compile(rf"<(?:{'|'.join(THOUGHTS)})>", re.IGNORECASE)
_CLOSING = re.compile(rf"</(?:{'|'.join(THOUGHTS)})>", re.IGNORECASE)
_LONGEST_TAG = 3 + max(map(len, THOUGHTS))


class AnswerFilter:
    """Lets the pieces of an answer through as they come, without the thoughts that stand before it.

    What follows the first word of the answer is let through verbatim, tags and all.
    """

    def __init__(self) -> None:
        self._held: str | None = ""
        self._looked = 0  # characters of a thought in which no end was found

    def feed(self, piece: str) -> str:
        """What of the answer is known now, after `piece`."""
        if self._held is None:
            return piece
        self._held += piece
        while True:
            self._held = self._held.lstrip()
            opening = _OPENING.match(self._held)
            if opening is None:
                break
            end = _CLOSING.search(self._held, max(self._looked, opening.end()))
            if end is None:
                self._looked = max(opening.end(), len(self._held) - _LONGEST_TAG)
                return ""
            self._held, self._looked = self._held[end.end() :], 0
        if any(f"<{name}>".startswith(self._held.lower()) for name in THOUGHTS):
            return ""
        answer, self._held = self._held, None
        return answer

    def end(self) -> str:
        """What was held back in case it were the beginning of a thought; an open thought is none of the answer."""
        held, self._held = self._held or "", None
        return "" if _OPENING.match(held) else held


def without_thoughts(text: str) -> str:
    """The answer in `text`, which may begin with thoughts, or end one whose opening tag stood in the prompt. An open
    thought leaves nothing."""
    filter = AnswerFilter()
    answer = filter.feed(text) + filter.end()
    closing = _CLOSING.search(answer)
    if closing is not None and _OPENING.search(answer, 0, closing.start()) is None:
        # With nothing behind it, the tag is only spoken of.
        answer = answer[closing.end() :].strip() or answer
    return answer.strip()
