"""``nanomem init``: a settings file, and an empty memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..config.files import PROJECT_FILE
from ..config.model import component, masked
from ..errors import InputError, UnknownComponentError
from ..fileio import atomic
from ..interfaces import VectorSpace
from .common import Failure, Session, echo_json, warn
from .opening import opened, storage_place
from .options import COMPONENT, memory_command

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
# * lexical needs no model and no network. It compares words and spellings, not meanings: it finds inflected and
#   misspelt words, names and numbers, but no synonyms ("car" and "automobile" are strangers to it).
# * fastembed runs a model in the process itself, which knows meanings (pip install nanomem-fastembed).
# * ollama and openai ask a model of a server: on this machine, or of a provider that then reads every text.
# Vectors of different embedders can't be compared; `nanomem reembed` changes a store over.
embedder:
{embedder}

# Who guesses the attribute of a statement that declares none (`nanomem add --entity` declares one); [] for nobody.
taggers: [keyword]

search:
  # hybrid ranks by vectors and by words; vector and text by one of them.
  mode: hybrid
  # true lets each record gain from those that were told just before and after it: for turns of conversations.
  neighbours: false
  top_k: 3
"""


@memory_command(
    "init",
    keys=("settings", "memory", "created", "embedder", "embedder_id"),
    examples=(
        "nanomem init",
        "nanomem init --vault notes.dat --embedder lexical",
        "nanomem init --embedder fastembed --model BAAI/bge-small-en-v1.5",
        'nanomem init --embedder \'{"use": "fastembed", "path": "models/minilm"}\'',
        "nanomem init --embedder ollama --model nomic-embed-text",
    ),
)
@click.option("--storage", metavar="NAME", help="Which storage; the one of the settings by default.")
@click.option(
    "--embedder",
    type=COMPONENT,
    metavar="NAME|JSON",
    help="Which embedder, with its options; by default the one of the settings, and on a terminal you are asked.",
)
@click.option("--model", metavar="NAME", help="The embedder's option `model`.")
@click.option("--force", is_flag=True, help="Replace a nanomem.yaml that exists; a memory is never replaced.")
def init(
    session: Session,
    as_json: bool,
    storage: str | None,
    embedder: str | Mapping[str, Any] | None,
    model: str | None,
    force: bool,
) -> None:
    """Write ./nanomem.yaml with comments, and make the memory it names.

    Texts are compared by words and spellings (lexical: offline, no model), by a model in the process itself
    (fastembed), or by a model of a server (ollama, openai). The model must be at hand, since the memory will hold its
    vectors.
    """
    file = Path(PROJECT_FILE)
    if file.exists() and not force:
        raise InputError(f"{file.absolute()}: exists already; --force replaces it, and leaves the memory as it is")
    if embedder is None and model is None and not as_json and sys.stdin.isatty():
        embedder = _asked()
    chosen = {} if embedder is None else dict(component(embedder))
    if model is not None:
        chosen = {"use": session.settings.embedder["use"], **chosen, "model": model}
        session = session.copy()
    for setting, value in (("storage", storage), ("embedder", chosen or None)):
        if value is not None:
            session.override(setting, value)
    _check_offered(session, session.settings.embedder["use"])
    place = storage_place(session)
    new = place.path is not None and not place.path.exists()
    with opened(session, "create") as memory:
        if memory.storage.keeps_vectors:
            memory.storage.adopt(VectorSpace(memory.embedder.id, memory.embedder.dim))
        elif place.path is not None:
            place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        used, id = memory.embedder.name, memory.embedder.id
    text = _SETTINGS.format(
        storages=_offered(session, "storage"),
        storage=session.settings.storage["use"],
        place=""
        if place.path is None
        else f"\n  {place.option}: {json.dumps(_relative(place.path), ensure_ascii=False)}",
        embedders=_offered(session, "embedder"),
        embedder=_written({"use": used, **chosen}),
    )
    atomic.write(file, text.encode())
    if as_json:
        result = {"settings": str(file.absolute()), "memory": place.path, "created": new}
        echo_json({**result, "embedder": used, "embedder_id": id})
        return
    click.echo(f"Wrote {file}.")
    if place.path is not None:
        click.echo(f"{'Made an empty memory' if new else 'The memory is'} at {_relative(place.path)}.")
    click.echo(f"Texts are compared by the embedder {used!r}{_limits(used)}.")


_QUESTION = """\
What turns texts into vectors?
  1  words and spellings: offline, without a model; knows no meanings (lexical)
  2  a model in the process itself: knows meanings, offline once it is here (fastembed)
  3  a model of an Ollama server (ollama)
  4  a model of OpenAI, or of any server that speaks its interface (openai)
Which? [1] """

_CHOICES: dict[str, tuple[str, str]] = {
    "1": ("lexical", ""),
    "2": ("fastembed", "Model, or a folder that holds one? [BAAI/bge-small-en-v1.5] "),
    "3": ("ollama", "Model? [nomic-embed-text] "),
    "4": ("openai", "Model? [text-embedding-3-small] "),
}
"""What may be answered: the embedder, and what to ask about it then."""


def _asked() -> dict[str, Any]:
    """The embedder that somebody at the terminal chooses."""
    choice = _answer(_QUESTION) or "1"
    if choice not in _CHOICES:
        raise Failure(f"expected {', '.join(_CHOICES)}; found {choice!r}. Nothing was written")
    use, question = _CHOICES[choice]
    if not question:
        return {"use": use}
    model = _answer(question) or question.partition("[")[2].partition("]")[0]
    return {"use": use, ("path" if use == "fastembed" and Path(model).is_dir() else "model"): model}


def _answer(question: str) -> str:
    click.echo(question, nl=False, err=True)
    return sys.stdin.readline().strip()


def _check_offered(session: Session, embedder: str) -> None:
    try:
        session.plugins.find("embedder", embedder)
    except UnknownComponentError as error:
        if embedder != "fastembed":
            raise
        raise Failure(f"{error}. It comes with `pip install nanomem-fastembed`; nothing was written") from error


def _written(spec: Mapping[str, Any]) -> str:
    """A component as lines of the settings file, without its secrets."""
    import yaml

    shown = masked(spec)
    secret = [name for name, value in spec.items() if value != shown[name]]
    if secret:
        variables = ", ".join(f"NANOMEM_EMBEDDER__{name.upper()}" for name in secret)
        warn(f"{', '.join(secret)} is not written to the file; set {variables}")
    written = {name: value for name, value in spec.items() if name not in secret}
    text = yaml.safe_dump(written, allow_unicode=True, sort_keys=False, width=1000)
    return "\n".join(f"  {line}" for line in text.splitlines())


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
