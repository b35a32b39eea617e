"""Dividing questions."""

from __future__ import annotations

import pytest

from nanomem_core.pipeline.questions import MAX_PARTS, split_question


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("where do I live and what do I drive", ["where do I live", "what do I drive"]),
        ("Where do I live? What do I drive?", ["Where do I live", "What do I drive"]),
        ("my phone number; my address", ["my phone number", "my address"]),
        ("what is my job, and also where is it", ["what is my job", "where is it"]),
        ("what do I eat plus who cooks it", ["what do I eat", "who cooks it"]),
        ("tell me my name AND show my car", ["tell me my name", "show my car"]),
        ("我住在哪里？我开什么车？", ["我住在哪里", "我开什么车"]),
        ("where do I live? where do I live? what now then", ["where do I live", "what now then"]),
    ],
)
def test_a_text_that_asks_several_things_is_divided(question: str, parts: list[str]) -> None:
    assert split_question(question) == parts


@pytest.mark.parametrize(
    "question",
    [
        "tell me about rock and roll",
        "what are the pros and cons of tea",
        "what is the name and address of my dentist",
        "who wrote Pride and Prejudice?",
        "do I like bread and butter",
        "also, where do I live?",
        "why? because",
        "where do I live?",
        "",
        "???",
    ],
)
def test_a_single_question_stays_whole(question: str) -> None:
    assert split_question(question) == [question.strip()]


def test_more_parts_than_a_question_has_are_no_list_of_questions() -> None:
    parts = [f"part number {i}" for i in range(MAX_PARTS)]
    assert split_question("; ".join(parts)) == parts
    longer = "; ".join([*parts, "one more"])
    assert split_question(longer) == [longer]
