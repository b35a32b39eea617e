"""The reference page of the command line says what the commands say."""

from __future__ import annotations

from nanomem_core.cli import COMMANDS
from tests.cli_reference import PAGE, reference


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `python -m tests.cli_reference`"


def test_every_command_has_a_section() -> None:
    sections = {line.split()[2] for line in reference().splitlines() if line.startswith("## nanomem ")}
    assert sections == set(COMMANDS)
