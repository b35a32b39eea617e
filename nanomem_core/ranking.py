"""The order of an answer. Pure functions over rows and scores.

**Chains are ranked, not records.** In a declared chain the caller said which statements are values of one attribute,
so wording must not decide which of them answers: the chain stands where its best member stands, and is led by the
value that holds at the asked time. Older values follow in the chain's other places. In an inferred chain a tagger
guessed; similarity keeps its order there, and the labels tell what was replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from .chains import ChainView
from .columns import Columns, Rows
from .errors import InputError
from .index.vectors import Fusion

__all__ = ["DIRECTIONS", "Direction", "arrange", "check_direction", "fused", "read_direction", "resolve_direction"]

Direction = Literal["newest", "previous", "oldest"]

DIRECTIONS: dict[str, Direction] = {
    "present": "newest",
    "newest": "newest",
    "latest": "newest",
    "now": "newest",
    "previous": "previous",
    "historical": "oldest",
    "oldest": "oldest",
}
"""What a caller may ask for; ``current``, the default, reads the direction from the question's wording."""

TEXT_WEIGHT = 0.7
VECTOR_WEIGHT = 0.3
NAMED_WEIGHT = 0.25
"""What the best BM25 score, the best cosine, and the entity that the question names add to a fused score."""


def fused(bm25: npt.NDArray[np.float32], span: tuple[float, float], best: float, named: Rows) -> Fusion:
    """The score of a row by its cosine, its BM25 score, and whether it is among the rows `named`.

    `span` and `best` are the least and the greatest cosine, and the greatest BM25 score, of the rows that qualify; the
    score means nothing for other rows. Both are first scaled to 0–1 over the qualified rows (BM25 by its maximum, since
    0 means "no word in common"; the cosine by its range, which differs from embedder to embedder), then added with
    fixed weights. Rows of `named` get a fixed bonus. Weighted sums of scaled scores did better than reciprocal ranks
    on LoCoMo, see the decision record. Source: Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid
    Retrieval", ACM TOIS 42 (2023).
    """
    low, high = span
    factor = TEXT_WEIGHT / best if best > 0 else 0.0
    bonus = np.float32(factor) * bm25
    bonus[named] += np.float32(NAMED_WEIGHT)

    def score(cosines: npt.NDArray[np.float32], rows: Rows) -> npt.NDArray[np.float64]:
        scores = np.full(len(cosines), VECTOR_WEIGHT, np.float64)
        if high > low:
            scores *= (cosines - low) / (high - low)
        scores += factor * bm25[rows]
        if len(named):
            scores += NAMED_WEIGHT * np.isin(rows, named)
        return scores

    return Fusion(VECTOR_WEIGHT / (high - low) if high > low else 0.0, bonus, score)


_PREVIOUS = re.compile(r"\b(previous(ly)?|prior|just before|the one before|before (that|this|then|now)|last one)\b")
_OLDEST = re.compile(r"\b(original(ly)?|initial(ly)?|at first|to begin with|in the beginning)\b")
_FORMER = re.compile(r"\b(former(ly)?|used to|back then|no longer|in the past|once upon a time)\b")
_WEAK_OLDEST = re.compile(r"\bfirst\b")
_WEAK_PREVIOUS = re.compile(r"\b(before|earlier|last|old|past|use to)\b")
_PAST_TENSE = re.compile(r"\b(was|were|did|had|\w{3,}ed)\b")


def read_direction(question: str) -> Direction:
    """Which value of a chain an English question asks for, by its wording.

    Strong words (previous, formerly, originally, used to …) always count; weak ones (before, old, first …) only with
    a verb in the past tense, since "what do I do before lunch" asks about today.
    """
    text = question.casefold()
    if _OLDEST.search(text):
        return "oldest"
    if _PREVIOUS.search(text) or _FORMER.search(text):
        return "previous"
    if _PAST_TENSE.search(text):
        if _WEAK_OLDEST.search(text):
            return "oldest"
        if _WEAK_PREVIOUS.search(text):
            return "previous"
    return "newest"


def resolve_direction(direction: str, question: str) -> Direction:
    """The direction of an explicit request, or of the question's wording for ``current``.

    Raises:
        InputError: an unknown direction.
    """
    check_direction(direction)
    return read_direction(question) if direction == "current" else DIRECTIONS[direction]


def check_direction(direction: str) -> None:
    """Raise InputError if `resolve_direction` would."""
    if direction != "current" and direction not in DIRECTIONS:
        known = ", ".join(("current", *DIRECTIONS))
        raise InputError(f"temporal_direction: expected one of {known}; found {direction!r}")


def arrange(
    columns: Columns,
    rows: Rows,
    chains: Mapping[int, ChainView],
    allowed: npt.NDArray[np.bool_],
    direction: Direction,
    limit: int,
) -> list[tuple[int, int]]:
    """Reorder the best `rows` (best first) so that declared chains are led by the value asked for.

    Each declared chain keeps the places that its members won. The first place goes to its leader; the rest follow,
    newest first, or oldest first where the oldest was asked for. If wording kept the leader from winning a place, it
    is put before them while there are fewer than `limit` rows, else the chain's weakest member gives way.

    Returns the rows in their new order, each with the row that won its place.

    Args:
        chains: the chains of `rows` as visible at the asked times.
        allowed: mask of the rows that may be shown (visible and passing the filter).
    """
    places: dict[int, list[int]] = {}
    for place, row in enumerate(rows.tolist()):
        chain = chains.get(int(columns.chain[row]))
        if chain is not None and chain.declared:
            places.setdefault(chain.code, []).append(place)
    winners: list[int] = rows.tolist()
    held = [[row] for row in winners]
    room = limit - len(winners)
    for code, own in places.items():
        members = [row for row in chains[code].rows.tolist() if allowed[row]]
        leader = _leader(members, direction)
        others = [winners[place] for place in own if winners[place] != leader]
        if len(others) == len(own):
            if room > 0:
                room -= 1
            else:
                others.pop()
        age = {row: number for number, row in enumerate(members)}
        others.sort(key=age.__getitem__, reverse=direction != "oldest")
        inserted = len(others) == len(own)
        held[own[0]] = [leader, *others[:inserted]]
        for place, row in zip(own[1:], others[inserted:], strict=True):
            held[place] = [row]
    return [(row, winner) for winner, shown in zip(winners, held, strict=True) for row in shown]


def _leader(members: Sequence[int], direction: Direction) -> int:
    if direction == "oldest":
        return members[0]
    if direction == "previous" and len(members) > 1:
        return members[-2]
    return members[-1]
