"""Dividing a question that asks several things into the questions it is made of."""

from __future__ import annotations

import re

__all__ = ["MAX_PARTS", "split_question"]

MAX_PARTS = 8
"""A text with more parts than this is no list of questions, and is searched whole."""

_STARTERS = (
    "what|who|whom|whose|which|when|where|why|how|is|are|was|were|do|does|did|can|could|should|will|would|has|have|had|"
    "tell me|list|show"
)
_BOUNDARY = re.compile(r"[?;\uff1f\uff1b]+")
_JOINED = re.compile(rf",?\s+(?:and|also|plus|additionally)(?:\s+also)?,?\s+(?=(?:{_STARTERS})\b)", re.IGNORECASE)


def split_question(question: str) -> list[str]:
    """The questions in `question`, at most `MAX_PARTS`; a single one (or too many) gives ``[question]``.

    It is divided at question marks and semicolons, and where "and", "also" or "plus" is followed by another question
    ("where do I live and what do I drive"). An "and" inside a phrase ("rock and roll") divides nothing. Parts of a
    single word are dropped.
    """
    parts = [part.strip(" ,.\n\t") for sentence in _BOUNDARY.split(question) for part in _JOINED.split(sentence)]
    kept = [part for part in parts if len(part.split()) >= 2 or (len(part) >= 4 and not part.isascii())]
    kept = list(dict.fromkeys(kept))
    return kept if 1 < len(kept) <= MAX_PARTS else [question.strip()]
