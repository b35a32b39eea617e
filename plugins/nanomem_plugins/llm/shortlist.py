"""Which of many known attributes a model is shown: those whose name and newest statement share words with the texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from nanomem_core.tokens import Tokenizer

__all__ = ["shortlist"]

_tokenizer = Tokenizer()


def shortlist(known: Mapping[str, str], texts: Sequence[str], most: int, first: str | None = None) -> list[str]:
    """At most `most` of the names in `known` (name: newest statement), in its order.

    Chosen are `first`, then the best of each of `texts` in turn, then those that stand before the others in `known`.
    A shared word counts by its inverse document frequency among the attributes.
    """
    if len(known) <= most:
        return list(known)
    chosen = {first} & known.keys()
    for name in _by_words(known, texts):
        if len(chosen) == most:
            break
        chosen.add(name)
    chosen.update([name for name in known if name not in chosen][: most - len(chosen)])
    return [name for name in known if name in chosen]


def _by_words(known: Mapping[str, str], texts: Sequence[str]) -> Iterator[str]:
    """Names that share a word with a text: the best of each text, then the second of each, and so on."""
    words = {name: _words(f"{name.replace('_', ' ')} {text}") for name, text in known.items()}
    frequency = Counter(word for found in words.values() for word in found)
    rankings = []
    for text in texts:
        said = _words(text)
        scores = {
            name: sum(math.log1p(len(known) / frequency[w]) for w in said & found) for name, found in words.items()
        }
        best = sorted(scores, key=lambda name: -scores[name])
        rankings.append([name for name in best if scores[name] > 0])
    for place in zip_longest(*rankings):
        yield from (name for name in place if name is not None)


def _words(text: str) -> set[str]:
    return set(_tokenizer.index_tokens(text))
