"""``nanomem evaluate``: measure retrieval, on published data that you provide, and taggers."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from ..errors import ConfigError
from ..hints import NAME_A_GENERATOR
from ..memory import Memory
from ..pipeline.search import MODES, Mode
from .chains import chains
from .common import Session, echo_json
from .opening import opened, progress_bar
from .options import COMPONENT, memory_command
from .show import print_table

if TYPE_CHECKING:
    from ..evaluation.locomo import Conversation, ModeReport, Report
    from ..evaluation.units import Ingest

__all__ = ["evaluate"]

Units = Literal["turns", "episodes", "facts"]


@click.group()
def evaluate() -> None:
    """Measure how well questions find what answers them, and how well taggers make chains."""


evaluate.add_command(chains)


@memory_command(
    "locomo",
    examples=(
        "nanomem evaluate locomo locomo10.json",
        "nanomem evaluate locomo locomo10.json --mode text --conversations 5 --json",
        "nanomem evaluate locomo locomo10.json --units episodes --budget 500 --budget 1000",
        'nanomem evaluate locomo locomo10.json --embedder lexical --embedder \'{"use": "fastembed"}\' --last 5',
    ),
    group=evaluate,
)
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--embedder",
    "embedders",
    type=COMPONENT,
    metavar="NAME|JSON",
    multiple=True,
    help="This embedder, in place of the one that is set; may be repeated, to compare several.",
)
@click.option("--mode", "modes", type=click.Choice(MODES), multiple=True, help="Only this mode; may be repeated.")
@click.option(
    "--units",
    type=click.Choice(get_args(Units)),
    default="turns",
    help="What is a record: a turn, a segment of the configured segmenter, or a fact drawn from one.  [turns]",
)
@click.option(
    "--budget",
    "budgets",
    type=click.IntRange(min=1),
    multiple=True,
    help="Also tell how many questions have all evidence in the first hits of so many tokens; may be repeated.",
)
@click.option("--neighbours", is_flag=True, help="Let each turn gain from those next to it.")
@click.option("--multihop", is_flag=True, help="Search in two hops; the second has the last places, so compare all@20.")
@click.option("--conversations", type=click.IntRange(min=1), help="Only the first so many conversations.")
@click.option("--skip", type=click.IntRange(min=0), default=0, help="Leave out so many conversations before.  [0]")
@click.option("--last", type=click.IntRange(min=1), help="Also tell the recall on so many at the end by themselves.")
def locomo(
    session: Session,
    as_json: bool,
    path: Path,
    embedders: Sequence[str | Mapping[str, Any]],
    modes: Sequence[Mode],
    units: Units,
    conversations: int | None,
    skip: int,
    **options: Any,
) -> None:
    """Evidence recall on LoCoMo, in a temporary memory for each embedder.

    PATH is the data set's locomo10.json. Each conversation is a user, each turn a record; a question counts as answered
    at k if every (all) or one (any) of the turns that hold its answer are among the first k hits. With --units, records
    hold several turns, and more text: the table tells the tokens of the first k hits, and --budget compares at equal
    size.

    Mode text asks no embedder, so it is measured once.
    """
    from ..evaluation.locomo import read_locomo

    chosen = read_locomo(path)[skip:][:conversations]
    wanted = list(modes or MODES)
    reports = []
    for number, embedder in enumerate(embedders or (None,)):
        those = [mode for mode in wanted if number == 0 or mode != "text"]
        reports.append(_run(session, embedder, chosen, those, units, **options))
    if as_json:
        echo_json({"units": units, **options, "reports": [dataclasses.asdict(report) for report in reports]})
    else:
        _print_reports(reports, units)


@contextmanager
def _ingest(session: Session, memory: Memory, units: Units) -> Iterator[Ingest]:
    """What makes records of turns, with the segmenter and the generator of the settings, open for one block."""
    from ..evaluation.units import episodes, facts, turns

    settings = session.settings
    if units == "turns":
        yield turns
    elif units == "facts":
        from ..system import MemorySystem

        if settings.generator is None:
            raise ConfigError(
                f"--units facts: facts are drawn by a generator, and none is set; {NAME_A_GENERATOR}",
                key="generator",
            )
        conversation = settings.conversation.model_copy(update={"facts": True})
        with MemorySystem(
            memory, segmenter=settings.segmenter, generator=settings.generator, settings=conversation
        ) as system:
            yield partial(facts, system=system)
    else:
        with ExitStack() as stack:

            def build(kind: str, spec: Mapping[str, Any]) -> Any:
                return stack.enter_context(session.plugins.build(kind, spec, data_dir=settings.data_dir))

            segmenter = build("segmenter", settings.segmenter or {"use": "texttiling"})
            segmenter.embedder = memory.embedder
            generator = None if settings.generator is None else build("generator", settings.generator)
            yield partial(episodes, segmenter=segmenter, generator=generator)


def _run(
    session: Session,
    embedder: str | Mapping[str, Any] | None,
    conversations: Sequence[Conversation],
    modes: Sequence[Mode],
    units: Units,
    *,
    budgets: Sequence[int],
    multihop: bool,
    neighbours: bool,
    last: int | None,
) -> Report:
    """Measure one embedder, None for that of the settings."""
    from ..evaluation.locomo import evaluate as run

    with tempfile.TemporaryDirectory(prefix="nanomem-evaluate-") as folder:
        one = session.copy()
        one.override("vault", str(Path(folder) / "memory.dat"))
        if embedder is not None:
            one.override("embedder", embedder)
        with (
            opened(one, "create") as memory,
            _ingest(one, memory, units) as ingest,
            progress_bar(f"evaluating {memory.embedder.name}") as show,
        ):
            return run(
                memory,
                conversations,
                modes,
                lambda stage, done, total: show(done, total),
                ingest=ingest,
                budgets=sorted(set(budgets)),
                multihop=multihop,
                neighbours=neighbours,
                last=last or 0,
            )


def _print_reports(reports: Sequence[Report], units: Units) -> None:
    from ..evaluation.locomo import DEPTHS

    for report in reports:
        click.echo(
            f"{report.conversations} conversations, {report.turns} turns"
            + ("" if units == "turns" else f" as {report.records} {units}")
            + f", ingested in {report.ingest_seconds:.2f} s "
            f"({report.storage}, {report.embedder})"
            + ("" if report.peak_mb is None else f"; peak memory of the process {report.peak_mb:.0f} MB")
        )
    measured = [(_by(report, mode), mode) for report in reports for mode in report.modes]
    recall = [*(f">all@{k}" for k in DEPTHS), *(f">any@{k}" for k in DEPTHS)]

    def shares(*by_depth: Mapping[int, float]) -> list[str]:
        return [f"{each[k]:.1f}" for each in by_depth for k in DEPTHS]

    print_table(
        ["mode", "embedder", ">questions", *recall, ">ms/question"],
        [
            [*by, mode.questions, *shares(mode.all_turns, mode.any_turn), f"{mode.milliseconds_a_question:.2f}"]
            for by, mode in measured
        ],
    )
    if any(mode.last_all_turns for _, mode in measured):
        click.echo("\nThe last conversations alone:")
        print_table(
            ["mode", "embedder", *recall],
            [[*by, *shares(mode.last_all_turns, mode.last_any_turn)] for by, mode in measured],
        )
    click.echo()
    budgets = list(measured[0][1].within)
    print_table(
        ["mode", "embedder", *(f">tokens@{k}" for k in DEPTHS), *(f">all in {budget} tokens" for budget in budgets)],
        [
            [
                *by,
                *(f"{mode.tokens[k]:.0f}" for k in DEPTHS),
                *(f"{mode.within[budget]:.1f}" for budget in budgets),
            ]
            for by, mode in measured
        ],
    )
    click.echo()
    print_table(
        ["mode", "embedder", "category", *(f">all@{k}" for k in DEPTHS)],
        [
            [*by, category, *shares(all_turns)]
            for by, mode in measured
            for category, all_turns in mode.by_category.items()
        ],
    )


def _by(report: Report, mode: ModeReport) -> tuple[str, str]:
    """What a row of a table is about."""
    return mode.mode, "" if mode.mode == "text" else report.embedder
