"""``nanomem bench``."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import click

from nanomem_core.cli.common import Session, echo_json, json_option, pass_session, stderr_console

from .arms import ARMS, FACT_ARMS
from .bench import Bench
from .data import KINDS, TEXT
from .findings import FULL, QUICK
from .measure import machine
from .page import page
from .report import Report
from .segmentation.command import segmentation
from .suites import SUITES, facts_as_files

__all__ = ["bench"]


class _Bench(click.Command):
    """A command with sub-commands beside its arguments: suites measure stores, the sub-commands take files."""

    others: ClassVar[Mapping[str, click.Command]] = {"page": page, "segmentation": segmentation}

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in self.others:
            return self.others[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("bench", cls=_Bench)
@click.argument("suites", nargs=-1, required=True, type=click.Choice([*SUITES, "all"]))
@click.option("--quick", is_flag=True, help="At most 10,000 records, two threads, fewer rounds: some two minutes.")
@click.option(
    "--arm", "names", type=click.Choice([*ARMS, *FACT_ARMS]), multiple=True, help="Only this arm; may be repeated."
)
@click.option(
    "--threads", type=click.IntRange(min=1), multiple=True, help="Threads of a search; may be repeated.  [1 2]"
)
@click.option(
    "--data",
    "kinds",
    type=click.Choice([*KINDS, TEXT]),
    multiple=True,
    default=("random",),
    help="Kind of vectors in the suites search and open; may be repeated.  [random]",
)
@click.option(
    "--text",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Also use the lines of this file, embedded by the configured embedder.",
)
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    help="Multiply every number of records; goals are told for the full numbers only.  [1]",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Where to put the stores, on the disk to be measured.  [the folder for temporary files]",
)
@click.option("--seed", type=int, default=0, help="Seed of the data.  [0]")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), help="Also write the report to this file.")
@json_option
@pass_session
def bench(
    session: Session,
    suites: Sequence[str],
    quick: bool,
    names: Sequence[str],
    threads: Sequence[int],
    kinds: Sequence[str],
    text: Path | None,
    scale: float,
    folder: Path | None,
    seed: int,
    markdown: Path | None,
    as_json: bool,
) -> None:
    """Measure nanomem beside other embedded vector stores.

    SUITES are what to measure, or "all". The report says which goals are met; peers that are not installed are named
    in it (pip install "nanomem-bench[peers]" installs all).

    "nanomem bench segmentation FILE..." measures segmenters instead, and "nanomem bench page REPORT PAGE..." puts the
    tables of a report into a page; each has a --help of its own.
    """
    if TEXT in kinds and text is None:
        raise click.UsageError(f"--data {TEXT} needs --text FILE")
    effort = dataclasses.replace(QUICK if quick else FULL, scale=scale)
    if threads:
        effort = dataclasses.replace(effort, threads=tuple(sorted(set(threads))))
    chosen = tuple(SUITES) if "all" in suites else tuple(dict.fromkeys(suites))
    embedder = session.plugins.build("embedder", session.settings.embedder, data_dir=session.settings.data_dir)
    with (
        embedder,
        tempfile.TemporaryDirectory(prefix="nanomem-bench-", dir=folder, ignore_cleanup_errors=True) as place,
        _progress(len(chosen)) as say,
    ):
        run = Bench(
            Path(place).resolve(),
            effort,
            names or _arms_for(chosen),
            seed=seed,
            embedder=embedder,
            kinds=kinds,
            text=text,
            say=say,
        )
        bandwidth = run.bandwidth()
        seconds = run.run({name: SUITES[name] for name in chosen})
        report = Report(run.findings, machine(), bandwidth, seconds)
        written = report.as_markdown()
    if markdown is not None:
        markdown.write_text(written, encoding="utf-8")
    if as_json:
        echo_json(report.as_dict())
    else:
        click.echo(written)


def _arms_for(suites: Sequence[str]) -> list[str]:
    """The arms that these suites measure."""
    about_facts = [name for name in suites if SUITES[name] is facts_as_files.run]
    return [*(ARMS if len(suites) > len(about_facts) else ()), *(FACT_ARMS if about_facts else ())]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, str], None]]:
    """Show on stderr how many suites are done, and what is being done: as a bar, or off a terminal as lines."""
    out = stderr_console()
    begin = time.perf_counter()
    if not out.is_terminal:
        yield lambda done, text: click.echo(f"{time.perf_counter() - begin:7.1f} s  {done}/{total}  {text}", err=True)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task("", total=total)

        def show(done: int, text: str) -> None:
            progress.update(task, completed=done, description=text)

        yield show
