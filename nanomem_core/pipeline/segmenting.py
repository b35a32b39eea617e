"""Cutting messages into groups, whatever a segmenter or a model does."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import GeneratorError
from ..hints import one_line
from ..interfaces import Generator, Groups, Segmenter
from ..records import Record

__all__ = ["ONE_GROUP", "Segmentation", "SegmentationTally", "segment_with_fallback"]

ONE_GROUP = "one group"
"""`Segmentation.segmenter` where every segmenter failed."""


@dataclass(frozen=True, slots=True)
class Segmentation:
    """How messages were cut.

    Attributes:
        groups: an exact partition of the messages' indices.
        segmenter: name of the segmenter that made it, or `ONE_GROUP`.
        failures: why segmenters before that one did not, by their names.
    """

    groups: Groups
    segmenter: str
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str | None]:
        """What each group is about, or None."""
        return self.groups.topics

    @property
    def repairs(self) -> Mapping[str, int]:
        """What was mended in the proposal, by the rules of `nanomem_core.interfaces.partition`."""
        return self.groups.repairs


def segment_with_fallback(
    segmenters: Iterable[Segmenter], messages: Sequence[Record], generator: Generator | None = None
) -> Segmentation:
    """What the first of `segmenters` that succeeds makes of `messages`; all in one group if none does.

    A segmenter that fails in whatever way costs nothing but its turn: the messages are there still.
    """
    failures: dict[str, str] = {}
    if messages:
        for segmenter in segmenters:
            try:
                return Segmentation(segmenter.segment(messages, generator), segmenter.name, failures)
            except GeneratorError as error:
                failures[segmenter.name] = one_line(error)
            except Exception as error:
                # Somebody's plugin: its error is no reason to keep the messages from becoming episodes.
                logging.getLogger("nanomem").warning("segmenter %r failed", segmenter.name, exc_info=True)
                failures[segmenter.name] = one_line(error)
    return Segmentation(Groups([list(range(len(messages)))] if messages else ()), ONE_GROUP, failures)


class SegmentationTally:
    """Counts what segmenters did; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._repairs: dict[str, Counter[str]] = {}

    def add(self, segmentation: Segmentation) -> None:
        """Count one more."""
        with self._lock:
            self._batches[segmentation.segmenter] += 1
            self._failures.update(segmentation.failures.keys())
            self._repairs.setdefault(segmentation.segmenter, Counter()).update(segmentation.repairs)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """By the name of a segmenter (`ONE_GROUP` where all failed): ``batches`` that it cut, ``failures``, and
        ``repairs`` of its proposals by the rules of `nanomem_core.interfaces.partition`; as JSON types.
        """
        with self._lock:
            return {
                name: {
                    "batches": self._batches[name],
                    "failures": self._failures[name],
                    "repairs": dict(sorted(self._repairs.get(name, {}).items())),
                }
                for name in sorted(self._batches.keys() | self._failures.keys())
            }
