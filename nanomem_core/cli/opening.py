"""Opening the memory that a command is about."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from ..errors import NotFoundError
from ..interfaces import Storage
from ..memory import Memory
from ..registry.options import Options
from .common import Session, stderr_console, warn

__all__ = ["StoragePlace", "Use", "opened", "opened_storage", "progress_bar", "stdout_kept_clean", "storage_place"]

Use = Literal["read", "ask", "change", "create"]
"""What for: only ``create`` may make a store that is not there; ``read`` opens it read-only where the store can. So
does ``ask`` where the files may not be written; elsewhere it keeps for the next question what took long to compute.
"""


@contextlib.contextmanager
def opened(session: Session, use: Use) -> Iterator[Memory]:
    """The memory of the settings, for one ``with`` block. What is printed in the block goes to stderr, by plugins too;
    so print results after it.

    Raises:
        NotFoundError: there is no store yet, and `use` is not ``create``.
    """
    settings = session.settings.model_copy(update={"storage": _storage_spec(session, use)})
    scope = session.scope
    with (
        stdout_kept_clean(),
        Memory.open(settings, plugins=session.plugins, user=scope.user, agent=scope.agent) as memory,
    ):
        yield memory


@contextlib.contextmanager
def opened_storage(session: Session, use: Use) -> Iterator[Storage]:
    """Like `opened`, but only the storage: for work that needs no embedder."""
    spec = _storage_spec(session, use)
    with stdout_kept_clean(), session.plugins.build("storage", spec, data_dir=session.settings.data_dir) as storage:
        yield cast(Storage, storage)


class StoragePlace(NamedTuple):
    """Where the store of the settings is.

    Attributes:
        path: its file or folder, whether it is there or not; None for a store that has none.
        option: the option that names it.
        can_be_read_only: True if it can be opened for reading only.
    """

    path: Path | None
    option: str
    can_be_read_only: bool


def storage_place(session: Session) -> StoragePlace:
    """Find out, from the options of its class, where the store is; nothing is opened."""
    spec = session.settings.storage
    given = {name: value for name, value in spec.items() if name != "use"}
    with stdout_kept_clean():
        options = Options(session.plugins.find("storage", spec["use"]).cls)
        checked = options.check(given, f"storage {spec['use']!r}", session.settings.data_dir)
    option = next((each.name for each in options.declared if each.is_path and each.name in checked), "")
    can_be_read_only = any(each.name == "read_only" for each in options.declared)
    return StoragePlace(Path(checked[option]) if option else None, option, can_be_read_only)


def _storage_spec(session: Session, use: Use) -> dict[str, Any]:
    place = storage_place(session)
    if use != "create" and place.path is not None and not place.path.exists():
        raise NotFoundError(
            f"there is no memory at {place.path}; `nanomem init` or `nanomem add` makes one, --vault names another",
            id=str(place.path),
        )
    read_only = place.can_be_read_only and (use == "read" or (use == "ask" and not _writable(place.path)))
    return {**session.settings.storage, **({"read_only": True} if read_only else {})}


def _writable(path: Path | None) -> bool:
    return path is not None and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


@contextlib.contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Send what is printed to stderr, and the library's warnings as messages."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        warn(str(message))

    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.filterwarnings("always", category=RuntimeWarning)
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show how far long work is, on stderr, and only on a terminal; gives a function of (done, of how many)."""
    out = stderr_console()
    if not out.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task(title, total=None)

        def show(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)

        yield show
