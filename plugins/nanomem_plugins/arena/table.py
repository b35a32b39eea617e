"""What is in an arena file, as tables: which row is whose, which are alive, and what the chains and scopes are.

Rows are numbered in the order in which they were written, over all scopes. The first of them come from the index,
mapped; those of the blocks that follow what the index covers are kept in memory, and become part of the next index.
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import CorruptionError
from nanomem_core.interfaces import VectorSpace
from nanomem_core.records import Record, Scope

from .blocks import Gap, walk
from .documents import decode_record, document_chain, document_ends, document_id, id_hash
from .entries import DECLARED, DELETED, ENDED, KIND, all_sound, block_rows, is_sound, packed_rows, unpacked_rows
from .format import BLOCK, HEADER, ROW, SPACE, BlockHeader, block_label
from .index import Index, save
from .log import VaultFile
from .rows import Numbers, Rows, columns_of
from .scopes import ChainNames, Chains, Damaged, Listener, ScopeState

__all__ = ["Table"]

_NEVER = (math.inf, math.inf)

_MANY = 16
"""Rows in a block from which on they are taken in by whole columns."""


class Table:
    """The state of one arena file up to `end`. Not thread-safe: the store's mutex guards it.

    Attributes:
        end: offset behind the last block that was taken in.
        next_seq: number of the next block.
        dead: rows that compaction would drop: deletions, and records that were deleted or replaced.
        synced: bytes of the file that some writer claims to be on disk.
        gaps: how many damaged stretches were skipped.
    """

    def __init__(self, file: VaultFile, index_path: str | None, report: Callable[[int, str], None]) -> None:
        self.file = file
        self._report = report
        self.end = HEADER
        self.next_seq = file.header.first_seq
        self.last_block = 0
        self.synced = 0
        self.space: VectorSpace | None = None
        self.dead = 0
        self.gaps = 0
        self.scopes: list[ScopeState] = []
        self.codes: dict[Scope, int] = {}
        self.damaged: dict[int, Damaged] = {}
        self.listeners: dict[int, Listener] = {}
        self._rows = Rows()
        self._unreported: list[tuple[int, str]] = []
        self._chains = Chains(self.scopes, self._rows)
        self.uncovered = 0
        if index_path is not None:
            index = Index.load(index_path)
            if index is not None and self._fits(index):
                self._adopt_index(index)
        self.absorb()

    # Taking in blocks.

    def absorb(self) -> None:
        """Take in the blocks that were appended since."""
        for found in walk(self.file, self.end, self.file.size()):
            if isinstance(found, Gap):
                self._skipped(found.offset, f"{found.end - found.offset} damaged bytes were skipped")
            else:
                start = found.rows_offset
                self._take(found, self.file.read(start, found.label_copy_offset + found.label_length - start))
            self.end = found.end
        # Only what was not written again since; each place is told of once.
        self._unreported += [(offset, f"{reason}; it was left out") for offset, reason in self.damaged.values()]
        # Not before: where warnings are errors, a report doesn't return.
        while self._unreported:
            self._report(*self._unreported.pop())

    def _skipped(self, offset: int, what: str) -> None:
        self.gaps += 1
        self._unreported.append((offset, what))

    def appended(self, header: BlockHeader, label: Sequence[str | int], block: bytes | bytearray) -> None:
        """Take in the block that was written at the end just now, without reading it again; once, if called again."""
        if header.offset == self.end:
            self._take_sound(header, label, memoryview(block)[header.rows_offset - header.offset :], checked=True)
            self.end = header.end

    def _take(self, header: BlockHeader, data: bytes) -> None:
        label = block_label(header, data)
        if label is not None:
            self._take_sound(header, label, memoryview(data), checked=False)
        else:
            self._count_block(header)
            self._skipped(header.label_offset, "both labels of a block are damaged; its records were skipped")

    def _count_block(self, header: BlockHeader) -> None:
        self.next_seq = header.seq + 1
        self.last_block = header.offset
        self.synced = max(self.synced, header.synced)

    def _take_sound(
        self, header: BlockHeader, label: Sequence[str | int], data: memoryview[int], *, checked: bool
    ) -> None:
        self._count_block(header)
        if header.type == SPACE:
            self.space = VectorSpace(*label)  # type: ignore[arg-type]
            return
        scope = Scope(*label)  # type: ignore[arg-type]
        code = self.codes.get(scope)
        if code is None:
            code = self.codes[scope] = len(self.scopes)
            self.scopes.append(ScopeState(scope))
        state = self.scopes[code]
        state.head = header.head
        first = len(self._rows)
        self._take_rows(state, code, header, data, checked)
        listener = self.listeners.get(code)
        if listener is not None and len(self._rows) > first:
            listener.appended(first, self._rows.since(first))

    def _take_rows(
        self, state: ScopeState, code: int, header: BlockHeader, data: memoryview[int], checked: bool
    ) -> None:
        """`checked`: the rows and documents were made in this process just now, so checksums tell nothing."""
        self.uncovered += header.rows
        if header.rows >= _MANY:
            rows = packed_rows(data, header.rows)
            plain = not (rows["what"] & (DELETED | ENDED)).any() and (rows["version"] == 1).all() and not self.damaged
            if plain and (checked or all_sound(rows, data)):
                self._take_plain(state, code, header, rows, data)
                return
        self._take_each(state, code, header, data, checked)

    def _take_plain(
        self, state: ScopeState, code: int, header: BlockHeader, rows: npt.NDArray[np.void], data: memoryview[int]
    ) -> None:
        """Take in rows that are sound and put what has no end for the first time, all together."""
        docs = bytes(data)
        starts = range(0, ROW * len(rows), ROW) + rows["to_doc"]
        chains = [
            self._chain(code, docs, start, revision)
            for start, revision in zip(starts.tolist(), rows["revision"].tolist(), strict=True)
        ]
        self._rows.append(rows["id_hash"].tolist(), columns_of(rows, header.rows_offset, code, chains))
        state.alive += len(rows)

    def _take_each(
        self, state: ScopeState, code: int, header: BlockHeader, data: memoryview[int], checked: bool
    ) -> None:
        # No two rows of a block are of one id, so it doesn't matter that deletions go before what is put.
        rows = list(unpacked_rows(data, header.rows))
        ends = range(ROW, ROW * len(rows) + 1, ROW)
        damaged = not checked and any(
            not is_sound(data[end - ROW : end], row[0], row[-1]) for end, row in zip(ends, rows, strict=True)
        )
        docs = bytes(data)
        if damaged:
            for place, found, doc in block_rows(header, docs):
                if isinstance(found, str):
                    self._take_damaged(state, place, found, doc)
        hashes: list[int] = []
        taken: list[tuple[object, ...]] = []
        for end, row in zip(ends, rows, strict=True):
            (
                what, revision, version, begin, told, birth, key,
                to_doc, length, to_vectors, doc_crc, vectors_crc, crc,
            ) = row  # fmt: skip
            if damaged and not is_sound(data[end - ROW : end], what, crc):
                continue
            if what & DELETED or version > 1:
                self._replace(key, birth)
            if self.damaged:
                self.damaged.pop(key, None)
            if what & DELETED:
                self.dead += 1
                continue
            start = end - ROW + to_doc
            place = header.rows_offset + end - ROW
            if not checked and zlib.crc32(data[start : start + length]) != doc_crc:
                self._note_damage(key, place + to_doc, "the text of a record is damaged")
                continue
            chain = self._chain(code, docs, start, revision)
            valid_to, closed_at = _NEVER
            if what & ENDED:
                valid_to, closed_at = document_ends(what, told, docs[start : start + length])
            hashes.append(key)
            taken.append((
                True, what & KIND, what & DECLARED, chain, revision, begin, valid_to, told, closed_at,
                code, version, birth, place, place - to_vectors, what >> 8, vectors_crc,
            ))  # fmt: skip
        if taken:
            self._rows.append(hashes, taken)
            state.alive += len(taken)

    def _chain(self, scope: int, docs: bytes, start: int, revision: int) -> int:
        """The code of the chain to which the document at `start` adds, -1 for none."""
        name = document_chain(docs, start)
        if name is None:
            return -1
        chain = self._chains.code(scope, name)
        self._chains.put(scope, chain, revision)
        return chain

    def _take_damaged(self, state: ScopeState, place: int, reason: str, doc: bytes) -> None:
        # Only the document is left to tell whose row it was; it is no more than the id if the row was a deletion.
        id = document_id(doc)
        if id is None:
            self._skipped(place, f"{reason}; it was left out")
            return
        number = id_hash(state.scope, id)
        for row in self._rows.alive(number):
            self._kill(row)
        if b"\0" in doc:
            self._note_damage(number, place, reason)

    def _note_damage(self, number: int, offset: int, reason: str) -> None:
        self.damaged[number] = Damaged(offset, reason)
        self.dead += 1

    def _replace(self, number: int, birth: int) -> None:
        for row in self._rows.alive(number):
            if self._rows.item("birth", row) == birth:
                self._kill(row)

    def _kill(self, row: int) -> None:
        code, chain = self._rows.item("scope", row), self._rows.item("chain", row)
        self._rows.kill(row)
        self.dead += 1
        self.scopes[code].alive -= 1
        if chain >= 0:
            self._chains.killed(code, chain, self._rows.item("revision", row))
        listener = self.listeners.get(code)
        if listener is not None:
            listener.killed(row)

    # Looking up.

    def verified(self) -> Table:
        """This table, after all of its index was found to be sound.

        Raises:
            IndexDamagedError: it is not.
        """
        if self._rows.index is not None:
            self._rows.index.verify()
        return self

    def require_sound(self) -> None:
        """Raise CorruptionError if something in the file is known to be damaged."""
        for damage in self.damaged.values():
            raise CorruptionError(self.file.path, *damage)
        if self.gaps:
            raise CorruptionError(self.file.path, None, f"{self.gaps} places are damaged, and were skipped")

    def __len__(self) -> int:
        return len(self._rows)

    def is_alive(self, number: int, offset: int) -> bool:
        """True if the row at `offset` in the file, which has that id hash, is alive."""
        return any(self._rows.item("row_offset", row) == offset for row in self._rows.alive(number))

    def find(self, scope: Scope, id: str) -> int | None:
        """The live row of `id`, or None. A record whose text is damaged is taken to be the one that is asked for.

        Raises:
            CorruptionError: the record is known to be damaged.
        """
        return self.find_hashed(id_hash(scope, id), id)

    def find_hashed(self, number: int, id: str) -> int | None:
        """See `find`; `number` is the id's hash."""
        for row in self._rows.alive(number):
            try:
                doc = self.file.doc(self.file.row(self._rows.item("row_offset", row)))
            except CorruptionError:
                return row
            if document_id(doc) == id:
                return row
        damaged = self.damaged.get(number)
        if damaged is not None:
            raise CorruptionError(self.file.path, *damaged)
        return None

    def unknown(self, hashes: Sequence[int]) -> list[bool]:
        """Of each id hash, whether nothing in the file has it. May be False for one that only dead records have."""
        found = self._rows.unknown(hashes)
        if not self.damaged:
            return found
        return [new and number not in self.damaged for new, number in zip(found, hashes, strict=True)]

    def record(self, row: int) -> Record:
        """The record in a row.

        Raises:
            CorruptionError: it is damaged.
        """
        entry = self.file.row(self._rows.item("row_offset", row))
        return decode_record(entry, self.file.doc(entry))

    def birth(self, row: int) -> int:
        """What names the record of a row in the file; see `format.Row`."""
        return int(self._rows.item("birth", row))

    @property
    def indexed(self) -> int:
        """How many rows come from the index."""
        return self._rows.base

    def head(self, scope: Scope) -> int:
        code = self.codes.get(scope)
        return 0 if code is None else self.scopes[code].head

    def column(self, name: str) -> npt.NDArray[Any]:
        """See `Rows.column`."""
        return self._rows.column(name)

    def take(self, name: str, rows: Numbers) -> npt.NDArray[Any]:
        """See `Rows.take`."""
        return self._rows.take(name, rows)

    def rows(self, code: int) -> Numbers:
        """The live rows of a scope, in the order in which they were written."""
        mask = self.column("live")
        if len(self.scopes) > 1:
            mask = mask & (self.column("scope") == code)
        return np.flatnonzero(mask)

    def rows_by_birth(self, code: int) -> Numbers:
        """The live rows of a scope, in the order in which their ids were first written."""
        rows = self.rows(code)
        return rows[np.argsort(self.take("birth", rows), kind="stable")]

    def tip(self, scope: Scope, chain: str) -> int:
        """The highest revision among the live records of a chain, 0 for none."""
        code = self.codes.get(scope)
        return 0 if code is None else self._chains.tip(code, chain)

    # The index.

    def _fits(self, index: Index) -> bool:
        """True if the index was made from this file as it is."""
        meta, header = index.meta, self.file.header
        if (meta["uuid"], meta["generation"]) != (header.uuid.hex(), header.generation):
            return False
        if meta["end"] > self.file.size():
            return False
        return bool(meta["check"] == self._check(meta["last_block"]))

    def _check(self, block: int) -> int:
        return zlib.crc32(self.file.read(block, BLOCK))

    def _adopt_index(self, index: Index) -> None:
        meta = index.meta
        self.end, self.last_block, self.next_seq = meta["end"], meta["last_block"], meta["next_seq"]
        self.dead, self.gaps = meta["dead"], meta["gaps"]
        self.synced = meta["synced"]
        self.space = None if meta["space"] is None else VectorSpace(*meta["space"])
        self.damaged = {number: Damaged(offset, reason) for number, offset, reason in meta["damaged"]}
        first = 0
        for code, (user, agent, head, alive, chains) in enumerate(meta["scopes"]):
            scope = Scope(user, agent)
            self.codes[scope] = code
            self.scopes.append(ScopeState(scope, head, alive, first, ChainNames(index, first, chains)))
            first += chains
        self._rows.rebase(index, meta["rows"])

    def save_index(self, path: str) -> None:
        """Write an index of all that was taken in, and use it from now on.

        Raises:
            OSError: it can't be written.
        """
        header = self.file.header
        meta = {
            "uuid": header.uuid.hex(),
            "generation": header.generation,
            "end": self.end,
            "last_block": self.last_block,
            "check": self._check(self.last_block),
            "next_seq": self.next_seq,
            "synced": self.synced,
            "rows": len(self),
            "dead": self.dead,
            "gaps": self.gaps,
            "space": None if self.space is None else (self.space.embedder, self.space.dim),
            "damaged": [(number, *damage) for number, damage in self.damaged.items()],
            "scopes": [
                (state.scope.user, state.scope.agent, state.head, state.alive, len(state.chains))
                for state in self.scopes
            ],
        }
        save(path, meta, itertools.chain(self._rows.sections(), self._chains.sections()))
        index = Index.load(path)
        if index is None or index.meta != json.loads(json.dumps(meta)):
            return
        index.verify()
        first = 0
        for state in self.scopes:
            state.chains.rebase(index, first)
            state.first_chain = first
            first += len(state.chains)
        self._rows.rebase(index, len(self))
        self._chains.forget_tail()
        self.uncovered = 0
