"""What is in an arena file, as tables: which row is whose, which are alive, and what the chains and scopes are.

Rows are numbered in the order in which they were written, over all scopes. The first of them come from the index,
mapped; those of the blocks that follow what the index covers are kept in memory, and become part of the next index.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import CorruptionError
from nanomem_core.interfaces import VectorSpace
from nanomem_core.records import Record, Scope

from .documents import decode_record, document_chain, document_id, id_hash
from .format import BLOCK, DELETE, HEADER, SPACE, BlockHeader, Row, block_label, block_rows
from .index import Index, save
from .log import Gap, VaultFile, walk
from .rows import Numbers, Rows, sorted_table
from .scopes import ChainNames, ScopeState, chain_name

__all__ = ["Damaged", "Listener", "Table"]


class Damaged(NamedTuple):
    """A record that is known to be damaged: where, and what is wrong."""

    offset: int
    reason: str


class Listener(Protocol):
    """What wants to hear of new and dead rows of one scope."""

    def appended(self, first: int, rows: npt.NDArray[Any]) -> None: ...

    def killed(self, row: int) -> None: ...


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
        self._forget_tail()
        if index_path is not None:
            index = Index.load(index_path)
            if index is not None and self._fits(index):
                self._adopt_index(index)
        self.absorb()

    def _forget_tail(self) -> None:
        self._chain_codes: dict[tuple[int, str], int] = {}
        self._tips: dict[tuple[int, int], int] = {}
        self.uncovered = 0

    # Taking in blocks.

    def absorb(self) -> None:
        """Take in the blocks that were appended since."""
        for found in walk(self.file, self.end, self.file.size()):
            if isinstance(found, Gap):
                self._skipped(found.offset, f"{found.end - found.offset} damaged bytes were skipped")
            else:
                self._take(found)
                self.next_seq = found.seq + 1
                self.last_block = found.offset
                self.synced = max(self.synced, found.synced)
            self.end = found.end
        # Not before: where warnings are errors, a report doesn't return.
        while self._unreported:
            self._report(*self._unreported.pop())

    def _skipped(self, offset: int, what: str) -> None:
        self.gaps += 1
        self._unreported.append((offset, what))

    def _take(self, header: BlockHeader) -> None:
        base = header.rows_offset
        data = self.file.read(base, header.label_copy_offset + header.label_length - base)
        label = block_label(header, data)
        if label is None:
            self._skipped(header.label_offset, "both labels of a block are damaged; its records were skipped")
            return
        if header.type == SPACE:
            self.space = VectorSpace(*label)
            return
        scope = Scope(*label)
        code = self.codes.get(scope)
        if code is None:
            code = self.codes[scope] = len(self.scopes)
            self.scopes.append(ScopeState(scope))
        state = self.scopes[code]
        state.head = header.head
        first = len(self._rows)
        for place, row, doc in block_rows(header, data):
            self.uncovered += 1
            if isinstance(row, str):
                self._take_damaged(state, code, place, row, doc)
                continue
            sound = zlib.crc32(doc) == row.doc_crc
            if row.type == DELETE or row.version > 1:
                self._replace(row.id_hash, row.birth)
            self.damaged.pop(row.id_hash, None)
            if row.type == DELETE:
                self.dead += 1
            elif sound:
                self._put(state, code, place, row, document_chain(doc))
            else:
                self._note_damage(row.id_hash, row.doc_offset, "the text of a record is damaged")
        listener = self.listeners.get(code)
        if listener is not None and len(self._rows) > first:
            listener.appended(first, self._rows.since(first))

    def _put(self, state: ScopeState, code: int, place: int, row: Row, chain: str | None) -> None:
        chain_code = -1 if chain is None else self._chain_code(code, chain)
        values = (
            True, row.kind, row.declared, chain_code, row.revision,
            row.valid_from, row.end, row.recorded_at, row.closed,
            code, row.version, row.birth, place, row.vectors_offset, row.vectors, row.vectors_crc,
        )  # fmt: skip
        self._rows.append(row.id_hash, values)
        state.alive += 1
        if chain_code >= 0:
            tip = self._tip(code, chain_code)
            if row.revision >= max(tip, ~tip):
                self._tips[code, chain_code] = row.revision

    def _take_damaged(self, state: ScopeState, code: int, place: int, reason: str, doc: bytes) -> None:
        # Only the document is left to tell whose row it was; it has one line if the row was a deletion.
        id = document_id(doc)
        if id is None:
            self._skipped(place, f"{reason}; it was left out")
            return
        number = id_hash(state.scope, id)
        for row in self._rows.alive(number):
            self._kill(row)
        if doc.count(b"\n") > 1:
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
        if chain >= 0 and self._tip(code, chain) == self._rows.item("revision", row):
            self._tips[code, chain] = ~self._rows.item("revision", row)
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
        number = id_hash(scope, id)
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

    # Chains.

    def _chain_code(self, code: int, chain: str) -> int:
        known = self._chain(code, chain)
        if known is None:
            names = self.scopes[code].chains
            known = self._chain_codes[code, chain] = len(names)
            self._tips[code, known] = 0
            names.append(chain)
        return known

    def _chain(self, code: int, chain: str) -> int | None:
        known = self._chain_codes.get((code, chain))
        index = self._rows.index
        if known is None and index is not None:
            for number in index.find("chain", id_hash(self.scopes[code].scope, chain)):
                if index.item("chain_scope", number) == code and chain_name(index, number) == chain:
                    known = index.item("chain_code", number)
        return known

    def _tip(self, code: int, chain: int) -> int:
        """The highest revision in a chain; or ``~n``, a negative number, if it is only known to be `n` at most."""
        if (code, chain) in self._tips:
            return self._tips[code, chain]
        assert self._rows.index is not None
        number = self._rows.index.item("chain_of", self.scopes[code].first_chain + chain)
        return int(self._rows.index.item("chain_tip", number))

    def tip(self, scope: Scope, chain: str) -> int:
        """The highest revision among the live records of a chain, 0 for none."""
        code = self.codes.get(scope)
        number = None if code is None else self._chain(code, chain)
        if code is None or number is None:
            return 0
        tip = self._tip(code, number)
        if tip < 0:
            mask = self.column("live") & (self.column("chain") == number) & (self.column("scope") == code)
            tip = self._tips[code, number] = int(self.column("revision")[mask].max(initial=0))
        return tip

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
        self._rows = Rows(index, meta["rows"])

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
        save(path, meta, itertools.chain(self._rows.sections(), self._chain_sections()))
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
        self._forget_tail()

    def _chain_sections(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        codes = np.fromiter((code for code, _ in self._chain_codes), np.int32)
        texts = [name.encode() for _, name in self._chain_codes]
        hashes = np.fromiter((id_hash(self.scopes[code].scope, name) for code, name in self._chain_codes), np.uint64)
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        names = np.frombuffer(b"".join(texts), np.uint8)
        values = np.arange(len(texts), dtype=np.uint32)
        if self._rows.index is not None:
            old = self._rows.index.column("chain_ends")
            ends = np.concatenate((old, ends[1:] + old[-1]))
            names = np.concatenate((self._rows.index.column("chain_names"), names))
            codes = np.concatenate((self._rows.index.column("chain_scope"), codes))
            hashes = np.concatenate((self._rows.index.column("chain_hash"), hashes))
            values = np.concatenate((self._rows.index.column("chain_value"), values + np.uint32(len(old) - 1)))
        # Sorting by scope, and keeping the order of first appearance in each, gives the order of the codes.
        order = np.argsort(codes, kind="stable")
        firsts = np.concatenate(([0], np.cumsum(np.bincount(codes, minlength=len(self.scopes)))))
        places = np.empty(len(order), np.intp)
        places[order] = np.arange(len(order))
        rows = np.flatnonzero(self.column("live") & (self.column("chain") >= 0))
        tips = np.zeros(len(codes), np.int32)
        chains = order[firsts[self.take("scope", rows)] + self.take("chain", rows)]
        np.maximum.at(tips, chains, self.take("revision", rows))
        yield "chain_names", names
        yield "chain_ends", ends
        yield "chain_scope", codes
        yield "chain_code", (places - firsts[codes]).astype(np.int32)
        yield "chain_of", order.astype(np.int32)
        yield "chain_tip", tips
        yield from sorted_table("chain", hashes, values)
