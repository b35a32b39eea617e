"""The interface of segmenters."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..records import Record
from .component import Component

if TYPE_CHECKING:
    from .embedder import Embedder
    from .generator import Generator

__all__ = ["Groups", "Segmenter", "partition"]

_DIGITS = re.compile(r"[+-]?[0-9]{1,18}")


class Groups(list[list[int]]):
    """Groups of indices, and what is known of them.

    Attributes:
        topics: what each group is about, or None; as long as the list.
        repairs: how often `partition` applied each of its rules.
    """

    def __init__(
        self,
        groups: Iterable[list[int]] = (),
        topics: Sequence[str | None] | None = None,
        repairs: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(groups)
        self.topics: list[str | None] = [None] * len(self) if topics is None else list(topics)
        self.repairs: Counter[str] = Counter(repairs)


class Segmenter(Component):
    """Cuts a run of messages into groups that belong together. It only proposes; `segment` makes the result exact::

        class PairSegmenter(Segmenter):
            name = "pairs"

            def split(self, messages, generator=None):
                return [[i, i + 1] for i in range(0, len(messages), 2)]

    Prove it with `nanomem_core.testing.SegmenterContract`.
    """

    embedder: Embedder | None = None
    """The memory's embedder, for segmenters that compare meanings; whoever builds one beside a memory sets it."""

    def due(self, messages: Sequence[Record]) -> str | None:
        """Why the waiting `messages` should be cut now, or None to wait for more."""
        return None

    @abstractmethod
    def split(self, messages: Sequence[Record], generator: Generator | None = None) -> Sequence[Sequence[int]]:
        """Groups of indices into `messages`, from 0. They may interleave; gaps and doubles are mended by core.

        `Groups` may be returned to name the topics too.
        """

    def segment(self, messages: Sequence[Record], generator: Generator | None = None) -> Groups:
        """An exact partition of ``range(len(messages))`` made from what `split` proposes; see `partition`."""
        if not messages:
            return Groups()
        return partition(self.split(messages, generator), len(messages))


def partition(groups: Any, count: int, base: int = 0) -> Groups:
    """Mend proposed `groups`, of indices that count from `base`, into an exact partition of ``range(count)``.

    The rules, with the names under which `Groups.repairs` counts them (`groups` may bring topics and repairs along):

    * ``coerced``: a text of digits, or a whole number written with a fraction, counts as the index it names.
    * ``not_an_index``: anything else that is no whole number is dropped; so is a group that is no list.
    * ``zero_based``: they count from 0 though `base` is 1, if each index from 0 to ``count - 1`` occurs and ``count``
      does not.
    * ``out_of_range``: an index outside the range is dropped.
    * ``duplicate``: the first mention of an index counts.
    * ``missing``: an index that is mentioned nowhere joins the group of the index before it; at the start, the group of
      the first one that is mentioned.

    Groups are ordered by their first index, indices ascend.
    """
    repairs = Counter(groups.repairs) if isinstance(groups, Groups) else Counter()
    named = [
        (number, index)
        for number, group in enumerate(groups if isinstance(groups, (list, tuple)) else ())
        for index in _indices(group, repairs)
    ]
    mentioned = {index for _, index in named}
    if base == 1 and count and count not in mentioned and mentioned.issuperset(range(count)):
        repairs["zero_based"] += 1
        base = 0
    owner: dict[int, int] = {}
    for number, index in named:
        if not 0 <= index - base < count:
            repairs["out_of_range"] += 1
        elif index - base in owner:
            repairs["duplicate"] += 1
        else:
            owner[index - base] = number
    repairs["missing"] += count - len(owner)
    current = owner[min(owner)] if owner else 0
    result: dict[int, list[int]] = {}
    for index in range(count):
        current = owner.get(index, current)
        result.setdefault(current, []).append(index)
    topics = groups.topics if isinstance(groups, Groups) else []
    return Groups(
        result.values(),
        [topics[number] if number < len(topics) else None for number in result],
        +repairs,
    )


def _indices(group: Any, repairs: Counter[str]) -> list[int]:
    """The whole numbers in a proposed group."""
    if not isinstance(group, (list, tuple)):
        repairs["not_an_index"] += 1
        return []
    found = []
    for index in group:
        if isinstance(index, int) and not isinstance(index, bool):
            found.append(index)
        elif (isinstance(index, float) and index.is_integer()) or (
            isinstance(index, str) and _DIGITS.fullmatch(index.strip())
        ):
            repairs["coerced"] += 1
            # `int` takes fewer characters for space than `strip` does.
            found.append(int(index.strip() if isinstance(index, str) else index))
        else:
            repairs["not_an_index"] += 1
    return found
