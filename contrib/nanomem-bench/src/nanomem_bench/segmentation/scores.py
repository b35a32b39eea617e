"""Measures of segmentation.

Boundaries are compared as labels: 1 for a message whose next one is of another group, 0 for others and for the last.
For groups that interleave this is their linear form, in which returning to a topic is a boundary too.

Pk (Beeferman, Berger and Lafferty, "Statistical Models for Text Segmentation", Machine Learning 34, 1999) and
WindowDiff (Pevzner and Hearst, "A Critique and Improvement of an Evaluation Metric for Text Segmentation",
Computational Linguistics 28(1), 2002) are those of NLTK: the share of wrong windows of k labels, 0 is best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanomem_core.cli.common import Failure

from .dialogues import Partition

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = Callable[[str, str, int], float]

__all__ = ["WINDOW", "Scores", "labels", "library_version", "pairs", "score", "window"]

_LIBRARY = "nltk"

WINDOW = "k = round(messages / segments / 2), at least 2, at most the messages"
"""The rule of `window`, for reports."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What one segmenter reached on one file.

    Attributes:
        pk, window_diff: mean of the dialogues; 0 is best, and proposing no boundary at all looks fair.
        boundary_f1: of the boundaries of all dialogues together, counted where they are exactly right.
        score: 0.5 F1 + 0.25 (1 - Pk) + 0.25 (1 - WindowDiff), as SuperDialseg (Jiang et al., EMNLP 2023) has it.
        pairwise_f1: of the pairs of messages in one group, over all dialogues: also for groups that interleave.
        boundaries: proposed, where the file has `expected`.
    """

    pk: float
    window_diff: float
    boundary_f1: float
    score: float
    pairwise_f1: float
    boundaries: int
    expected: int


def score(pairs_of_groups: Iterable[tuple[Partition, Partition]]) -> Scores:
    """Compare groups with each other: (right ones, proposed ones) for each dialogue, at least one.

    Raises:
        Failure: NLTK is not installed.
    """
    pk, window_diff = _library()
    wrong, different = [], []
    cut: Counter[str] = Counter()
    joined: Counter[str] = Counter()
    for right, proposed in pairs_of_groups:
        expected, found = labels(right), labels(proposed)
        k = window(expected)
        wrong.append(pk(expected, found, k))
        different.append(window_diff(expected, found, k))
        cut.update(
            right=expected.count("1"),
            proposed=found.count("1"),
            both=sum(a == b == "1" for a, b in zip(expected, found, strict=True)),
        )
        joined.update(pairs(right, proposed))
    mean_pk, mean_difference = _mean(wrong), _mean(different)
    f1 = _f1(cut)
    return Scores(
        mean_pk,
        mean_difference,
        f1,
        0.5 * f1 + 0.25 * (1 - mean_pk) + 0.25 * (1 - mean_difference),
        _f1(joined),
        cut["proposed"],
        cut["right"],
    )


def labels(groups: Partition) -> str:
    """A label for each message: ``1`` where the next one is of another group."""
    group_of = {member: number for number, group in enumerate(groups) for member in group}
    return "".join(
        "1" if number + 1 < len(group_of) and group_of[number] != group_of[number + 1] else "0"
        for number in range(len(group_of))
    )


def window(expected: str) -> int:
    """Half the mean length of the right segments, by the rule `WINDOW`; halves round to even."""
    return min(len(expected), max(2, round(len(expected) / (expected.count("1") + 1) / 2)))


def pairs(right: Partition, proposed: Partition) -> dict[str, int]:
    """How many pairs of messages are in one group: of the `right` ones, of the `proposed` ones, of both."""
    group_of = {member: number for number, group in enumerate(right) for member in group}
    shared = Counter((number, group_of[member]) for number, group in enumerate(proposed) for member in group)
    return {
        "right": sum(_choose_two(len(group)) for group in right),
        "proposed": sum(_choose_two(len(group)) for group in proposed),
        "both": sum(map(_choose_two, shared.values())),
    }


def library_version() -> str:
    """Which NLTK measures.

    Raises:
        Failure: it is not installed.
    """
    from importlib.metadata import version

    _library()
    return f"{_LIBRARY} {version(_LIBRARY)}"


def _library() -> tuple[Measure, Measure]:
    try:
        from nltk.metrics.segmentation import pk, windowdiff
    except ImportError:
        raise Failure(
            f"Pk and WindowDiff are measured by {_LIBRARY}, which is not installed; run "
            f"`pip install 'nanomem-bench[segmentation]'`"
        ) from None
    return pk, windowdiff


def _choose_two(count: int) -> int:
    return count * (count - 1) // 2


def _f1(counts: Counter[str]) -> float:
    """1 where there was nothing to find and nothing was proposed."""
    total = counts["right"] + counts["proposed"]
    return 2 * counts["both"] / total if total else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
