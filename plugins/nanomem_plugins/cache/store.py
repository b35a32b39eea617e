"""Embeddings in an SQLite file.

SQLite makes it safe with several processes and after a crash. A vector is found by the embedder's id, its width,
whether it is that of a question, and a digest of the text (128 bits of BLAKE2b); no text stands in the file. Each has a
checksum. What is kept is derived: a file that turns out to be damaged is replaced, and whatever hinders reading or
writing it costs time, not an answer.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import FormatError, StorageError
from nanomem_core.fileio import atomic
from nanomem_core.fileio.locks import Lock

__all__ = ["EmbeddingCache", "Space"]

Row = npt.NDArray[np.float32]
Result = TypeVar("Result")

_APPLICATION = 0x6E6D656D
"""The letters "nmem", which SQLite keeps at byte 68 of the file."""

_MAGIC = b"SQLite format 3\0"
_VERSION = 1
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS space (
    id INTEGER PRIMARY KEY, embedder TEXT NOT NULL, dim INTEGER NOT NULL, UNIQUE (embedder, dim)
);
CREATE TABLE IF NOT EXISTS vector (
    id INTEGER PRIMARY KEY, space INTEGER NOT NULL, question INTEGER NOT NULL, digest BLOB NOT NULL,
    used INTEGER NOT NULL, crc INTEGER NOT NULL, row BLOB NOT NULL, UNIQUE (space, question, digest)
);
CREATE INDEX IF NOT EXISTS vector_used ON vector (used);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
COMMIT;
"""

_AT_ONCE = 256
"""Vectors in one statement, and in one commit."""

_FILLED_TO = 0.9
"""Part of the limit that is still in use after making room, so that not every commit has to."""

_PATIENCE = 5.0
"""Seconds to wait for another process that writes."""

_DAY = 86_400
"""How exactly it is known when a vector was used last: an exact time would make every look-up a write."""

_log = logging.getLogger("nanomem")

_inherited: list[sqlite3.Connection] = []
"""Those of parent processes: kept, since letting go of one would close it."""


class Space(NamedTuple):
    """Vectors that belong together: of one embedder and width, of questions or of what is stored."""

    embedder: str
    dim: int
    questions: bool


