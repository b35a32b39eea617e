"""A redo journal: one commit of several files is all or nothing, and costs one fsync.

A commit is appended to the journal as one checksummed entry and forced to disk; that is the moment it stands. Then the
files are written, without an fsync of their own. Whoever comes next after a crash finds the entry and writes what is
missing: of the last entry, or of all if the system was started anew since and power may have been lost. Now and then
the files are forced to disk too (`Journal.settle`), and the journal begins anew.

Readers take no lock. `Journal.follow` gives them the entries since they last looked, and `Journal.load` the files as
they are after the last entry, whether or not it has reached them.

The format is documented in ``docs/reference/formats/journal.md``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CorruptionError, InputError, StorageError
from . import atomic, boots
from .journal_format import ENTRY, MARK, Header, decode_entries, encode_entry
from .names import confined
from .syncing import folders_above, sync_file, sync_files
from .writes import Append, Entry, Remove, Replace, Write, continues, digest, expected

__all__ = ["Ahead", "Append", "Entry", "Journal", "Remove", "Replace", "Write"]

_BINARY = getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


_ROUNDS, _FEW = 4, 8
"""How often `Journal.sync_ahead` looks for new entries, and how many it leaves to `Journal.settle`."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was forced to disk of a generation of the journal: the files of its first `entries`, but for `unsure`."""

    generation: bytes
    entries: int
    unsure: frozenset[str]


