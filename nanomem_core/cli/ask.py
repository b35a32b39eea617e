"""``nanomem ask``: an answer in words, from what is remembered."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import IO, Any

import click

from ..pipeline.answer import Answer, AnswerStream
from .common import Session, echo_json, warn
from .opening import opened
from .options import (
    as_of_option,
    entity_option,
    filter_option,
    generator_option,
    kind_option,
    known_at_option,
    memory_command,
    search_options,
)
from .show import count, date, others_told, plain

__all__ = ["ask", "print_pieces", "print_sources"]

top_k_option = click.option(
    "-k", "--top-k", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Facts at most."
)


@memory_command(
    "ask",
    keys=(
        "question",
        "answer",
        "citations",
        "retrieval",
        "incomplete",
        "stale_citations",
        "invented_citations",
        "usage",
    ),
    examples=(
        'nanomem ask "where do I work?"',
        'nanomem ask "what can I cook for Ana?" --stream --multihop',
        'nanomem ask "where did I work then?" --as-of 2025-06-01 --json',
    ),
)
@click.argument("question")
@top_k_option
@search_options
@filter_option()
@entity_option
@as_of_option
@known_at_option
@kind_option
@generator_option
@click.option("--no-cite", is_flag=True, help="Without citations.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    metavar="N",
    help="Room for the facts in the prompt, estimated from the characters.",
)
@click.option("--stream", is_flag=True, help="Print the answer as it comes.")
def ask(session: Session, as_json: bool, question: str, no_cite: bool, stream: bool, **options: Any) -> None:
    """Let the configured model answer QUESTION from what is remembered, with its sources.

    Facts that were replaced or have ended are shown to the model as such. If nothing is found the answer says so, and
    no model is asked.
    """
    if stream and as_json:
        raise click.UsageError("--stream prints a text as it comes, so it goes without --json")
    out = sys.stdout
    with opened(session, "ask") as memory:
        if stream:
            with memory.ask_stream(question, cite=not no_cite, **options) as pieces:
                print_pieces(pieces, out)
                answer = pieces.answer
        else:
            answer = memory.ask(question, cite=not no_cite, **options)
    if as_json:
        echo_json(answer.to_dict())
        return
    if not stream:
        click.echo(plain(answer.answer))
    print_sources(answer)


def print_pieces(pieces: AnswerStream, out: IO[str]) -> None:
    """Print the pieces of an answer to `out` as they come, and the end of the line."""
    for piece in pieces:
        click.echo(plain(piece), nl=False, file=out)
        out.flush()
    click.echo(file=out)


def print_sources(answer: Answer) -> None:
    """Print what an answer cites, and on standard error what speaks against trusting it."""
    for cited in answer.citations:
        click.echo(f"  [{cited['n']}] {_source(cited)}")
    for stale in answer.stale_citations:
        warn(f"[{stale['n']}] is {plain(stale['note'])}")
    if answer.invented_citations:
        numbers = ", ".join(f"[{number}]" for number in answer.invented_citations)
        warn(f"the model cites {numbers}, which is no fact that it was shown; do not rely on what that is to prove")
    shown, found = answer.retrieval["shown"], answer.retrieval["returned"]
    if others := answer.retrieval.get("other_kinds"):
        warn(others_told(others))
    if shown < found:
        warn(f"the model was shown {shown} of {count(found, 'fact')}, since there was no room for more")


def _source(cited: Mapping[str, Any]) -> str:
    text = " ".join(cited["text"].split())
    return plain(f"{date(cited['timestamp'])}, {cited['source']}: {text if len(text) <= 100 else text[:99] + '…'}")
