from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.errors import ConfigError, EmbedderError
from nanomem_core.interfaces import Embedder
from nanomem_core.records import Record
from nanomem_core.registry.manager import PluginManager
from nanomem_plugins.texttiling.segmenter import TextTilingSegmenter

GARDEN = (
    "The tomatoes in my garden are ripe.",
    "Tomatoes need sun. Is your garden in the sun?",
    "Yes, the garden gets sun all day, and the tomatoes love it.",
    "My garden has too little sun for tomatoes.",
)
TRAIN = (
    "The train to Bergen leaves at nine.",
    "I booked two seats on the train.",
    "Good. Does the train stop in Voss?",
    "It does, the Bergen train stops in Voss for ten minutes.",
)


def messages(*texts: str, roles: str = "", times: tuple[float, ...] = ()) -> list[Record]:
    """`roles` has a letter for each message: u for the user, a for the assistant."""
    names = {"u": "user", "a": "assistant"}
    return [
        Record(
            str(number),
            text,
            "message",
            valid_from=times[number] if times else 60.0 * number,
            metadata={"role": names[roles[number]]} if roles else {},
        )
        for number, text in enumerate(texts)
    ]


def starts(groups: list[list[int]]) -> list[int]:
    return [group[0] for group in groups]


def test_it_cuts_where_the_words_change():
    assert TextTilingSegmenter().segment(messages(*GARDEN, *TRAIN)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_of_two_like_gaps_the_one_after_a_question_is_not_cut():
    texts = ["one", "two", "three?", "four", "five", "six", "seven"]
    assert starts(TextTilingSegmenter(threshold=-10).segment(messages(*texts))) == [0, 4]


def test_of_two_like_gaps_the_one_before_a_question_is_cut():
    texts = ["one", "two", "three", "four", "five", "six", "seven"]
    plain = TextTilingSegmenter(threshold=-10).segment(messages(*texts))
    texts[4] = "five?"
    assert starts(plain) == [0, 3]
    assert starts(TextTilingSegmenter(threshold=-10).segment(messages(*texts))) == [0, 4]


def test_of_two_like_gaps_the_one_where_the_user_speaks_is_cut():
    texts = ["one", "two", "three", "four", "five", "six", "seven"]
    segmenter = TextTilingSegmenter(threshold=-10)
    assert starts(segmenter.segment(messages(*texts, roles="uauauau"))) == [0, 4]
    assert starts(segmenter.segment(messages(*texts, roles="auauaua"))) == [0, 3]


@pytest.mark.parametrize("asks", ["really?", "really?!", "really? 🙂", "本当？", "حقا؟", 'she said "really?"'])
def test_a_question_is_known_by_its_mark(asks: str):
    texts = ["one", "two", "three", "four", asks, "six", "seven"]
    assert starts(TextTilingSegmenter(threshold=-10).segment(messages(*texts))) == [0, 4]


def test_the_question_mark_of_an_address_asks_nothing():
    texts = ["one", "two", "three", "four", "https://a.example/b?c=1", "six", "seven"]
    assert starts(TextTilingSegmenter(threshold=-10).segment(messages(*texts))) == [0, 3]


def test_a_pause_always_cuts_and_shorter_silence_does_not():
    minutes = (0.0, 1.0, 30.0, 31.0, 62.0)
    said = messages(*GARDEN, "And the tomatoes?", times=tuple(60 * minute for minute in minutes))
    assert TextTilingSegmenter().segment(said) == [[0, 1, 2, 3], [4]]
    assert TextTilingSegmenter(pause=20).segment(said) == [[0, 1], [2, 3], [4]]


def test_times_that_run_backwards_are_no_pause():
    assert TextTilingSegmenter().segment(messages("a", "b", times=(90_000.0, 0.0))) == [[0, 1]]


def test_each_stretch_between_pauses_is_cut_by_its_own_words():
    times = tuple(60.0 * number + (90_000 if number >= 4 else 0) for number in range(12))
    groups = TextTilingSegmenter().segment(messages(*GARDEN, *TRAIN, *GARDEN, times=times))
    assert starts(groups) == [0, 4, 8]


@pytest.mark.parametrize("smallest", [1, 2, 3, 5])
def test_no_group_is_smaller_than_asked(smallest: int):
    texts = [f"word{number}" for number in range(31)]
    groups = TextTilingSegmenter(smallest=smallest, threshold=-10).segment(messages(*texts))
    assert min(map(len, groups)) >= smallest
    assert max(map(len, groups)) < 2 * smallest


def test_a_higher_threshold_cuts_less():
    texts = list(chain.from_iterable(zip(GARDEN, TRAIN, strict=True))) * 4
    counts = [len(TextTilingSegmenter(threshold=t).segment(messages(*texts))) for t in (-10, 0, 1, 10)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 1


@pytest.mark.parametrize("text", ["", "…", "the the the"])
def test_messages_that_all_say_the_same_are_one_group_where_nothing_else_parts_them(text: str):
    assert TextTilingSegmenter().segment(messages(*[text] * 9)) == [list(range(9))]


class Topics(Embedder):
    """Knows two topics, and refuses empty texts."""

    name = "topics"
    id = "topics-1"
    dim = 2

    def encode(self, texts):
        if not all(text.strip() for text in texts):
            raise EmbedderError("empty text")
        return np.array([[1.0, 0.1] if text in self.ONE else [0.1, 1.0] for text in texts])

    ONE = ("Ripe tomatoes.", "My vegetables grow.", "Water the beds.", "Weeds everywhere.")


def test_by_the_embedder_it_cuts_where_the_meaning_changes():
    texts = [*Topics.ONE, "Nine o'clock departure.", "Two seats booked.", "It stops halfway.", "Bergen next."]
    segmenter = TextTilingSegmenter(by="embedder")
    segmenter.embedder = Topics()
    assert starts(segmenter.segment(messages(*texts))) == [0, 4]
    texts[2] = texts[6] = " "
    assert starts(segmenter.segment(messages(*texts))) == [0, 4]


def test_by_the_embedder_without_one_is_an_error_that_says_what_to_do():
    with pytest.raises(ConfigError, match="by='words'") as error:
        TextTilingSegmenter(by="embedder").segment(messages(*GARDEN, *TRAIN))
    assert error.value.key == "by"


@pytest.mark.parametrize(
    ("options", "match"), [({"smallest": 0}, "smallest: .* at least 1; found 0"), ({"pause": 0}, "pause")]
)
def test_an_option_out_of_range_is_refused(options, match):
    with pytest.raises(ConfigError, match=match):
        TextTilingSegmenter(**options)


def test_it_is_offered_by_its_name_and_its_options_are_checked():
    plugins = PluginManager.discover()
    segmenter = plugins.build("segmenter", {"use": "texttiling", "smallest": "4"})
    assert (segmenter.name, segmenter.smallest) == ("texttiling", 4)
    with pytest.raises(ConfigError, match="by"):
        plugins.build("segmenter", {"use": "texttiling", "by": "magic"})


@given(st.lists(st.text(max_size=30), max_size=40), st.booleans())
def test_any_texts_are_parted_exactly(texts, by_vectors):
    segmenter = TextTilingSegmenter(by="embedder" if by_vectors else "words")
    segmenter.embedder = Topics()
    groups = segmenter.split(messages(*texts))
    assert list(chain.from_iterable(groups)) == list(range(len(texts)))
    assert all(groups)
