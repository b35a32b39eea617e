"""The segmenter ``texttiling``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import ConfigError
from nanomem_core.interfaces import Generator, Segmenter
from nanomem_core.records import Record
from nanomem_core.tokens import Tokenizer

from .blocks import Similarities, by_vectors, by_words

__all__ = ["TextTilingSegmenter"]

_ASKS = 0.25
_ANSWERS = -1.0
_USER_SPEAKS = 1.0
"""What the form of the messages adds to a gap's score; see `TextTilingSegmenter`."""

# A question mark inside an address is followed by a letter; those of full width and of Arabic stand in no address.
_QUESTION = re.compile(r"[？؟]|\?(?!\w)")
_ENDS_WITH_QUESTION = re.compile(r"[?？؟]\W*\Z")


class TextTilingSegmenter(Segmenter):
    """Cuts where the messages before a gap share few words with those after it: no model, the same result everywhere.

    `by`: compare ``words`` (stems, weighted by how few messages of the conversation have them), or the vectors of the
    memory's ``embedder``. `threshold`: how many standard deviations above the mean of the conversation the score of a
    gap must be; higher cuts less often. `smallest`: messages a group has at least, where no pause makes it smaller.
    `pause`: minutes of silence that always cut. `language` as in `Tokenizer`.

    Blocks and their comparison are those of TextTiling (Hearst, "TextTiling: Segmenting Text into Multi-paragraph
    Subtopic Passages", Computational Linguistics 23(1), 1997), with messages for token sequences. It departs from it in
    four ways, each because it measured better on conversations:

    * The further a message is from the gap, the less it counts.
    * The score is the dissimilarity itself, not the depth of its valley.
    * The gap with the highest score is taken first, and then those that leave `smallest` messages between cuts.
    * Adjacency pairs count (Schegloff and Sacks, "Opening up Closings", Semiotica 8(4), 1973). In standard deviations
      of the dissimilarity, a gap scores 0.25 more before a message that asks, 1 more where the turn goes over
      to the user, and 1 less after a message that ends with a question.

    How the values were chosen, and what they reach: docs/explanation/segmentation-quality.md.

    Raises:
        ConfigError: an option is out of range.
    """

    name: ClassVar[str] = "texttiling"

    def __init__(
        self,
        by: Literal["words", "embedder"] = "words",
        threshold: float = 0.25,
        smallest: int = 3,
        pause: float = 30.0,
        language: str = "english",
    ) -> None:
        _require(smallest >= 1, "smallest", smallest, "at least 1")
        _require(pause > 0, "pause", pause, "more than 0 minutes")
        self.by = by
        self.threshold = threshold
        self.smallest = smallest
        self.pause = pause
        self._tokenizer = Tokenizer(language)

    def split(self, messages: Sequence[Record], generator: Generator | None = None) -> list[list[int]]:
        """Groups that do not interleave. `generator` is not asked.

        Raises:
            ConfigError: `by` is ``embedder`` and `embedder` was not set.
            EmbedderError: the embedder fails.
        """
        pauses = self._pauses(messages)
        cuts = set(pauses)
        for start, end in zip([0, *pauses], [*pauses, len(messages)], strict=True):
            cuts.update(start + cut for cut in self._cuts(messages[start:end]))
        ends = [*sorted(cuts), len(messages)]
        return [list(range(start, end)) for start, end in zip([0, *ends], ends, strict=False) if start < end]

    def _pauses(self, messages: Sequence[Record]) -> list[int]:
        """The messages that follow a pause."""
        return [
            number
            for number in range(1, len(messages))
            if messages[number].valid_from - messages[number - 1].valid_from > 60 * self.pause
        ]

    def _cuts(self, messages: Sequence[Record]) -> list[int]:
        """The messages at which a group begins, without the first, in the order of decreasing certainty."""
        count = len(messages)
        if count < 2 * self.smallest:
            return []
        scores = self._scores(messages)
        free = np.zeros(count, bool)
        free[self.smallest : count - self.smallest + 1] = True
        cuts = []
        for gap in np.argsort(-scores, kind="stable").tolist():
            if scores[gap] <= self.threshold:
                break
            first = gap + 1
            if free[first]:
                cuts.append(first)
                free[max(0, first - self.smallest + 1) : first + self.smallest] = False
        return cuts

    def _scores(self, messages: Sequence[Record]) -> npt.NDArray[np.float64]:
        """How much each gap looks like a change of topic, in standard deviations from the mean of the gaps."""
        scores = -_standardised(self._similarities([message.text for message in messages]))
        for gap, (before, after) in enumerate(pairwise(messages)):
            if _QUESTION.search(after.text):
                scores[gap] += _ASKS
            if _ENDS_WITH_QUESTION.search(before.text):
                scores[gap] += _ANSWERS
            if _is_users(after) and not _is_users(before):
                scores[gap] += _USER_SPEAKS
        return _standardised(scores)

    def _similarities(self, texts: Sequence[str]) -> Similarities:
        if self.by == "words":
            return by_words([self._tokenizer.query_tokens(text) for text in texts])
        if self.embedder is None:
            raise ConfigError(
                "by: 'embedder' needs an embedder, and the segmenter has none; a memory's segmenter is given the "
                "memory's, otherwise set its attribute `embedder`, or choose by='words'",
                key="by",
            )
        rows = np.zeros((len(texts), self.embedder.dim), np.float32)
        said = [number for number, text in enumerate(texts) if text.strip()]
        rows[said] = self.embedder.embed_batch([texts[number] for number in said])
        return by_vectors(rows)


def _is_users(message: Record) -> bool:
    return message.metadata.get("role") == "user"


def _standardised(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    spread = float(values.std())
    result: npt.NDArray[np.float64] = (values - values.mean()) / (spread if spread > 1e-9 else 1.0)
    return result


def _require(met: bool, option: str, value: float, expected: str) -> None:
    if not met:
        raise ConfigError(f"{option}: expected {expected}; found {value!r}", key=option)