class EmbeddingCache:
    """Vectors by text, in the file `path` of about `limit` bytes at most. Opened when it is first used.

    May be used by several threads, and after a fork.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.limit = limit
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._told = False

    def find(self, space: Space, texts: Sequence[str]) -> dict[str, Row]:
        """The vectors of those of `texts` that are kept.

        Raises:
            FormatError: the file is no such cache.
        """
        return self._tried(lambda db: self._found(db, space, texts), {})

    def keep(self, space: Space, vectors: Mapping[str, Row]) -> None:
        """Keep vectors by text, and make room for them.

        Raises:
            FormatError: the file is no such cache.
        """
        self._tried(lambda db: self._kept(db, space, vectors), None)

    def stats(self) -> dict[str, Any]:
        """What is kept: ``path``, ``bytes``, ``limit``, ``vectors``, and ``spaces`` with the number of each.

        Raises:
            FormatError: the file is no such cache.
            StorageError: the file can't be used.
        """
        nothing: list[dict[str, Any]] = []
        size, spaces = self._asked(_counted, (0, nothing))
        return {
            "path": str(self.path),
            "bytes": size,
            "limit": self.limit,
            "vectors": sum(each["vectors"] for each in spaces),
            "spaces": spaces,
        }

    def clear(self) -> int:
        """Forget all vectors and give back the room; returns how many there were.

        Raises:
            FormatError: the file is no such cache.
            StorageError: the file can't be used.
        """
        return self._asked(_cleared, 0)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        with self._lock:
            self._disconnect()

    # What is done in the file.

    def _found(self, db: sqlite3.Connection, space: Space, texts: Sequence[str]) -> dict[str, Row]:
        number = _number(db, space)
        if number is None:
            return {}
        by_digest = {_digest(text): text for text in texts}
        today = int(time.time() // _DAY)
        found: dict[str, Row] = {}
        stale: list[int] = []
        for digests in _portions(list(by_digest)):
            marks = ",".join("?" * len(digests))
            for id, digest, used, crc, row in db.execute(
                "SELECT id, digest, used, crc, row FROM vector "
                f"WHERE space = ? AND question = ? AND digest IN ({marks})",
                (number, space.questions, *digests),
            ):
                if len(row) == 4 * space.dim and zlib.crc32(row) == crc:
                    found[by_digest[digest]] = np.frombuffer(row, "<f4").astype(np.float32)
                    if used != today:
                        stale.append(id)
        for ids in _portions(stale):
            db.execute(f"UPDATE vector SET used = ? WHERE id IN ({','.join('?' * len(ids))})", (today, *ids))
        return found

    def _kept(self, db: sqlite3.Connection, space: Space, vectors: Mapping[str, Row]) -> None:
        today = int(time.time() // _DAY)
        for texts in _portions(list(vectors)):
            db.execute("BEGIN IMMEDIATE")
            try:
                db.execute("INSERT OR IGNORE INTO space (embedder, dim) VALUES (?, ?)", space[:2])
                number = _number(db, space)
                packed = [(_digest(text), np.asarray(vectors[text], "<f4").tobytes()) for text in texts]
                db.executemany(
                    "INSERT OR REPLACE INTO vector (space, question, digest, used, crc, row) VALUES (?, ?, ?, ?, ?, ?)",
                    [(number, space.questions, digest, today, zlib.crc32(row), row) for digest, row in packed],
                )
                self._make_room(db)
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise

    def _make_room(self, db: sqlite3.Connection) -> None:
        size = _size(db)
        if size > self.limit:
            [count] = db.execute("SELECT count(*) FROM vector").fetchone()
            surplus = count - int(count * _FILLED_TO * self.limit / size)
            db.execute("DELETE FROM vector WHERE id IN (SELECT id FROM vector ORDER BY used, id LIMIT ?)", (surplus,))

    # The file itself.

    def _tried(self, work: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        """What `work` gives, or `otherwise` where the file can't be used, which is told once."""
        with self._lock:
            try:
                return work(self._opened())
            except FormatError:
                raise
            except (sqlite3.Error, OSError) as error:
                damaged = self._begun_anew(error)
                if damaged or not self._told:
                    what = "is damaged and begun anew" if damaged else "can't be used, so texts are embedded"
                    _log.warning("the cache of embeddings %s %s: %s", self.path, what, error)
                self._told |= not damaged
                return otherwise

    def _asked(self, work: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        """What `work` gives, or `otherwise` where there is no file; that it can't be used is an error."""
        with self._lock:
            try:
                return work(self._opened()) if self.path.exists() else otherwise
            except sqlite3.Error as error:
                raise StorageError(
                    f"the cache of embeddings {self.path} can't be used: {error}. It holds nothing that can't be "
                    "computed again: delete the file if this stays so"
                ) from error

    def _opened(self) -> sqlite3.Connection:
        # A connection must not be used by a forked child, nor closed by it, which would end the parent's locks.
        if self._connection is None or self._process != os.getpid():
            if self._connection is not None:
                _inherited.append(self._connection)
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with Lock(f"{self.path}.lock", _PATIENCE):
                self._connection = self._connected()
            self._process = os.getpid()
        return self._connection

    def _connected(self) -> sqlite3.Connection:
        # SQLite gives the files beside it the mode of this one.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        db = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            try:
                application, version = (_pragma(db, name) for name in ("application_id", "user_version"))
                [tables] = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError) or self._is_ours():
                    raise
                raise self._foreign() from error
            if tables and (application, version) != (_APPLICATION, _VERSION):
                raise self._foreign()
            db.execute("PRAGMA journal_mode = WAL")
            # A loss of power may take what was kept last, which can be computed again; the file stays whole.
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA secure_delete = ON")
            if not tables:
                db.executescript(_SCHEMA)
                # So that the file itself tells what it is.
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except BaseException:
            db.close()
            raise
        return db

    def _foreign(self) -> FormatError:
        return FormatError(
            f"{self.path}: expected a cache of embeddings of version {_VERSION}; found another kind of file. It "
            "was left as it is: name another path in plugins.options.cache"
        )

    def _begun_anew(self, error: Exception) -> bool:
        """Remove the file if `error` says that it is damaged, and it is ours; True if so."""
        if not isinstance(error, sqlite3.DatabaseError) or isinstance(error, sqlite3.OperationalError):
            return False
        self._disconnect()
        if not self._is_ours():
            return False
        for suffix in ("", "-wal", "-shm"):
            atomic.remove(Path(f"{self.path}{suffix}"))
        return True

    def _is_ours(self) -> bool:
        with self.path.open("rb") as file:
            head = file.read(72)
        return head[:16] == _MAGIC and int.from_bytes(head[68:], "big") == _APPLICATION

    def _disconnect(self) -> None:
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
        self._connection = None


def _number(db: sqlite3.Connection, space: Space) -> int | None:
    found = db.execute("SELECT id FROM space WHERE embedder = ? AND dim = ?", space[:2]).fetchone()
    return None if found is None else int(found[0])


def _counted(db: sqlite3.Connection) -> tuple[int, list[dict[str, Any]]]:
    rows = db.execute(
        "SELECT embedder, dim, count(vector.id) FROM space JOIN vector ON vector.space = space.id "
        "GROUP BY space.id ORDER BY embedder, dim"
    )
    return _size(db), [{"embedder": embedder, "dim": dim, "vectors": count} for embedder, dim, count in rows]


def _cleared(db: sqlite3.Connection) -> int:
    count = db.execute("DELETE FROM vector").rowcount
    db.execute("DELETE FROM space")
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return count


def _size(db: sqlite3.Connection) -> int:
    """Bytes of the pages that are in use."""
    return (_pragma(db, "page_count") - _pragma(db, "freelist_count")) * _pragma(db, "page_size")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    [value] = db.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _portions(items: list[Any]) -> Iterator[list[Any]]:
    return (items[first : first + _AT_ONCE] for first in range(0, len(items), _AT_ONCE))


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
