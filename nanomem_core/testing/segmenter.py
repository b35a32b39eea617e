"""The contract of segmenters::

    class TestMySegmenter(SegmenterContract):
        @pytest.fixture
        def make_segmenter(self):
            return MySegmenter

A segmenter that asks a generator also overrides ``make_generator``, so that it returns one with fitting answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from ..interfaces import Segmenter
from ..records import Record
from .fixtures import GivenGenerator, ModelFixtures
from .samples import NOON, fact

__all__ = ["MakeSegmenter", "SegmenterContract"]

MakeSegmenter = Callable[[], Segmenter]

_TALK = (
    "Hi, how was the trip to Lisbon?",
    "Great! The trams were packed, but the food was worth it.",
    "Did you try the custard tarts?",
    "Every single morning.",
    "By the way, the quarterly report is due on Friday.",
    "I know. Can you send me the figures for March?",
    "",
    "用户最近在学习机器学习算法。",
    "🫖",
    "word " * 3_000,
)


def messages(count: int) -> list[Record]:
    """A conversation of `count` messages, a minute apart, with a day between the 6th and the 7th."""
    return [
        fact(
            f"m{number}",
            _TALK[number % len(_TALK)],
            kind="message",
            valid_from=NOON + 60 * number + (86_400 if number >= 6 else 0),
            metadata={"role": "user" if number % 2 == 0 else "assistant"},
        )
        for number in range(count)
    ]


class SegmenterContract(ModelFixtures):
    """What `nanomem_core.interfaces.Segmenter` promises; see the module."""

    @pytest.fixture
    def make_segmenter(self) -> MakeSegmenter:
        """Make the segmenter again, with the same options; a plugin's test class overrides this."""
        raise NotImplementedError(f"{type(self).__name__}: expected a fixture make_segmenter; see {__name__}")

    @pytest.fixture
    def segmenter(self, make_segmenter: MakeSegmenter) -> Iterator[Segmenter]:
        with make_segmenter() as segmenter:
            yield segmenter

    @pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 57])
    def test_the_groups_are_an_exact_partition(
        self, segmenter: Segmenter, make_generator: GivenGenerator, count: int
    ) -> None:
        groups = segmenter.segment(messages(count), make_generator())
        assert sorted(index for group in groups for index in group) == list(range(count))
        assert all(group == sorted(group) and group for group in groups)
        assert [group[0] for group in groups] == sorted(group[0] for group in groups)

    def test_a_proposal_is_of_whole_numbers(self, segmenter: Segmenter, make_generator: GivenGenerator) -> None:
        proposal = segmenter.split(messages(10), make_generator())
        assert isinstance(proposal, Sequence)
        assert all(isinstance(group, (list, tuple)) for group in proposal)
        assert all(type(index) is int and 0 <= index < 10 for group in proposal for index in group)

    def test_the_same_messages_are_cut_alike(
        self,
        segmenter: Segmenter,
        make_segmenter: MakeSegmenter,
        make_generator: GivenGenerator,
    ) -> None:
        first = segmenter.segment(messages(20), make_generator())
        assert segmenter.segment(messages(20), make_generator()) == first
        with make_segmenter() as again:
            assert again.segment(messages(20), make_generator()) == first

    def test_the_messages_are_not_changed(self, segmenter: Segmenter, make_generator: GivenGenerator) -> None:
        given = messages(12)
        segmenter.due(given)
        segmenter.segment(given, make_generator())
        assert given == messages(12)

    @pytest.mark.parametrize("count", [0, 1, 10])
    def test_due_gives_a_reason_or_none(self, segmenter: Segmenter, count: int) -> None:
        reason = segmenter.due(messages(count))
        assert reason is None or (isinstance(reason, str) and reason)
        if count == 0:
            assert reason is None, "no message can't be due"

    def test_close_may_be_repeated(self, make_segmenter: MakeSegmenter) -> None:
        segmenter = make_segmenter()
        segmenter.close()
        segmenter.close()
