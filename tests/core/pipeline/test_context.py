"""Counting tokens by characters, and cutting to a budget."""

from __future__ import annotations

import pytest

from nanomem_core.pipeline.context import Budget, build_context, estimate_tokens
from nanomem_core.records import Record


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本語", 3), ("한국어", 3), ("мир!", 2), ("日本ab", 3)],
)
def test_tokens_are_estimated_by_script(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_a_part_never_counts_more_than_the_whole() -> None:
    text = "Zoë und 日本語 на русском"
    counts = [estimate_tokens(text[:n]) for n in range(len(text) + 1)]
    assert counts == sorted(counts)


def test_a_summary_is_cut_between_words_and_never_inside_an_escape() -> None:
    summary = Record("s", "one & two & three", kind="summary")
    texts = {build_context([summary], [], [], Budget(limit, 0, len)) for limit in range(60)}
    assert texts == {
        "",
        "Summary:\n- one …",
        "Summary:\n- one &amp; …",
        "Summary:\n- one &amp; two …",
        "Summary:\n- one &amp; two &amp; …",
        "Summary:\n- one &amp; two &amp; three",
    }


def test_guaranteed_lines_leave_what_they_do_not_need() -> None:
    lines = [f"- {n}" for n in range(20)]
    text = build_context([], ["- rule"], ["- rule", *lines], Budget(60, 30, len))
    assert text == "\n".join(["Facts:", "- rule", *lines[:11]])
