"""Passages of long texts."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanomem_core.pipeline.chunking import MAX_WORDS, OVERLAP_WORDS, count_words, passages


def words(count: int, first: int = 0) -> str:
    return " ".join(f"w{number}" for number in range(first, first + count))


@pytest.mark.parametrize("text", ["", " ", "hello", "  two\n\nparagraphs \n", words(500), "字" * 1500, "a" * 32_000])
def test_a_short_text_is_its_own_only_passage(text: str) -> None:
    assert passages(text) == [text]


@pytest.mark.parametrize("text", [words(501), "字" * 1501, "あいうえお。" * 251, "ก" * 1501, "a" * 32_001])
def test_a_text_over_the_limit_is_divided(text: str) -> None:
    assert len(passages(text)) == 2


def test_a_character_of_an_unspaced_script_in_a_spaced_text_changes_nothing() -> None:
    text = words(499) + " 字x👍"
    assert passages(text) == [text]
    assert len(passages(text + " more")) == 2


def test_no_passage_is_over_the_limit_and_neighbours_share_some_words() -> None:
    found = passages(words(3000))
    assert all(count_words(passage) <= MAX_WORDS for passage in found)
    for left, right in pairwise(found):
        assert left.split()[-OVERLAP_WORDS:] == right.split()[:OVERLAP_WORDS]


def test_an_unspaced_text_shares_up_to_120_characters() -> None:
    text = "".join(chr(0x4E00 + number) for number in range(4000))
    found = passages(text)
    assert all(len(passage) <= 1500 for passage in found)
    for left, right in pairwise(found):
        shared = len(left) - left.index(right[0])
        assert left[-shared:] == right[:shared]
        assert 80 <= shared <= 120


def test_a_paragraph_is_a_better_place_to_cut_than_a_later_sentence() -> None:
    text = words(300) + "\n\n" + words(100, 300) + ". " + words(300, 400)
    assert passages(text)[0] == words(300)


def test_of_equal_places_the_last_is_taken() -> None:
    text = words(300) + "\n\n" + words(100, 300) + "\n\n" + words(300, 400)
    assert passages(text)[0].split() == words(400).split()


def test_a_sentence_is_a_better_place_to_cut_than_the_middle_of_one() -> None:
    text = words(400) + '." ' + words(300, 400)
    assert passages(text)[0] == words(400) + '."'


def test_an_unspaced_text_is_cut_after_a_sentence() -> None:
    text = "字" * 1200 + "。" + "語" * 900
    assert passages(text)[0] == "字" * 1200 + "。"


def test_a_cut_in_the_first_half_is_not_taken() -> None:
    text = words(100) + "\n\n" + words(900, 100)
    assert len(passages(text)[0].split()) == MAX_WORDS


def test_lines_and_indentation_inside_a_passage_stay_verbatim() -> None:
    text = "\n".join(f"    line {number}\tx" for number in range(400))
    found = passages(text)
    assert len(found) > 1
    assert all(passage in text for passage in found)
    assert "\n    line 7\tx\n" in found[0]


@pytest.mark.parametrize("token", ["x" * 200_000, "字" * 200_000, "é" * 200_000, "。" * 200_000])
def test_a_huge_token_is_cut_by_characters(token: str) -> None:
    found = passages(token)
    assert len(found) >= 7
    assert all(count_words(passage) <= MAX_WORDS for passage in found)
    assert sum(map(len, found)) >= len(token)


def test_every_character_of_a_huge_token_is_in_a_passage() -> None:
    token = "".join(chr(0x4E00 + number) for number in range(20_000))
    assert set("".join(passages(token))) == set(token)


ALPHABET = st.sampled_from([*"ab.!? \n\t", "\n\n", "word ", "字", "。", "が", "한", "😀", "\u0301", "xyz" * 40])


@settings(max_examples=60, deadline=None)
@given(st.lists(ALPHABET, max_size=30), st.integers(1, 200), st.integers(0, 2**32))
def test_nothing_but_white_space_is_lost(parts: list[str], repeat: int, seed: int) -> None:
    stretch = "".join(parts) * repeat
    # Numbered, so that every passage can be found at one place only.
    rng = random.Random(seed)
    text = " ".join(f"{number}{stretch[at : at + 40]}" for number, at in enumerate(range(0, len(stretch), 40)))
    text = text[rng.randrange(len(text) + 1) :]
    found = passages(text)
    assert all(passage in text for passage in found)
    assert found == passages(text)
    if len(found) > 1:
        assert all(count_words(passage) <= MAX_WORDS for passage in found)
        assert {run for run in text.split() if count_words(run) == 1} <= {run for p in found for run in p.split()}
        at = 0
        for passage in found:  # greedy cover: each passage begins at or before the place that is covered so far
            start = text.rfind(passage, 0, at + len(passage) + 64)
            gap = text[at:start] if start > at else ""
            assert not gap.strip()
            at = max(at, start + len(passage))
        assert not text[at:].strip()
