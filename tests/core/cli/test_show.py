"""How tables look, with a terminal and without one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rich.console import Console

from nanomem_core.cli.show import print_table, rich_table

HEADERS = ("name", ">number", "text")
ROWS = {
    "plain": [("a", 1, "one two"), ("longer", 12345, "x"), ("", None, "")],
    "nothing": [],
    "wide": [("茶", 1, "日本語のメモ"), ("ã", 22, "e\u0301te\u0301")],
    "lines": [("a\nb", 1, "first\nsecond\n\nfourth"), ("c", 2, "")],
    "markup": [("[bold]x[/bold]", 1, ":tea: [red]"), ("{x}", 2, "\\n")],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_a_table_off_a_terminal_looks_as_on_a_wide_one(
    rows: list[tuple[object, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(HEADERS, rows)
    found = capsys.readouterr().out
    drawn = Console(width=500, markup=False, emoji=False, highlight=False, color_system=None)
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    with drawn.capture() as expected:
        drawn.print(rich_table(HEADERS, cells))
    assert found.splitlines() == expected.get().splitlines()


def test_a_long_text_stays_on_one_line_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("text", "next"), [("word " * 4000, "x")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].endswith("word    x   ")


def test_control_characters_of_a_text_do_not_reach_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("text",), [("\x1b[31mred\x00",)])
    assert "\\x1b[31mred\\x00" in capsys.readouterr().out


@pytest.mark.parametrize(("encoding", "rule"), [("utf-8", "─"), ("ascii", "-")])
def test_the_rule_suits_the_encoding(encoding: str, rule: str) -> None:
    code = "from nanomem_core.cli.show import print_table; print_table(('ab',), [])"
    command = [sys.executable, "-X", "utf8=0", "-c", code]
    done = subprocess.run(command, env={"PYTHONIOENCODING": encoding}, capture_output=True, check=True)
    assert done.stdout.decode(encoding).splitlines() == ["ab", rule * 2]


def test_tabs_in_a_text_don_t_bend_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("text", "next"), [("a\tb", "x"), ("c", "y")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == ["a       b   x   ", "c           y   "]
