"""What a model thought aloud before its answer is none of the answer."""

from __future__ import annotations

import pytest

from nanomem_core.replies.thoughts import AnswerFilter, without_thoughts

TEXTS = {
    "Oslo [1].": "Oslo [1].",
    "<think>Perhaps [2]?</think>Oslo [1].": "Oslo [1].",
    " \n<Thinking>a</Thinking>\n<think>b</think>\n\nOslo": "Oslo",
    "<think>never closed": "",
    "<thi": "<thi",
    "<b>Oslo</b>": "<b>Oslo</b>",
    "Write <think>x</think> around it": "Write <think>x</think> around it",
    "It begins in the prompt.</think>Oslo": "Oslo",
    "A thought ends with </think>": "A thought ends with </think>",
    "": "",
}


@pytest.mark.parametrize(("text", "answer"), TEXTS.items())
def test_the_answer_is_what_stands_behind_the_thoughts(text: str, answer: str) -> None:
    assert without_thoughts(text) == answer


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_of_any_size_give_the_same_text(text: str, size: int) -> None:
    filter = AnswerFilter()
    pieces = [filter.feed(text[start : start + size]) for start in range(0, len(text), size)]
    shown = ("".join(pieces) + filter.end()).strip()
    # A tag whose beginning stood in the prompt is known too late.
    assert shown == ("It begins in the prompt.</think>Oslo" if "prompt" in text else without_thoughts(text))


def test_the_first_word_of_an_answer_is_shown_at_once() -> None:
    filter = AnswerFilter()
    assert [filter.feed(piece) for piece in ("<think>", "hm", "</think>", "Os", "lo")] == ["", "", "", "Os", "lo"]
    assert filter.end() == ""


def test_a_long_thought_is_read_once_and_not_anew_for_each_piece() -> None:
    filter = AnswerFilter()
    assert not any(filter.feed("<think> and so on < ") for _ in range(20_000))
    assert filter.feed("</think>Oslo") == "Oslo"
