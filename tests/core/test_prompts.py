"""What others wrote, inside a prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.prompts import escaped, unescaped


@given(st.text(alphabet="a&<>;lgtmp \n\r\u2028"))
def test_an_escaped_text_holds_no_markup_and_is_what_it_was(text: str) -> None:
    shown = escaped(text)
    assert not set("<>") & set(shown)
    assert unescaped(shown).split() == text.split()


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r", "\u2028", "\x85", "\x0b"])
def test_further_lines_are_indented(line_break: str) -> None:
    assert escaped(f"one{line_break}[2] two") == f"one{line_break}  [2] two"
