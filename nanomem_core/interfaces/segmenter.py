"""The interface of segmenters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..records import Record
from .component import Component

if TYPE_CHECKING:
    from .generator import Generator

__all__ = ["Segmenter", "partition"]


class Segmenter(Component):
    """Cuts a run of messages into groups that belong together. It only proposes; `segment` makes the result exact::

        class PairSegmenter(Segmenter):
            name = "pairs"

            def split(self, messages, generator=None):
                return [[i, i + 1] for i in range(0, len(messages), 2)]

    Prove it with `nanomem_core.testing.SegmenterContract`.
    """

    def due(self, messages: Sequence[Record]) -> str | None:
        """Why the waiting `messages` should be cut now, or None to wait for more."""
        return None

    @abstractmethod
    def split(self, messages: Sequence[Record], generator: Generator | None = None) -> Sequence[Sequence[int]]:
        """Groups of indices into `messages`, from 0. They may interleave; gaps and doubles are mended by core."""

    def segment(self, messages: Sequence[Record], generator: Generator | None = None) -> list[list[int]]:
        """An exact partition of ``range(len(messages))`` made from what `split` proposes; see `partition`."""
        if not messages:
            return []
        return partition(self.split(messages, generator), len(messages))


def partition(groups: Any, count: int) -> list[list[int]]:
    """Mend proposed `groups` into an exact partition of ``range(count)``.

    What is no whole number in range is dropped, the first mention of an index counts, and an index that is mentioned
    nowhere joins the group of the index before it (the first group, at the start). Groups are ordered by their first
    index, indices ascend.
    """
    owner: dict[int, int] = {}
    for number, group in enumerate(groups if isinstance(groups, (list, tuple)) else ()):
        for index in group if isinstance(group, (list, tuple)) else ():
            if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < count:
                owner.setdefault(index, number)
    current = owner[min(owner)] if owner else 0
    result: dict[int, list[int]] = {}
    for index in range(count):
        current = owner.get(index, current)
        result.setdefault(current, []).append(index)
    return list(result.values())
