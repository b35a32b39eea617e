"""What an arm is: one product, in the strongest configuration that is reasonable for the task."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..data import Material

__all__ = ["OPERATIONS", "PAGE", "Arm", "fact_id", "immediate"]

OPERATIONS = (
    "search",
    "search_filtered",
    "search_hybrid",
    "get",
    "add",
    "delete",
    "history",
    "history_asked",
    "changes",
    "volatility",
    "compact",
    "update",
    "list_all",
    "page",
    "checked_page",
)
"""Methods of an arm that are timed. Each takes a number: of a question, or the position of a record."""


PAGE = 20
"""Facts on a page."""


class Arm(ABC):
    """One product. An instance is one store in `folder`, used by one process.

    Record p of the store is text, vector, bucket and, if there are chains, entity p of the material. Products that are
    no more than an index store the vectors alone.

    A subclass implements `open`, `close`, `add_many`, and those of `OPERATIONS` that the product can do; the others
    stay away, and the arm is left out where they are measured.

    Attributes:
        settings: the configuration, in words for the report.
        exact: False for an approximate index.
        shared: several processes may use one store at once, and see what the others write.
        derived: endings of files that can be made again from the others.
    """

    settings: ClassVar[str]
    exact: ClassVar[bool] = True
    shared: ClassVar[bool] = False
    derived: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path, material: Material, threads: int) -> None:
        self.folder = folder
        self.material = material
        self.threads = threads

    @classmethod
    def operations(cls) -> list[str]:
        return [name for name in OPERATIONS if getattr(cls, name) is not getattr(Arm, name)]

    @abstractmethod
    def open(self) -> None:
        """Open the store, and make it if it is not there."""

    @abstractmethod
    def close(self) -> None:
        """Everything that was added is on disk afterwards."""

    @abstractmethod
    def add_many(self, positions: range) -> None:
        """Add these records in the product's way for many."""

    def stored(self) -> npt.NDArray[np.float32]:
        """The vectors as the store has them, one row for each position."""
        raise NotImplementedError

    def bytes_on_disk(self) -> tuple[int, int]:
        """Bytes of the store's files, and of those that are derived."""
        store = derived = 0
        for place, _, names in os.walk(self.folder):
            for name in names:
                size = os.stat(os.path.join(place, name)).st_size
                if name.endswith(self.derived) or place.endswith(self.derived):
                    derived += size
                else:
                    store += size
        return store, derived

    # Operations.

    def search(self, number: int) -> list[int]:
        """The positions of the `K` records that are most similar to question `number`, best first. A product that keeps
        texts also fetches theirs."""
        raise NotImplementedError

    def search_filtered(self, number: int) -> list[int]:
        """`search` among the records of one bucket."""
        raise NotImplementedError

    def search_hybrid(self, number: int) -> list[int]:
        """`search` by vector and by words together."""
        raise NotImplementedError

    def get(self, number: int) -> None:
        """Read a record by its id."""
        raise NotImplementedError

    def add(self, number: int) -> None:
        """Add a record; it is on disk when this returns."""
        raise NotImplementedError

    def delete(self, number: int) -> None:
        """Remove a record; it is gone from the disk's view when this returns."""
        raise NotImplementedError

    def history(self, number: int) -> None:
        """The values of the chain of record `number`."""
        raise NotImplementedError

    def history_asked(self, number: int) -> None:
        """The values of the chain that question `number` finds."""
        raise NotImplementedError

    def changes(self, number: int) -> None:
        """The last ten changes."""
        raise NotImplementedError

    def volatility(self, number: int) -> None:
        """How often each chain changes."""
        raise NotImplementedError

    def compact(self, number: int) -> None:
        """Give the space of removed records back to the disk."""
        raise NotImplementedError

    def update(self, number: int) -> None:
        """Give a record another text, which is on disk when this returns; the old one is kept."""
        raise NotImplementedError

    def list_all(self, number: int) -> None:
        """Read every record."""
        raise NotImplementedError

    def page(self, number: int) -> None:
        """Read the `PAGE` records that follow the first `number`."""
        raise NotImplementedError

    def checked_page(self, number: int) -> None:
        """`page`, after a look whether anything was changed by other means than the product."""
        raise NotImplementedError


def fact_id(position: int) -> str:
    """The id of a fact, in every store of facts."""
    return f"fact_{position}"


@contextmanager
def immediate(db: Any) -> Iterator[None]:
    """A transaction of SQLite. One that begins by reading could not wait for another writer later."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
