"""``nanomem evaluate``: measure retrieval on published data, which you provide."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..memory import Memory
from ..pipeline.search import MODES, Mode
from .common import Session, echo_json
from .opening import opened, progress_bar
from .options import memory_command
from .show import print_table

if TYPE_CHECKING:
    from ..evaluation.locomo import Conversation, Report

__all__ = ["evaluate"]


@click.group()
def evaluate() -> None:
    """Measure how well questions find what answers them, on published data that you provide."""


@memory_command(
    "locomo",
    examples=(
        "nanomem evaluate locomo locomo10.json",
        "nanomem evaluate locomo locomo10.json --mode text --conversations 5 --json",
    ),
    group=evaluate,
)
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--mode", "modes", type=click.Choice(MODES), multiple=True, help="Only this mode; may be repeated.")
@click.option("--conversations", type=click.IntRange(min=1), help="Only the first so many conversations.")
@click.option("--skip", type=click.IntRange(min=0), default=0, help="Leave out so many conversations before.  [0]")
def locomo(
    session: Session, as_json: bool, path: Path, modes: Sequence[Mode], conversations: int | None, skip: int
) -> None:
    """Evidence recall on LoCoMo, with the configured embedder, in a temporary memory.

    PATH is the data set's locomo10.json. Each conversation is a user, each turn a record; a question counts as answered
    at k if every (all) or one (any) of the turns that hold its answer are among the first k hits.
    """
    from ..evaluation.locomo import read_locomo

    chosen = read_locomo(path)[skip:][:conversations]
    with tempfile.TemporaryDirectory(prefix="nanomem-evaluate-") as folder:
        session.override("vault", str(Path(folder) / "memory.dat"))
        with opened(session, "create") as memory:
            report = _run(memory, chosen, modes or MODES)
    if as_json:
        echo_json(dataclasses.asdict(report))
    else:
        _print_report(report)


def _run(memory: Memory, conversations: Sequence[Conversation], modes: Sequence[Mode]) -> Report:
    from ..evaluation.locomo import evaluate as run

    with progress_bar("evaluating") as show:
        return run(memory, conversations, modes, lambda stage, done, total: show(done, total))


def _print_report(report: Report) -> None:
    from ..evaluation.locomo import DEPTHS

    click.echo(
        f"{report.conversations} conversations, {report.turns} turns, ingested in {report.ingest_seconds:.2f} s "
        f"({report.storage}, {report.embedder})"
        + ("" if report.peak_mb is None else f"; peak memory of the process {report.peak_mb:.0f} MB")
    )
    headers = ["mode", ">questions", *(f">all@{k}" for k in DEPTHS), *(f">any@{k}" for k in DEPTHS), ">ms/question"]
    print_table(
        headers,
        [
            [
                mode.mode,
                mode.questions,
                *(f"{mode.all_turns[k]:.1f}" for k in DEPTHS),
                *(f"{mode.any_turn[k]:.1f}" for k in DEPTHS),
                f"{mode.milliseconds_a_question:.2f}",
            ]
            for mode in report.modes
        ],
    )
    click.echo()
    print_table(
        ["mode", "category", *(f">all@{k}" for k in DEPTHS)],
        [
            [mode.mode, category, *(f"{shares[k]:.1f}" for k in DEPTHS)]
            for mode in report.modes
            for category, shares in mode.by_category.items()
        ],
    )
