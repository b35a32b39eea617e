"""Vaults of the package nanomem 0.8 as records, read through that package (the extra ``nanomem08``).

The vault is copied to a private temporary directory and opened read-only there, so that neither the file nor its
directory changes. No embedder is needed: the stored vectors come along.

What can't come along as it is follows fixed rules, and each time one applies there is a `Note`:

* ``joined``: a text the old package divided becomes one record under the document's id. It has no vectors, since the
  old pieces are not the `passages` that vectors belong to. The text is exactly what was added: its fingerprint
  matches.
* ``inexact``: likewise, but the fingerprint does not match, as the old package kept no white space between sentences.
  The pieces are joined by blank lines, without what they repeat of one another.
* ``incomplete``: pieces of a document are missing.
* ``duplicate_id``: several rows have one id. The last one written keeps it, as `get` found that one; the earlier ones
  get ``{id}~1``, ``{id}~2``, … in order.
* ``bad_id``: the id is empty or can't be stored; it becomes ``old-`` and 20 hex digits of its SHA-256.
* ``renamed_key``: a metadata key that a record has as a field, such as ``text``, gets ``old_`` before it.
* ``entity``: the name can't be normalised; the record stands in no chain and keeps the name as ``old_entity``.
* ``time``: the time is in milliseconds (it is divided by 1000), or no date at all (it becomes 0, and
  ``old_timestamp`` keeps it).
* ``vectors``: the vector comes from the offline encoder in a vault of a model's vectors, and is left out.
* ``torn_tail``: the file ends with bytes of an unfinished write.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from ..changes import Vectors, check_vectors
from ..errors import ConfigError, CorruptionError, FormatError, InputError, NotFoundError, StorageError, TimeError
from ..records import RESERVED_METADATA, Record, check_name, clean_metadata, normalize_entity
from ..times import parse_time

__all__ = ["Note", "OldVault", "read_nanomem"]

OFFLINE = "offline-lexical"
_MAX_OLD_ENTITY = 48
_OVERLAP_WORDS = 40
_OVERLAP_CHARS = 120
_ROW_KEYS = ("id", "entity", "entity_declared", "embed_backend")
_PIECE_KEYS = ("chunk_index", "chunk_total", "parent_id", "is_chunked", "parent_sha256")
_SPELLINGS = {"favourite": "favorite", "neighbourhood": "neighborhood"}

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    """A rule of this module that was applied to the record with this id (None for the whole file)."""

    rule: str
    id: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class OldVault:
    """A vault of nanomem 0.8: iterate over it for records and their vectors, in the order they were written.

    A record of an undivided text has one vector, others none.

    Attributes:
        dim: numbers in a vector.
        embedder: ``offline-lexical`` if all vectors are of the old package's fallback; None otherwise, as the vault
            does not store the model's name.
        encrypted: whether the file was.
        rows: rows in the file; a divided text has several.
        notes: where the vault and the records differ, see the module.
    """

    path: str
    dim: int
    embedder: str | None
    encrypted: bool
    rows: int
    entries: tuple[tuple[Record, Vectors | None], ...] = field(repr=False)
    notes: tuple[Note, ...] = field(repr=False)

    def __iter__(self) -> Iterator[tuple[Record, Vectors | None]]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def read_nanomem(path: str | os.PathLike[str], password: str | None = None) -> OldVault:
    """Read a whole vault of nanomem 0.8 into memory; the file is not changed.

    Raises:
        ConfigError: the package nanomem 0.8 is not installed.
        NotFoundError: no such file.
        InputError: the file is encrypted and the password is missing or wrong, or it is not and one was given.
        FormatError: the file is no vault, or one of another version.
        CorruptionError: a block of the file is damaged.
    """
    _require_package()
    source = os.path.abspath(path)
    if not os.path.isfile(source):
        raise NotFoundError(f"{source}: there is no such file", id=source)
    with tempfile.TemporaryDirectory(prefix="nanomem-import-") as directory:
        copy = os.path.join(directory, "vault.dat")
        with open(source, "rb") as old, open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
            shutil.copyfileobj(old, new, 1 << 20)
        rows, dim, encrypted, torn = _read_rows(source, copy, password)
    backends = {row["metadata"].get("embed_backend") for row in rows}
    notes = []
    if torn:
        notes.append(Note("torn_tail", None, f"the last {torn} bytes are an unfinished write, and were left out"))
    reader = _Reader(dim, OFFLINE in backends and len(backends) > 1, notes)
    entries = tuple(reader.entries(rows))
    embedder = OFFLINE if backends == {OFFLINE} else None
    return OldVault(source, dim, embedder, encrypted, len(rows), entries, tuple(notes))


def _require_package() -> None:
    try:
        version = importlib.import_module("nanomem").__version__
    except ImportError as error:
        raise ConfigError(
            "reading a vault of nanomem 0.8 takes that package, which is not installed; "
            "run `pip install nanomem-core[nanomem08]`"
        ) from error
    if not version.startswith("0.8."):
        raise ConfigError(
            f"reading a vault of nanomem 0.8 takes nanomem>=0.8,<0.9; found {version}; "
            f"run `pip install nanomem-core[nanomem08]`"
        )


def _read_rows(source: str, copy: str, password: str | None) -> tuple[list[_Row], int, bool, int]:
    """All rows of the vault at `copy`, the width of its vectors, if it is encrypted, and the bytes of a torn tail."""
    container = importlib.import_module("nanomem.container")
    engine_class = importlib.import_module("nanomem.engine").VaultEngine
    errors = importlib.import_module("nanomem.errors")
    try:
        version = container.detect_version(copy)
        if version != 3:
            advice = "open it once with nanomem 0.8, which converts it" if version == 2 else "the file is empty"
            raise FormatError(f"{source}: expected a vault of format 3; found {version or 'nothing'}; {advice}")
        with open(copy, "rb") as file:
            header = container.unpack_file_header(file.read(256))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            engine = engine_class(
                copy,
                embed_dim=header.embed_dim,
                password=password,
                readonly=True,
                migrate=False,
                arena_cache="off",
                on_torn_tail="ignore",
            )
        try:
            torn = int(engine.stats()["truncated_tail_bytes"])
            return list(engine.iter_records()), int(header.embed_dim), bool(header.encrypted), torn
        finally:
            engine.close()
    except errors.PasswordRequiredError:
        raise InputError(f"{source}: the vault is encrypted; pass its password") from None
    except errors.WrongPasswordError:
        raise InputError(f"{source}: the password is wrong, or the header was changed") from None
    except errors.NotEncryptedError:
        raise InputError(f"{source}: the vault is not encrypted; read it without a password") from None
    except errors.CorruptContainerError as error:
        raise FormatError(f"{source}: expected a vault of nanomem 0.8; {error}") from error
    except errors.IntegrityError as error:
        raise CorruptionError(source, error.offset, error.reason) from error
    except errors.NanomemError as error:
        raise StorageError(f"{source}: nanomem can't read the vault: {error}") from error


@dataclass(slots=True)
class _Document:
    """The rows of one record: a single one, or the pieces of a divided text, in order of their numbers."""

    id: str
    rows: list[_Row]
    total: int = 1

    def takes(self, row: _Row) -> bool:
        """Whether `row` is a further piece: an equal number would be the same text, added once more."""
        meta, own = row["metadata"], self.rows[0]["metadata"]
        return meta.get("parent_sha256") == own.get("parent_sha256") and all(
            meta.get("chunk_index") != other["metadata"].get("chunk_index") for other in self.rows
        )


class _Reader:
    def __init__(self, dim: int, mixed: bool, notes: list[Note]) -> None:
        self.dim = dim
        self.mixed = mixed
        self.notes = notes

    def entries(self, rows: Sequence[_Row]) -> Iterator[tuple[Record, Vectors | None]]:
        documents = _documents(rows)
        for document, id in zip(documents, self._ids(documents), strict=True):
            document.rows.sort(key=_piece_number)
            yield self._record(document, id), self._vectors(document, id)

    def _ids(self, documents: Sequence[_Document]) -> list[str]:
        wanted = [self._storable_id(document.id) for document in documents]
        left = Counter(wanted)
        taken = set(wanted)
        ids = []
        for id in wanted:
            left[id] -= 1
            ids.append(id)
            if left[id]:
                number = 1
                while f"{id}~{number}" in taken:
                    number += 1
                ids[-1] = f"{id}~{number}"
                taken.add(ids[-1])
                self._note("duplicate_id", ids[-1], f"a later row has the id {id!r} too")
        return ids

    def _storable_id(self, id: str) -> str:
        try:
            # Room is left for what tells duplicates apart.
            check_name(id + "~00000000", "id")
            if id:
                return id
        except InputError:
            pass
        new = "old-" + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:20]
        self._note("bad_id", new, f"the id {id[:60]!r} can't be stored")
        return new

    def _record(self, document: _Document, id: str) -> Record:
        first = document.rows[0]
        own = first["metadata"]
        drop = {*_ROW_KEYS, *(_PIECE_KEYS if own.get("is_chunked") else ())}
        metadata = {key: value for key, value in own.items() if key not in drop}
        valid_from = self._time(first["timestamp"], id, metadata)
        entity = self._entity(own.get("entity"), id, metadata)
        record = Record(
            id=id,
            text=self._text(document, id),
            entity=entity,
            declared=entity is not None and bool(own.get("entity_declared")),
            revision=int(first["revision"]),
            valid_from=valid_from,
            recorded_at=valid_from,
            source=str(first["source"]),
        )
        return replace(record, metadata=clean_metadata(self._renamed(metadata, id)))

    def _renamed(self, metadata: Mapping[str, Any], id: str) -> dict[str, Any]:
        renamed = {key: value for key, value in metadata.items() if key not in RESERVED_METADATA}
        for key in metadata:
            if key in RESERVED_METADATA:
                new = f"old_{key}"
                while new in renamed:
                    new = f"old_{new}"
                renamed[new] = metadata[key]
                self._note("renamed_key", id, f"the metadata key {key!r} is now {new!r}")
        return renamed

    def _time(self, seconds: float, id: str, metadata: dict[str, Any]) -> float:
        try:
            return parse_time(seconds)
        except TimeError:
            pass
        try:
            moment = parse_time(seconds / 1000)
            self._note("time", id, f"the time {seconds!r} was in milliseconds")
        except TimeError:
            moment = 0.0
            metadata["old_timestamp"] = seconds
            self._note("time", id, f"{seconds!r} is no time between the years 1 and 9999")
        return moment

    def _entity(self, name: Any, id: str, metadata: dict[str, Any]) -> str | None:
        if not name:
            return None
        try:
            # The old package spelt these alike and compared the first 48 characters, so that they shared a chain.
            normal = normalize_entity(str(name))[:_MAX_OLD_ENTITY].strip("_")
            for british, american in _SPELLINGS.items():
                normal = normal.replace(british, american)
            return normalize_entity(normal)
        except InputError:
            metadata["old_entity"] = name
            self._note("entity", id, f"{name!r} names no attribute")
            return None

    def _text(self, document: _Document, id: str) -> str:
        if not document.rows[0]["metadata"].get("is_chunked"):
            return str(document.rows[0]["text"])
        pieces = [str(row["text"]) for row in document.rows]
        if len(pieces) < document.total:
            self._note("incomplete", id, f"{document.total - len(pieces)} of {document.total} pieces are missing")
        text, exact = _joined(pieces, document.rows[0]["metadata"].get("parent_sha256"))
        if exact:
            self._note("joined", id, f"{len(pieces)} pieces make exactly the text that was added")
        else:
            self._note("inexact", id, f"{len(pieces)} pieces, joined by blank lines")
        return text

    def _vectors(self, document: _Document, id: str) -> Vectors | None:
        row = document.rows[0]
        if row["metadata"].get("is_chunked"):
            return None
        if self.mixed and row["metadata"].get("embed_backend") == OFFLINE:
            self._note("vectors", id, "its vector is of the offline encoder, and was left out")
            return None
        return check_vectors(row["embedding"], self.dim, f"vector of {id!r}")

    def _note(self, rule: str, id: str, detail: str) -> None:
        self.notes.append(Note(rule, id, detail))


def _documents(rows: Sequence[_Row]) -> list[_Document]:
    documents: list[_Document] = []
    divided: dict[str, _Document] = {}
    for row in rows:
        meta = row["metadata"]
        if not meta.get("is_chunked"):
            documents.append(_Document(str(row["id"]), [row]))
            continue
        parent = str(meta.get("parent_id"))
        document = divided.get(parent)
        if document is not None and document.takes(row):
            document.rows.append(row)
        else:
            divided[parent] = _Document(parent, [row], int(meta.get("chunk_total") or 1))
            documents.append(divided[parent])
    return documents


def _piece_number(row: _Row) -> int:
    return int(row["metadata"].get("chunk_index") or 0)


def _joined(pieces: Sequence[str], fingerprint: Any) -> tuple[str, bool]:
    """The text of a divided document, and if it is exactly what was added.

    Each piece begins with the last 40 words (or 120 characters) of the one before, then a blank line. The units within
    a piece are joined by blank lines too, whatever stood between them.
    """
    parts = [pieces[0]]
    for before, piece in pairwise(pieces):
        bridges = (" ".join(before.split()[-_OVERLAP_WORDS:]), before[-_OVERLAP_CHARS:])
        bridge = next((bridge for bridge in bridges if piece.startswith(bridge + "\n\n")), None)
        parts.append(piece if bridge is None else piece[len(bridge) + 2 :])
    text = "\n\n".join(parts)
    for gap in ("\n\n", " ", "\n", ""):
        candidate = text.replace("\n\n", gap)
        if hashlib.sha256(candidate.strip().encode("utf-8", "surrogatepass")).hexdigest() == fingerprint:
            return candidate, True
    return text, False
