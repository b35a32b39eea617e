"""``nanomem cache``: what embeddings are kept."""

from __future__ import annotations

import json
from typing import Any

import click

from .store import EmbeddingCache

__all__ = ["cache"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def cache() -> None:
    """Look at the embeddings that the plugin `cache` keeps, and forget them."""


@cache.command()
@_json
@click.pass_obj
def stats(session: Any, as_json: bool) -> None:
    """Tell how many vectors are kept, of which embedders, and how much room they take."""
    found = _store(session).stats()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    state = f"of at most {_megabytes(found['limit'])}" if found["limit"] else "(plugins.options.cache keeps none now)"
    click.echo(f"{_vectors(found['vectors'])}, {_megabytes(found['bytes'])} {state}, in {found['path']}")
    for each in found["spaces"]:
        click.echo(f"  {each['vectors']} of {each['embedder']} ({each['dim']} dimensions)")


@cache.command()
@_json
@click.pass_obj
def clear(session: Any, as_json: bool) -> None:
    """Forget all of them; they are computed again when they are needed."""
    forgotten = _store(session).clear()
    click.echo(json.dumps({"forgotten": forgotten}) if as_json else f"Forgot {_vectors(forgotten)}.")


def _store(session: Any) -> EmbeddingCache:
    # The session of the command line is not public; what is used of it is what it says about plugins.
    store: EmbeddingCache = session.plugins.plugin("cache").store
    click.get_current_context().call_on_close(store.close)
    return store


def _vectors(count: int) -> str:
    return f"{count} vector{'' if count == 1 else 's'}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
