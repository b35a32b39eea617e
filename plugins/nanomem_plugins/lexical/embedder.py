"""Vectors of words and letters, by hashing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import ConfigError
from nanomem_core.interfaces import Embedder
from nanomem_core.tokens import MAX_TOKEN, Tokenizer, fold_text

__all__ = ["LexicalEmbedder"]

_VERSION = 1
"""Rises with every change of the vectors, also with one of the tokenizer's rules."""

_NARROWEST = 64
_GRAM_LENGTHS = (2, 3)
_TEXTS_AT_ONCE = 512


class LexicalEmbedder(Embedder):
    """Compares texts by their words, and by pairs and triples of letters: no model, no download, the same everywhere.

    It knows spellings, not meanings. Synonyms are strangers to it (car, automobile), a word means the same whatever
    stands around it (a river's bank, a savings bank), and negation or a changed number hardly moves a vector ("I eat
    meat", "I do not eat meat"). Inflected and misspelt words, names and numbers it finds. Grammar words ("what", "the")
    and stems are those of English; other languages work, a little less sharply. For meanings choose a model.

    `dim` is the width, at least 64. A wider vector confuses fewer words and takes more room, 4 bytes a number.

    The vector of a text is the sum of those of its distinct tokens, as the tokenizer gives them for a question. A token
    counts 1 for itself, spread to ``<token>``, and 1/√n for each of the n pairs and triples of letters in that. Each of
    these features adds its weight, or its negative, to one number of the vector; its hash (64 bits of BLAKE2b of its
    UTF-8) chooses both: the remainder by `dim` the place, the highest bit the sign (Weinberger et al., "Feature Hashing
    for Large Scale Multitask Learning", ICML 2009). A text without tokens, such as "…!", counts as one token, a blank
    where it is empty.

    Raises:
        ConfigError: `dim` is below 64.
    """

    name: ClassVar[str] = "lexical"

    def __init__(self, dim: int = 512) -> None:
        if dim < _NARROWEST:
            raise ConfigError(f"dim: expected a width of at least {_NARROWEST}; found {dim}", key="dim")
        self._dim = dim
        self._tokenizer = Tokenizer()

    @property
    def id(self) -> str:
        return f"lexical-{_VERSION}-{self._dim}"

    @property
    def dim(self) -> int:
        return self._dim

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        vectors = np.empty((len(texts), self._dim), np.float32)
        for first in range(0, len(texts), _TEXTS_AT_ONCE):
            some = texts[first : first + _TEXTS_AT_ONCE]
            vectors[first : first + len(some)] = self._sums([self._tokens(text) for text in some])
        return vectors

    def _tokens(self, text: str) -> list[str]:
        return self._tokenizer.query_tokens(text) or [fold_text(text).strip()[:MAX_TOKEN] or " "]

    def _sums(self, texts: list[list[str]]) -> npt.NDArray[np.float32]:
        hashes = [_feature_hashes(token) for tokens in texts for token in tokens]
        features = np.fromiter(map(len, hashes), np.intp, len(hashes))
        weights = np.repeat(1 / np.sqrt(features - 1), features)
        weights[np.cumsum(features) - features] = 1
        text_of_token = np.repeat(np.arange(len(texts)), [len(tokens) for tokens in texts])
        joined = np.concatenate(hashes)
        places = np.repeat(text_of_token, features) * self._dim + (joined % self._dim).astype(np.intp)
        signed = np.where(joined >> 63, -weights, weights)
        sums = np.bincount(places, signed, len(texts) * self._dim)
        return sums.reshape(len(texts), self._dim).astype(np.float32)


@lru_cache(1 << 16)
def _feature_hashes(token: str) -> npt.NDArray[np.uint64]:
    """The hash of the token itself, then those of its pairs and triples of letters."""
    spread = f"<{token}>"
    grams = [spread[i : i + length] for length in _GRAM_LENGTHS for i in range(len(spread) - length + 1)]
    digests = [
        blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest() for feature in (spread, *grams)
    ]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
