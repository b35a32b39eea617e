from __future__ import annotations

import math

import numpy as np
import pytest

from nanomem_plugins.texttiling.blocks import REACH, by_vectors, by_words


def cosine(one: dict[str, float], other: dict[str, float]) -> float:
    """Of blocks whose words are all equally frequent."""
    common = sum(weight * other.get(word, 0) for word, weight in one.items())
    return common / math.sqrt(sum(w * w for w in one.values()) * sum(w * w for w in other.values()))


def test_the_nearer_a_message_is_to_the_gap_the_more_it_counts():
    assert by_words([["tea"], ["tea"], ["car"], ["car"]]) == pytest.approx(
        [cosine({"tea": 1}, {"tea": 1, "car": 0.7 + 0.49}), 0, cosine({"car": 1, "tea": 0.7 + 0.49}, {"car": 1})]
    )


def test_a_rare_word_counts_more_than_a_frequent_one():
    similarities = by_words([["the", "tea"], ["the", "tea"], ["the", "car"], ["the", "hat"]])
    assert similarities[0] > similarities[1]
    assert similarities[0] > similarities[2]


def test_words_and_one_hot_vectors_give_the_same_where_all_words_are_equally_frequent():
    words = ["tea", "car", "tea", "hat", "car", "hat"]
    rows = np.array([[word == column for column in ("tea", "car", "hat")] for word in words], np.float32)
    assert by_vectors(rows) == pytest.approx(by_words([[word] for word in words]))


def test_what_is_out_of_reach_does_not_count():
    words = [["tea"], *[["car"]] * REACH, ["tea"]]
    similarities = by_words(words)
    assert similarities[REACH] == 0
    assert similarities[REACH - 1] > 0
    rows = np.array([[word == ["tea"], word == ["car"]] for word in words], np.float32)
    assert by_vectors(rows)[REACH] == 0


def test_messages_that_say_nothing_are_like_no_other():
    assert by_words([[], ["tea"], []]).tolist() == [0, 0]
    assert by_vectors(np.array([[0, 0], [1, 0], [0, 0]], np.float32)).tolist() == [0, 0]


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_messages_have_no_gap(count):
    assert by_words([["tea"]] * count).shape == (0,)
    assert by_vectors(np.ones((count, 3), np.float32)).shape == (0,)


def test_the_order_of_the_words_of_a_message_does_not_matter():
    one = [["tea", "hat", "car"], ["car", "sun", "tea"], ["hat", "sun", "sea"]]
    assert by_words(one).tolist() == by_words([words[::-1] for words in one]).tolist()