class Journal:
    """The journal ``<folder>/journal`` of files below `root`.

    Not safe for threads: the store guards it. `recover`, `commit` and `settle` are called under the lock that all
    writers of these files share; the other methods need none.

    Args:
        max_bytes, max_entries: where the journal is longer after a commit, it is settled.

    Attributes:
        path: the journal file; there is none before the first commit.
        head: head of the last entry seen, or that from which the journal began.
        entries: the entries seen of the present generation.
        gaps: offset and length of damaged places between them. Unless power was lost meanwhile, the files hold what was
            written there.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        root: str | os.PathLike[str],
        *,
        max_bytes: int = 1 << 18,
        max_entries: int = 256,
    ) -> None:
        self.path = os.path.join(os.fspath(folder), "journal")
        self.root = os.fspath(root)
        self.max_bytes = max_bytes
        self.max_entries = max_entries
        self._looked = False
        self._checked = False
        self._unsure: set[str] = set()
        self._begin(None)

    def _begin(self, header: Header | None) -> None:
        self._header = header
        self.head = 0 if header is None else header.base
        self.entries: list[Entry] = []
        self._history: dict[str, list[tuple[Write, str | None]]] = {}
        self._ends: list[int] = []
        self._last = b""
        self._last_at = 0
        self._finished = True
        self.gaps: list[tuple[int, int]] = []

    @property
    def origin(self) -> str:
        """A text that stays the same until the journal is deleted, and is never the same again; empty without one."""
        return "" if self._header is None else self._header.origin.hex()

    @property
    def size(self) -> int:
        """Bytes of the journal that were seen."""
        return self._ends[-1] if self._ends else 0 if self._header is None else Header.size

    # Reading.

    def follow(self, known: Journal | None = None) -> list[Entry] | None:
        """The entries since the last call. None if they can't be told (always in the first call): then `load`.

        Args:
            known: another object for the same file, which nobody uses meanwhile: what it has read is not read again.

        Raises:
            StorageError: the journal can't be read.
        """
        looked, self._looked = self._looked, True
        try:
            with self._opened(os.O_RDONLY) as descriptor:
                if descriptor is None:
                    is_known = looked and self._header is None
                    self._begin(None)
                    return [] if is_known else None
                header = Header.decode(_read(descriptor, 0, Header.size), self.path)
                continued = looked and self._continues(header, descriptor)
                if self._header is None or header.generation != self._header.generation or not continued:
                    self._begin(header)
                fresh = [] if known is None else self._borrow(known, descriptor)
                fresh += self._absorb(_read(descriptor, self.size), header.generation)
                self._finished = not self.entries or self._is_marked(descriptor)
                return fresh if continued else None
        except OSError as error:
            self._looked = False
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"{self.path}: the journal can't be read: {error}") from error

    def _continues(self, header: Header, descriptor: int) -> bool:
        """True if what was seen so far is still the beginning of what there is."""
        if self._header is None:
            return False
        if header.generation != self._header.generation:
            return (header.previous, header.previous_end) == (self._header.generation, self.size)
        # Whoever failed to force an entry to disk took it back, though it could be seen for a moment.
        return _read(descriptor, self._last_at, len(self._last)) == self._last

    def _borrow(self, known: Journal, descriptor: int) -> list[Entry]:
        """Take over the entries that `known` has seen and this object has not."""
        count = len(self.entries)
        if known._header != self._header or known.gaps or known._ends[count - 1 : count] != self._ends[-1:]:
            return []
        if _read(descriptor, known._last_at, len(known._last)) != known._last:
            return []
        fresh = known.entries[count:]
        for entry, end in zip(fresh, known._ends[count:], strict=True):
            self._add(entry, end)
        self._last, self._last_at = known._last, known._last_at
        return fresh

    def _absorb(self, data: bytes, generation: bytes) -> list[Entry]:
        """Take over the entries in `data`, which begins where the last one seen ends."""
        fresh, start = [], self.size
        for position, length, entry in decode_entries(data, generation, start, self.path):
            if start + position > self.size:
                self.gaps.append((self.size, start + position - self.size))
            self._take(entry, data[position : position + ENTRY.size], start + position, length)
            fresh.append(entry)
        return fresh

    def _take(self, entry: Entry, start: bytes, offset: int, length: int) -> None:
        # The mark of an entry that is finished changes, and is left out of what must stay the same.
        self._last, self._last_at = start[8:], offset + 8
        self._add(entry, offset + length)

    def _add(self, entry: Entry, end: int) -> None:
        self._ends.append(end)
        self.head = entry.head
        self.entries.append(entry)
        for write, before in zip(entry.writes, entry.before, strict=True):
            self._history.setdefault(write.path, []).append((write, before))

    def ahead(self) -> dict[str, bool]:
        """The paths whose files may not hold what the entries seen have written, each with whether it is to exist."""
        return {path: not isinstance(history[-1][0], Remove) for path, history in self._ahead().items()}

    def in_flight(self) -> set[str]:
        """The paths that the last entry seen writes, if its writer had not come to the end."""
        return set() if self._finished else {write.path for write in self.entries[-1].writes}

    def read(self, path: str) -> bytes | None:
        """One file as it is after the entries seen, or later; None where there is none."""
        content = atomic.read(self._target(path))
        history = self._ahead().get(path)
        return content if history is None else expected(history, content)

    def load(self, find: Callable[[], Iterable[str]]) -> dict[str, bytes]:
        """The files at `head` that `find` names or entries have written; those that don't exist are left out.

        `find` is called anew if the journal begins anew meanwhile. Entries up to `head` count as followed. What others
        do to a file after the first call, be it to delete it, is seen.
        """
        while True:
            self.follow()
            begun = self._header
            upto = self._reached()
            contents = {path: atomic.read(self._target(path)) for path in {*find(), *self._history_from(upto)}}
            self.follow()
            ahead = self._history_from(upto)
            if self._header == begun and contents.keys() >= ahead.keys():
                break
        # A file is written after its entry, so the entries followed by now cover all that was read.
        for path, history in ahead.items():
            contents[path] = expected(history, contents[path])
        return {path: content for path, content in contents.items() if content is not None}

    def _reached(self) -> int:
        """How many entries have surely reached their files."""
        if self._header is not None and self._may_have_lost_power(self._header):
            return 0
        # Whoever writes one has finished the one before it.
        return max(len(self.entries) - (not self._finished), 0)

    def _may_have_lost_power(self, header: Header) -> bool:
        """True if files may have lost what was written, since the beginning of the journal."""
        return not self._checked and (header.boot == boots.UNKNOWN or header.boot != boots.boot_id())

    def _ahead(self) -> Mapping[str, Sequence[tuple[Write, str | None]]]:
        reached = self._reached()
        return self._history if reached == 0 else self._history_from(reached)

    def _history_from(self, index: int) -> dict[str, list[tuple[Write, str | None]]]:
        """For each path the writes of the entries from number `index` on."""
        found: dict[str, list[tuple[Write, str | None]]] = {}
        for entry in self.entries[index:]:
            for write, before in zip(entry.writes, entry.before, strict=True):
                found.setdefault(write.path, []).append((write, before))
        return found

    # Writing.

    def recover(self) -> list[Entry] | None:
        """Finish, under the lock of all writers, what others began; returns what `follow` does.

        It looks at the files of a last entry whose writer did not come to the end; in the first call also at every file
        that an entry has written, if power may have been lost since.

        Raises:
            StorageError: it can't be finished; it is tried again by the next call.
        """
        fresh = self.follow()
        with atomic.disk_errors(f"{self.path}: an unfinished commit can't be finished"):
            self._finish()
        self._checked = True
        if self._header is not None and boots.UNKNOWN != self._header.boot != boots.boot_id():
            # Else everybody's first call would look at every file.
            with contextlib.suppress(OSError):
                self.settle()
        return fresh

    def _finish(self) -> None:
        if self._header is None:
            return
        with self._opened(os.O_RDWR) as descriptor:
            if descriptor is None:
                raise StorageError(f"{self.path}: somebody removed the journal; try again")
            if os.fstat(descriptor).st_size > self.size:
                os.ftruncate(descriptor, self.size)
            if not self._checked:
                atomic.remove_leftovers(self.path)
            if self._may_have_lost_power(self._header):
                self._mend(list(self._history))
            elif not self._finished:
                self._mend([write.path for write in self.entries[-1].writes])
            else:
                return
            self._mark(descriptor)

    def commit(self, head: int, writes: Sequence[Write], note: Any = None) -> None:
        """Make `writes` durable, all or none, with at most one for each path; under the lock, after `recover`.

        Once the entry is on disk the commit stands: if a file can't be written then, that is left to `recover`, and
        `load` shows the file as it will be.

        Raises:
            StorageError: nothing was written.
        """
        if len({write.path for write in writes}) != len(writes):
            raise InputError("writes: expected at most one for each path; found two")
        if not self._checked:
            self.recover()
        with atomic.disk_errors(f"{self.path}: nothing was written"):
            header = self._header or self._create()
            before = tuple(self._prepare(write) for write in writes)
        entry = Entry(head, note, tuple(writes), before)
        with self._opened(os.O_RDWR) as descriptor:
            if descriptor is None:
                raise StorageError(f"{self.path}: somebody removed the journal; nothing was written")
            offset = self.size
            data = encode_entry(entry, header.generation, offset)
            try:
                atomic.write_all(descriptor, data, offset)
                atomic.sync(descriptor)
            except OSError as error:
                raise self._taken_back(descriptor, offset, error) from error
            self._take(entry, data[: ENTRY.size], offset, len(data))
            self._finished = False
            # From here on the commit stands, and whoever is told of an error would write it twice.
            with contextlib.suppress(OSError):
                for write in writes:
                    self._apply(write)
                self._mark(descriptor)
        if self.size > self.max_bytes or len(self.entries) > self.max_entries:
            with contextlib.suppress(OSError):
                self.settle()

    def settle(self, ahead: Ahead | None = None) -> None:
        """Force the files to disk and begin an empty journal, under the lock and after `recover`.

        Afterwards the journal holds no byte of what was committed.

        Args:
            ahead: what `sync_ahead` has already done.

        Raises:
            OSError: as `os` raised it; the journal is as it was.
        """
        if self._header is None or (not self.entries and not self.gaps):
            return
        self._finish()
        done = 0
        if ahead is not None and ahead.generation == self._header.generation:
            done = ahead.entries
            self._unsure |= ahead.unsure
        self._sync({**self._history_from(done), **dict.fromkeys(self._unsure)})
        old = self._header
        self._write_header(Header(old.origin, os.urandom(16), self.head, old.generation, self.size, boots.boot_id()))
        self._unsure.clear()

    def sync_ahead(self) -> Ahead | None:
        """Do most of what `settle` has to do, without the lock, so that nobody waits meanwhile.

        Raises:
            StorageError: the journal can't be read.
        """
        done, generation = 0, b""
        for _ in range(_ROUNDS):
            self.follow()
            if self._header is None or generation not in (b"", self._header.generation):
                return None  # somebody settled it
            generation = self._header.generation
            # What the last entry writes may not be there yet.
            upto = len(self.entries) - (not self._finished)
            if upto - done < _FEW:
                break
            try:
                self._sync(dict.fromkeys(write.path for entry in self.entries[done:upto] for write in entry.writes))
            except OSError:
                break
            done = upto
        return Ahead(generation, done, frozenset(self._unsure))

    def restart(self, head: int) -> None:
        """Begin a journal that knows nothing of the present one, which may be damaged, at `head`; under the lock."""
        atomic.make_directory(os.path.dirname(self.path))
        self._write_header(Header(os.urandom(16), os.urandom(16), head, boot=boots.boot_id()))
        self._looked = self._checked = True

    # Steps.

    def _sync(self, paths: Iterable[str]) -> None:
        """Force files and the folders above them to disk."""
        sync_files({path: self._target(path) for path in paths}, self.root, self._unsure)

    @contextlib.contextmanager
    def _opened(self, flags: int) -> Iterator[int | None]:
        try:
            descriptor = os.open(self.path, flags | _BINARY | _NO_LINK)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _create(self) -> Header:
        atomic.make_directory(os.path.dirname(self.path))
        header = Header(os.urandom(16), os.urandom(16), 0, boot=boots.boot_id())
        self._write_header(header)
        self._looked = True
        # Somebody may have been killed between making a directory and forcing its name to disk.
        for folder in folders_above(Path(self.path), self.root):
            atomic.sync_directory(folder)
        return header

    def _write_header(self, header: Header) -> None:
        atomic.write(self.path, header.encode())
        self._begin(header)

    def _target(self, path: str) -> Path:
        try:
            return confined(self.root, *path.split("/"))
        except InputError as error:
            raise CorruptionError(self.path, None, f"an entry names a path that no store gives: {error}") from error

    def _prepare(self, write: Write) -> str | None:
        """Do what must be done to the file before the commit; returns the digest of its content."""
        target = self._target(write.path)
        if not isinstance(write, Append):
            return digest(atomic.read(target))
        try:
            size = os.stat(target).st_size
        except FileNotFoundError:
            size = 0
        if size < write.offset:
            raise StorageError(f"{target}: expected {write.offset} bytes; found {size}; nothing was written. Try again")
        if size > write.offset:
            os.truncate(target, write.offset)
        elif continues(self._history.get(write.path, ()), write):
            return None
        # Whatever `data` is to follow must not be lost when `data` is not.
        sync_file(target)
        return None

    def _taken_back(self, descriptor: int, offset: int, cause: OSError) -> StorageError:
        """Remove what was written of an entry that could not be forced to disk."""
        try:
            os.ftruncate(descriptor, offset)
        except OSError:
            try:
                atomic.write_all(descriptor, bytes(ENTRY.size), offset)
            except OSError as error:
                return StorageError(
                    f"{self.path}: the disk failed ({cause}), and the commit could not be taken back ({error}): "
                    f"read again to see whether it stands"
                )
        return StorageError(f"{self.path}: the commit can't be written: {cause}; nothing was written")

    def _apply(self, write: Write) -> None:
        target = self._target(write.path)
        if isinstance(write, Remove):
            atomic.remove(target, durable=False)
            return
        atomic.make_directory(target.parent)
        if isinstance(write, Replace):
            atomic.write(target, write.data, durable=False)
            return
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | _BINARY | _NO_LINK, 0o600)
        try:
            if os.fstat(descriptor).st_size > write.offset:
                os.ftruncate(descriptor, write.offset)
            atomic.write_all(descriptor, write.data, write.offset)
        finally:
            os.close(descriptor)

    def _mend(self, paths: Sequence[str]) -> None:
        """Write those of `paths` whose files are not what they should be."""
        targets = [self._target(path) for path in paths]
        atomic.remove_leftovers(*targets)
        for path, target in zip(paths, targets, strict=True):
            found = atomic.read(target)
            wanted = expected(self._history[path], found)
            if wanted == found:
                continue
            if wanted is None:
                self._apply(Remove(path))
            elif found is not None and wanted.startswith(found):
                self._apply(Append(path, len(found), wanted[len(found) :]))
            else:
                # Forced to disk, since entries may not hold all that the file did, and so could not mend it again.
                atomic.make_directory(target.parent)
                atomic.write(target, wanted)

    def _is_marked(self, descriptor: int) -> bool:
        return _read(descriptor, self._last_at - MARK.size, MARK.size) == MARK.pack(1)

    def _mark(self, descriptor: int) -> None:
        """Note that the last entry has reached its files. A loss of power may keep the note and lose the files."""
        if self.entries:
            atomic.write_all(descriptor, MARK.pack(1), self._last_at - MARK.size)
            self._finished = True


def _read(descriptor: int, offset: int, length: int | None = None) -> bytes:
    """`length` bytes at `offset`, or all to the end; fewer where the file ends."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    rest = os.fstat(descriptor).st_size - offset if length is None else length
    parts = []
    while rest > 0 and (part := os.read(descriptor, min(rest, 1 << 24))):
        parts.append(part)
        rest -= len(part)
    return b"".join(parts)
