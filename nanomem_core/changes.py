"""What a write means: changes, their preconditions, and the plan a store makes durable.

A store never decides anything. `plan_commit` reads what it needs through a `Reader` (a transaction that holds the
store's lock), checks every precondition, numbers versions and revisions, and returns a `Plan`; the store then makes
the plan durable, wholly or not at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import ConflictError, InputError
from .records import Record, Scope, check_name, check_record

__all__ = [
    "Change",
    "Commit",
    "Delete",
    "Plan",
    "Put",
    "Reader",
    "Vectors",
    "check_matrices",
    "check_rows",
    "check_vectors",
    "plan_commit",
]

Vectors = npt.NDArray[np.float32]
"""Float32, C-contiguous, shape (m, dim): one unit row for each passage of a record's text."""


@dataclass(frozen=True, slots=True, eq=False)
class Put:
    """Write `record` under its id.

    Attributes:
        expect: None writes whatever is there; 0 demands that the id is absent; n demands that version n is stored.
        vectors: the embedding of each passage of the text, or None for a store that derives them.
    """

    record: Record
    expect: int | None = None
    vectors: Vectors | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the record with this id; an absent id is no error unless `expect` demands a version."""

    id: str
    expect: int | None = None


Change = Put | Delete


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit did: the explicit difference between `head` - 1 and `head`.

    Attributes:
        records: the records as they are now stored, with their versions and revisions.
        deleted: ids that are gone.
    """

    scope: Scope
    head: int
    records: tuple[Record, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A checked commit, ready to be made durable.

    Attributes:
        head: the head after the commit.
        puts: final records with vectors; an id occurs once in `puts` and `deletes` together.
        deletes: ids to remove; each of them exists.
    """

    scope: Scope
    head: int
    puts: tuple[Put, ...]
    deletes: tuple[str, ...]

    @property
    def commit(self) -> Commit:
        return Commit(self.scope, self.head, tuple(put.record for put in self.puts), self.deletes)

    @property
    def empty(self) -> bool:
        return not self.puts and not self.deletes

    def check_scope(self, scope: Scope) -> None:
        """For a store, before it applies the plan in a transaction of `scope`.

        Raises:
            InputError: the plan is for another scope.
        """
        if self.scope != scope:
            raise InputError(f"plan: expected one for the scope {scope}; found {self.scope}")


class Reader(Protocol):
    """What planning may read, at one head."""

    @property
    def head(self) -> int: ...

    def get(self, id: str) -> Record | None: ...

    def tip(self, chain: str) -> int:
        """Highest revision number stored in the chain, 0 for none."""
        ...


def plan_commit(reader: Reader, scope: Scope, changes: Iterable[Change], expect_head: int | None = None) -> Plan:
    """Check and number `changes` against `reader`; later changes to one id see the earlier ones.

    A record that is new to its chain gets the chain's next revision number, unless it brings one; a record that stays
    in its chain keeps its number. A purged id counts as absent, and so does one that was deleted by an earlier change;
    its version counts on.

    Raises:
        ConflictError: a precondition does not hold.
        InputError: a record is malformed.
    """
    if expect_head is not None and expect_head != reader.head:
        raise ConflictError(
            f"scope {scope}: expected head {expect_head}, found {reader.head}; read again and recompute",
            expected=expect_head,
            found=reader.head,
        )
    final: dict[str, Put | None] = {}
    stored: dict[str, Record | None] = {}
    tips: dict[str, int] = {}
    for change in changes:
        id = check_record(change.record).id if isinstance(change, Put) else check_name(change.id, "id")
        if id in final:
            pending = final[id]
            before = pending.record if pending is not None else None
        else:
            before = stored[id] = reader.get(id)
        if change.expect is not None:
            _check_expectation(id, change.expect, before)
        if isinstance(change, Delete):
            final[id] = None
            continue
        record = _numbered(reader, change.record, before, stored[id], tips)
        final[id] = change if record is change.record else Put(record, change.expect, change.vectors)
    puts = tuple(put for put in final.values() if put is not None)
    deletes = tuple(id for id, put in final.items() if put is None and stored[id] is not None)
    return Plan(scope, reader.head + 1, puts, deletes)


def _check_expectation(id: str, expect: int, before: Record | None) -> None:
    if isinstance(expect, bool) or not isinstance(expect, int) or expect < 0:
        raise InputError(f"expect: expected None, 0 or a version; found {expect!r}")
    found = 0 if before is None or before.kind == "purged" else before.version
    if expect == found:
        return
    if expect == 0:
        message = f"id {id!r} already exists (version {found}); use update, or another id"
    elif found == 0:
        message = f"id {id!r}: expected version {expect}, but there is no such record"
    else:
        message = f"id {id!r}: expected version {expect}, found {found}; read again and retry"
    raise ConflictError(message, id=id, expected=expect, found=found)


def _numbered(
    reader: Reader, record: Record, before: Record | None, stored: Record | None, tips: dict[str, int]
) -> Record:
    if before is not None:
        version = before.version + 1
    elif stored is not None:
        # Deleted and put again in one commit: to a store it replaces what is there.
        version = max(record.version, stored.version + 1)
    else:
        # A record that comes from elsewhere (an import) keeps the version it had there.
        version = record.version or 1
    chain = record.chain
    if chain is None:
        return record.numbered(version, record.revision or 1)
    if chain not in tips:
        tips[chain] = reader.tip(chain)
    if before is not None and before.chain == chain:
        revision = record.revision or before.revision
    else:
        revision = record.revision or tips[chain] + 1
    tips[chain] = max(tips[chain], revision)
    return record.numbered(version, revision)


def check_vectors(vectors: Any, dim: int, what: str = "vectors") -> Vectors:
    """`vectors` as float32 rows of unit length, shape (m, `dim`); a single vector becomes one row.

    Raises:
        InputError: another shape, no row, a NaN, an infinity or a zero vector.
    """
    if isinstance(vectors, np.ndarray) and vectors.dtype == np.float32:
        rows = np.ascontiguousarray(vectors)
    else:
        try:
            with np.errstate(over="ignore"):  # what float32 can't hold becomes an infinity, which is refused below
                rows = np.ascontiguousarray(vectors, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise InputError(f"{what}: expected rows of {dim} numbers; {error}") from None
    if rows.ndim == 1:
        rows = rows[np.newaxis]
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] != dim:
        raise InputError(f"{what}: expected shape (m, {dim}) with m ≥ 1; found {np.shape(vectors)}")
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    off = np.abs(squares - 1.0).max() if len(squares) > 1 else abs(squares.item() - 1.0)
    if off <= 2e-6:  # unit length to one in a million; no NaN and no infinity is
        return rows
    norms = np.sqrt(squares)
    if not np.isfinite(norms).all():  # no sum of finite squares of float32 is too large for float64
        raise InputError(f"{what}: every number must be finite; found NaN or infinity")
    if not norms.all():
        raise InputError(f"{what}: row {int(np.argmin(norms))} is a zero vector, which has no direction")
    return np.ascontiguousarray(rows / norms[:, np.newaxis], dtype=np.float32)


def check_matrices(given: Sequence[Any], dim: int, name: Callable[[int], str]) -> list[Vectors]:
    """What `check_vectors` makes of each of `given`; `name` tells what number n is called.

    Checking many at once takes a fraction of the time of checking each.

    Raises:
        InputError: as `check_vectors` does, naming the first that is at fault.
    """
    rows, counts = check_rows(given, dim, name)
    if len(rows) == len(counts):
        return [rows[number : number + 1] for number in range(len(rows))]
    ends = list(itertools.accumulate(counts))
    return [rows[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def check_rows(given: Sequence[Any], dim: int, name: Callable[[int], str]) -> tuple[Vectors, list[int]]:
    """As `check_matrices`, but the rows of all in one matrix, and how many of them are of each."""
    if len(given) != 1:
        try:
            alike = _alike(given)
            if alike is not None:
                return check_vectors(alike.reshape(-1, alike.shape[-1]), dim), [alike.shape[1]] * len(alike)
            matrices = [_matrix(matrix) for matrix in given]
            counts = list(map(len, matrices))
            if all(counts):
                return check_vectors(np.concatenate(matrices), dim), counts
        except (TypeError, ValueError):  # InputError is one; the first at fault is looked for below
            pass
    matrices = [check_vectors(matrix, dim, name(number)) for number, matrix in enumerate(given)]
    rows = matrices[0] if len(matrices) == 1 else np.concatenate([np.empty((0, dim), np.float32), *matrices])
    return rows, list(map(len, matrices))


def _alike(given: Sequence[Any]) -> npt.NDArray[Any] | None:
    """All of `given` as one array (n, m, dim), or None if they are not as many vectors each."""
    try:
        rows = np.array(given)  # a fifth of the time of joining them
    except ValueError:
        return None
    if rows.ndim == 2:
        rows = rows[:, np.newaxis]
    return rows if rows.ndim == 3 and rows.size else None


def _matrix(vectors: Any) -> npt.NDArray[Any]:
    rows = vectors if isinstance(vectors, np.ndarray) else np.asarray(vectors)
    return rows if rows.ndim == 2 else rows[np.newaxis]
