"""``nanomem init``: a settings file, and an empty memory."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..config.files import PROJECT_FILE
from ..errors import InputError
from ..fileio import atomic
from ..interfaces import VectorSpace
from .common import Session, echo_json
from .opening import opened, storage_place
from .options import memory_command

__all__ = ["init"]

_SETTINGS = """\
# Settings of nanomem for this folder. `nanomem config show --origin` tells what applies and why.
# Precedence: command line, environment (NANOMEM_STORAGE__PATH=…), this file, the user's file, defaults.

# Relative paths start from the folder of this file.
data_dir: .

# Where the memory is kept: one of {storages}.
storage:
  use: {storage}{place}

# What turns texts into vectors: one of {embedders}.
# lexical needs no model and no network. It compares words and spellings, not meanings: it finds inflected and misspelt
# words, names and numbers, but no synonyms ("car" and "automobile" are strangers to it). Vectors of different embedders
# can't be compared; `nanomem reembed` changes a store over.
embedder:
  use: {embedder}

# Who guesses the attribute of a statement that declares none (`nanomem add --entity` declares one); [] for nobody.
taggers: [keyword]

search:
  # hybrid ranks by vectors and by words; vector and text by one of them.
  mode: hybrid
  top_k: 3
"""


@memory_command(
    "init",
    keys=("settings", "memory", "created", "embedder"),
    examples=("nanomem init", "nanomem init --vault notes.dat", "nanomem init --embedder ollama"),
)
@click.option("--storage", metavar="NAME", help="Which storage; the one of the settings by default.")
@click.option("--embedder", metavar="NAME", help="Which embedder; the one of the settings by default.")
@click.option("--force", is_flag=True, help="Replace a nanomem.yaml that exists; a memory is never replaced.")
def init(session: Session, as_json: bool, storage: str | None, embedder: str | None, force: bool) -> None:
    """Write ./nanomem.yaml with comments, and make the memory it names."""
    file = Path(PROJECT_FILE)
    if file.exists() and not force:
        raise InputError(f"{file.absolute()}: exists already; --force replaces it, and leaves the memory as it is")
    for setting, name in (("storage", storage), ("embedder", embedder)):
        if name is not None:
            session.override(setting, name)
    place = storage_place(session)
    new = place.path is not None and not place.path.exists()
    with opened(session, "create") as memory:
        if memory.storage.keeps_vectors:
            memory.storage.adopt(VectorSpace(memory.embedder.id, memory.embedder.dim))
        elif place.path is not None:
            place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        used = memory.embedder.name
    text = _SETTINGS.format(
        storages=_offered(session, "storage"),
        storage=session.settings.storage["use"],
        place=""
        if place.path is None
        else f"\n  {place.option}: {json.dumps(_relative(place.path), ensure_ascii=False)}",
        embedders=_offered(session, "embedder"),
        embedder=used,
    )
    atomic.write(file, text.encode())
    if as_json:
        echo_json({"settings": str(file.absolute()), "memory": place.path, "created": new, "embedder": used})
        return
    click.echo(f"Wrote {file}.")
    if place.path is not None:
        click.echo(f"{'Made an empty memory' if new else 'The memory is'} at {_relative(place.path)}.")
    click.echo(f"Texts are compared by the embedder {used!r}{_limits(used)}.")


def _limits(embedder: str) -> str:
    if embedder != "lexical":
        return ""
    return (
        ": offline, without a model. It compares words and spellings, not meanings,\n"
        'so it finds no synonyms ("car", "automobile"); nanomem.yaml tells how to choose another'
    )


def _offered(session: Session, kind: str) -> str:
    return ", ".join(dict.fromkeys(offer.name for offer in session.plugins.classes(kind)))


def _relative(place: Path) -> str:
    """`place` as it is seen from the current folder, where it is below that."""
    try:
        return place.absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(place)
