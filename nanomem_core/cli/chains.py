"""``nanomem evaluate chains``: measure taggers."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ..interfaces import Generator, Tagger
from ..vault import Vault
from .common import Session, echo_json
from .opening import progress_bar, stdout_kept_clean
from .options import memory_command
from .show import print_table

if TYPE_CHECKING:
    from ..evaluation.chains import Person, TaggerReport

__all__ = ["chains"]


@memory_command(
    "chains",
    keys=("people", "statements", "taggers"),
    examples=(
        "nanomem evaluate chains",
        "nanomem evaluate chains --tagger keyword --tagger llm,keyword --split test --json",
    ),
)
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "--tagger",
    "lists",
    metavar="NAME[,NAME...]",
    multiple=True,
    help="Only this tagger, or these in turn; may be repeated.",
)
@click.option("--split", type=click.Choice(("development", "test")), help="Only the people of this half.")
def chains(session: Session, as_json: bool, path: Path | None, lists: Sequence[str], split: str | None) -> None:
    """Measure which statements taggers put into one chain, on sixteen invented people, in English and German.

    An attribute counts as right if all of its statements, and no others, get one entity. The row "declared" shows what
    naming every entity gives. Taggers have their options from the settings; those that ask a model are measured if a
    generator is set. PATH names people of your own, in the form of the chains.yaml that comes along.
    """
    from ..evaluation.chains import read_chains

    people = [person for person in read_chains(path) if split in (None, person.split)]
    with ExitStack() as stack:
        stack.enter_context(stdout_kept_clean())
        reports = _measured(session, stack, people, [each.split(",") for each in lists])
    if as_json:
        statements = sum(len(person.said) for person in people)
        echo_json(
            {
                "people": len(people),
                "statements": statements,
                "taggers": [dataclasses.asdict(report) for report in reports],
            }
        )
    else:
        _print(people, reports)


def _measured(
    session: Session, stack: ExitStack, people: Sequence[Person], lists: Sequence[Sequence[str]]
) -> list[TaggerReport]:
    from ..evaluation.chains import DECLARED, evaluate

    settings = session.settings
    generator: Generator | None = None
    if settings.generator is not None:
        built = session.plugins.build("generator", settings.generator, data_dir=settings.data_dir)
        generator = stack.enter_context(built)
    given = {str(spec["use"]): spec for spec in settings.taggers}
    named = lists or [[DECLARED], *([name] for name in _installed(session, generator is not None))]
    specs = [[given.get(name, name) for name in names] for names in named]
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nanomem-evaluate-"))
    memory = stack.enter_context(
        Vault(Path(folder) / "memory.dat", durability="os", taggers=(), plugins=session.plugins)
    )
    progress = stack.enter_context(progress_bar("tagging"))
    return evaluate(memory, people, specs, progress, generator=generator)


def _installed(session: Session, has_generator: bool) -> list[str]:
    """The taggers that can be measured, by name."""
    classes = {offer.name: cast(type[Tagger], offer.cls) for offer in session.plugins.classes("tagger")}
    return sorted(name for name, cls in classes.items() if has_generator or not cls.asks_generator)


def _print(people: Sequence[Person], reports: Sequence[TaggerReport]) -> None:
    statements = sum(len(person.said) for person in people)
    click.echo(f"People: {len(people)}; statements: {statements}. Shares in percent.")
    kinds, languages = list(reports[0].by_kind), list(reports[0].by_language)
    print_table(
        ["tagger", ">chains right", ">of", ">pair F1", ">precision", ">recall", ">untagged", ">strays", ">seconds"],
        [
            [
                report.taggers,
                f"{report.accuracy:.1f}",
                report.chains,
                *(f"{share:.1f}" for share in (report.f1, report.precision, report.recall)),
                report.untagged,
                report.strays,
                f"{report.seconds:.2f}",
            ]
            for report in reports
        ],
    )
    click.echo()
    print_table(
        ["chains right", *(f">{each.replace('_', ' ')}" for each in (*kinds, *languages))],
        [
            [
                report.taggers,
                *(f"{report.by_kind[kind]:.1f}" for kind in kinds),
                *(f"{report.by_language[language]:.1f}" for language in languages),
            ]
            for report in reports
        ],
    )
