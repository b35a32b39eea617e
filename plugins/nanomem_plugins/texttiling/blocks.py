"""How alike the messages on the two sides of each gap are.

A side is a block of up to `REACH` messages; the nearer a message is to the gap, the more it counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["REACH", "Similarities", "by_vectors", "by_words"]

REACH = 8
_FADE = 0.7
"""What a message counts, compared with the one that is nearer to the gap."""

Similarities = npt.NDArray[np.float64]
"""Cosines, shape (messages - 1,): number g compares the messages up to g with those from g + 1 on."""


def by_words(messages: Sequence[Iterable[str]]) -> Similarities:
    """Compare blocks by the distinct words of each message.

    A word counts log((n + 1) / (m + 0.5)) where m of the n messages have it.
    """
    texts = [frozenset(words) for words in messages]
    having = Counter(word for words in texts for word in words)
    squared = {word: math.log((len(texts) + 1) / (count + 0.5)) ** 2 for word, count in having.items()}
    similarities = np.zeros(max(0, len(texts) - 1))
    for gap in range(len(similarities)):
        before = _block(reversed(texts[max(0, gap + 1 - REACH) : gap + 1]))
        after = _block(texts[gap + 1 : gap + 1 + REACH])
        common = _product(before, after, squared)
        if common:
            similarities[gap] = common / math.sqrt(_product(before, before, squared) * _product(after, after, squared))
    return similarities


def _block(nearest_first: Iterable[frozenset[str]]) -> dict[str, float]:
    block: dict[str, float] = {}
    weight = 1.0
    for words in nearest_first:
        for word in words:
            block[word] = block.get(word, 0.0) + weight
        weight *= _FADE
    return block


def _product(one: Mapping[str, float], other: Mapping[str, float], squared: Mapping[str, float]) -> float:
    # Summed exactly, since the order of a set of words differs from run to run.
    return math.fsum(squared[word] * weight * other[word] for word, weight in one.items() if word in other)


def by_vectors(rows: npt.NDArray[np.float32]) -> Similarities:
    """Compare blocks by the vectors of their messages, shape (messages, dim); a zero row is a message that says
    nothing."""
    gaps = max(0, len(rows) - 1)
    before = np.zeros((gaps, rows.shape[1]))
    after = np.zeros((gaps, rows.shape[1]))
    for distance in range(min(REACH, gaps)):
        before[distance:] += _FADE**distance * rows[: gaps - distance]
        after[: gaps - distance] += _FADE**distance * rows[1 + distance :]
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    similarities: Similarities = np.einsum("ij,ij->i", before, after) / np.where(lengths > 0, lengths, 1.0)
    return similarities
