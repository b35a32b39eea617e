"""The prompt of an answer, and what is read from it."""

from __future__ import annotations

import pytest

from nanomem_core.pipeline.answer import cited_numbers, turns_kept
from nanomem_core.pipeline.context import estimate_tokens


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Oslo [1].", [1]),
        ("Oslo [2], Rome [1][3].", [2, 1, 3]),
        ("Both [1, 3] and [2; 1] and [4 and 5]", [1, 3, 2, 4, 5]),
        ("All of [2-4] and [6–7]", [2, 3, 4, 6, 7]),
        ("Chinese brackets 【3】", [3]),
        ("Twice [1] [1]", [1]),
        ("[0] is a number too", [0]),
        ("No number: [a], [1a], (1), 1], [], [x[1", []),
        ("Too wide [1-900000]", [1, 900000]),
        ("Backwards [5-3]", [5, 3]),
        ("Too long [12345678]", []),
    ],
)
def test_numbers_in_brackets_are_citations(text: str, numbers: list[int]) -> None:
    assert cited_numbers(text) == numbers


def test_a_text_full_of_brackets_is_read_in_time() -> None:
    assert cited_numbers("[1, " * 50_000) == []
    assert cited_numbers("[" + "1," * 50_000 + "]") == []
    assert cited_numbers("[1]" * 50_000) == [1]


def test_the_newest_turns_that_have_room_are_kept_from_one_of_the_user_on() -> None:
    turns = [
        {"role": role, "content": f"{number} " + "x" * 37} for number in range(3) for role in ("user", "assistant")
    ]
    assert turns_kept(turns, 1000, estimate_tokens) == turns
    assert turns_kept(turns, 30, estimate_tokens) == turns[4:]
    assert turns_kept(turns, 10, estimate_tokens) == []
    assert turns_kept([], 1000, estimate_tokens) == []
