"""``nanomem demo``: ten months of small talk, and what the memory makes of them. Every answer shown is computed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from ..times import parse_time
from ..vault import Vault
from .common import Session, console, echo_json, json_option, pass_session
from .opening import stdout_kept_clean
from .options import Command
from .show import date, duration, print_entries, print_table
from .story import STORY, TODAY

__all__ = ["demo"]

TEAM = "which team do I sit with at work?"
HOME = "in which city do I live?"
ASKED = "2025-05-01"


@dataclass(frozen=True, slots=True)
class _Question:
    """A call of the library: as it is written, as it is made, and how its answer is printed."""

    call: str
    ask: Callable[[Vault], list[Any]]
    show: Callable[[Any, float], None]


def _values(values: Any, now: float) -> None:
    print_entries(values, now=now)


def _hits(hits: Any, now: float) -> None:
    print_entries(hits, now=now)
    first, likest = hits[0], max(hits, key=lambda hit: hit.cosine)
    click.echo(f"First of the answer (cosine {first.cosine:.2f}): {first.text}")
    click.echo(f"Most like the question (cosine {likest.cosine:.2f}): {likest.text}")


def _changes(changes: Any, now: float) -> None:
    print_table(
        ("date (UTC)", "change", "attribute", "text", "instead of"),
        [(date(c.at), c.change, c.entity, c.text, c.previous_text) for c in changes],
    )


def _volatility(rows: Any, now: float) -> None:
    print_table(
        ("attribute", ">values", ">changes every", ">unconfirmed for"),
        [(r["entity"], r["n_revisions"], duration(r["median_interval"]), duration(r["age"])) for r in rows],
    )


def _labels(labels: Any, now: float) -> None:
    for label in labels:
        click.echo(label)


_QUESTIONS = (
    _Question(f"search({TEAM!r}, top_k=4)", lambda vault: vault.search(TEAM, 4), _hits),
    _Question(
        "[staleness_label(hit) for hit in search(…)]",
        lambda vault: [label for hit in vault.search(TEAM, 4) if (label := vault.staleness_label(hit))],
        _labels,
    ),
    _Question("history(entity='team')", lambda vault: vault.history(entity="team"), _values),
    _Question("history(entity='city')", lambda vault: vault.history(entity="city"), _values),
    _Question(
        f"search({HOME!r}, 1, entity='city', as_of={ASKED!r})",
        lambda vault: vault.search(HOME, 1, entity="city", as_of=ASKED),
        _values,
    ),
    _Question(
        f"search({HOME!r}, 1, entity='city', as_of={ASKED!r}, known_at={ASKED!r})",
        lambda vault: vault.search(HOME, 1, entity="city", as_of=ASKED, known_at=ASKED),
        _values,
    ),
    _Question("changes('2025-08-01', '2025-09-01')", lambda vault: vault.changes("2025-08-01", "2025-09-01"), _changes),
    _Question("volatility()", lambda vault: vault.volatility(), _volatility),
    _Question("current()", lambda vault: vault.current(), _values),
)


@click.command(
    "demo",
    cls=Command,
    keys=("today", "told", "asked", "after_reopening", "file_size"),
    examples=("nanomem demo", "nanomem demo --keep story.dat"),
)
@click.option("--keep", type=click.Path(path_type=Path), metavar="PATH", help="Keep the memory in this new file.")
@json_option
@pass_session
def demo(session: Session, as_json: bool, keep: Path | None) -> None:
    """Tell a memory ten months of small talk, and ask it what changed.

    The questions are asked twice, before and after the file is closed and opened again.
    """
    if keep is not None and keep.exists():
        raise InputError(f"{keep}: exists already; --keep takes the path of a new file")
    now = [0.0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "demo.dat") if keep is None else keep

        @contextlib.contextmanager
        def opened() -> Iterator[Vault]:
            with stdout_kept_clean(), Vault(path, plugins=session.plugins, clock=lambda: now[0]) as vault:
                yield vault

        with opened() as vault:
            _tell(vault, now)
            now[0] = parse_time(TODAY)
            answers = [question.ask(vault) for question in _QUESTIONS]
        with opened() as vault:
            same = sum(question.ask(vault) == answer for question, answer in zip(_QUESTIONS, answers, strict=True))
            size = path.stat().st_size
    if as_json:
        _print_json(answers, same, size)
    else:
        _print(answers, now[0], same, size)
        if keep is not None:
            click.echo(f"Kept: nanomem history --entity city --vault {keep}")
    if same != len(answers):
        raise click.exceptions.Exit(1)


def _tell(vault: Vault, now: list[float]) -> None:
    for said in STORY:
        now[0] = parse_time(said.told)
        if said.ends:
            vault.retract(entity=said.entity, at=said.since, reason=said.text)
        else:
            vault.add(said.text, source=said.source, entity=said.entity, timestamp=said.since)


def _print(answers: list[Any], now: float, same: int, size: int) -> None:
    out = console()
    out.print(f"Told, from {STORY[0].told} to {STORY[-1].told}", style="bold")
    rows = [
        (said.told, said.entity, said.text, said.since, "" if said.source == "chat" else said.source) for said in STORY
    ]
    print_table(("told", "attribute", "text", "true from", "source"), rows)
    for question, answer in zip(_QUESTIONS, answers, strict=True):
        out.print()
        out.print(question.call, style="bold")
        question.show(answer, now)
    out.print()
    out.print("Closed, and opened again", style="bold")
    click.echo(f"{same} of {len(answers)} answers are the same; the file has {size} bytes.")


def _print_json(answers: list[Any], same: int, size: int) -> None:
    asked = [{"call": question.call, "results": answer} for question, answer in zip(_QUESTIONS, answers, strict=True)]
    echo_json(
        {
            "today": TODAY,
            "told": [asdict(said) for said in STORY],
            "asked": asked,
            "after_reopening": {"asked": len(answers), "same": same},
            "file_size": size,
        }
    )
