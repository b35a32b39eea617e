"""Moving records between memories and files, wholly: ids, times, revisions, versions, entities, vectors."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..changes import Delete, Put
from ..errors import InputError, NotFoundError
from ..fileio.names import encode_name
from ..filters import record_value
from ..frame import Frame
from ..interfaces.storage import PLACES
from ..pipeline.jsonlines import is_json_lines
from ..records import Record, Scope
from ..retention import comes_from
from ..times import TimeLike, parse_time
from .parcels import Parcel, read_parcels, write_parcels
from .removing import Removing

__all__ = ["Transfer"]

_BATCH = 1000


class Transfer(Removing):
    """The part of `Memory` that moves records in and out."""

    def parcels(
        self,
        where: Mapping[str, Any] | None = None,
        source_doc: str | None = None,
        *,
        before: TimeLike | None = None,
        after: TimeLike | None = None,
        all_scopes: bool = False,
        user: str | None = None,
        agent: str | None = None,
    ) -> Iterator[Parcel]:
        """The records of one scope (or of all) that pass the filter, in the order of writing; purge markers, too.

        `source_doc` is a source, or the path or name of an ingested file; `before` and `after` limit `timestamp` to
        ``after <= timestamp < before``.
        """
        scopes = self.storage.scopes() if all_scopes else [self._scope(user, agent)]
        conditions = [where] if where else []
        if before is not None:
            conditions.append({"timestamp": {"$lt": parse_time(before, "before")}})
        if after is not None:
            conditions.append({"timestamp": {"$gte": parse_time(after, "after")}})
        for scope in sorted(scopes):
            frame = self._frame(
                user=scope.user, agent=scope.agent, kind=None, filter={"$and": conditions} if conditions else None
            )
            mask = frame.allowed if conditions else frame.columns.live
            yield from self._pack(frame, np.flatnonzero(mask).tolist(), source_doc)

    def _pack(self, frame: Frame, rows: list[int], source_doc: str | None) -> Iterator[Parcel]:
        space = self.storage.space if self.storage.keeps_vectors else None
        for start in range(0, len(rows), _BATCH):
            for row, record in frame.records(rows[start : start + _BATCH]).items():
                if source_doc is not None and not comes_from(record, source_doc):
                    continue
                vectors = None
                if space is not None and record.text:
                    found, _ = frame.columns.source.vectors(np.array([row], np.intp))
                    vectors = found if len(found) else None
                yield Parcel(frame.columns.scope, record, vectors, space)

    def export(
        self,
        target: str | Path | Transfer,
        where: Mapping[str, Any] | None = None,
        source_doc: str | None = None,
        purge: bool = False,
        *,
        before: TimeLike | None = None,
        after: TimeLike | None = None,
        all_scopes: bool = False,
        user: str | None = None,
        agent: str | None = None,
    ) -> int:
        """Copy records to a ``.jsonl`` file, to another store (a path), or into another memory; returns how many.

        A ``.jsonl`` file is replaced; a store is added to. Nothing is embedded again where the target takes the same
        vectors. `purge` deletes here what was copied, and needs a filter. For the filter see `parcels`.

        Raises:
            InputError: `purge` without `where`, `source_doc`, `before` or `after`.
        """
        chosen = {"where": where, "source_doc": source_doc, "before": before, "after": after}
        given = [value for value in chosen.values() if value is not None]
        if purge and (not given or "" in given or {} in given):
            raise InputError(
                "purge: give a filter (where, source_doc, before or after; none of them empty), or erase the scope"
            )
        parcels = list(self.parcels(**chosen, all_scopes=all_scopes, user=user, agent=agent))  # type: ignore[arg-type]
        self._deliver(parcels, target, purge)
        return len(parcels)

    def _deliver(self, parcels: list[Parcel], target: str | Path | Transfer, purge: bool) -> None:
        if isinstance(target, Transfer):
            self._refuse_itself(target)
            target._unpack(parcels)
        elif is_json_lines(target):
            write_parcels(target, parcels)
        else:
            with self._sibling(target) as other:
                self._refuse_itself(other)
                other._unpack(parcels)
        if purge:
            for scope in {parcel.scope for parcel in parcels}:
                gone = [Delete(p.record.id, expect=p.record.version) for p in parcels if p.scope == scope]
                self._commit(scope, gone)

    def split(self, where: Mapping[str, Any] | None, target: str | Path, purge: bool = False, **options: Any) -> int:
        """Copy the records that pass the filter to another store; `purge` moves them. Options are those of `export`."""
        return self.export(target, where, purge=purge, **options)

    def split_by_key(
        self,
        key: str,
        directory: str | Path,
        purge: bool = False,
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> dict[str, int]:
        """One store for each value of `key` (as in a filter), in `directory`; the number of records by file name.

        A list is one value here. Records without the key are in none; `purge` moves the others.
        """
        groups: dict[str, list[Parcel]] = {}
        for parcel in self.parcels({key: {"$exists": True}}, user=user, agent=agent):
            groups.setdefault(str(record_value(parcel.record, key)), []).append(parcel)
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        counts = {}
        # No encoded name is "~", so the empty value has a file of its own; a bad name is refused before any is made.
        for name, parcels in [(f"{encode_name(v) if v else '~'}.dat", groups[v]) for v in sorted(groups)]:
            self._deliver(parcels, folder / name, purge)
            counts[name] = len(parcels)
        return counts

    def import_(
        self,
        source: str | Path | Transfer | Iterable[Parcel],
        *,
        user: str | None = None,
        agent: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, int]:
        """Take over records from a ``.jsonl`` export, another store (a path), a memory, or parcels.

        Records keep everything they have; `user` and `agent` put them into one scope instead of their own. A record
        that is here already, with the same content, is skipped; an id that is taken by another content gets a new id,
        and the old one is kept in the metadata as ``imported_id``. Returns ``incoming``, ``added``, ``skipped`` and
        ``renamed``. Done in commits of 1000 records, so that an interrupted import can be repeated.

        Raises:
            NotFoundError: no such file.
            FormatError: the file is no export, or of a newer version.
        """
        self._check_open()
        if isinstance(source, Transfer):
            return self._unpack(source.parcels(all_scopes=True), user=user, agent=agent, progress=progress)
        if isinstance(source, (str, Path)):
            if not os.path.exists(source):
                raise NotFoundError(f"{source}: there is no such file to import", id=str(source))
            if is_json_lines(source):
                return self._unpack(read_parcels(source), user=user, agent=agent, progress=progress)
            with self._sibling(source, read_only=True) as other:
                return self._unpack(other.parcels(all_scopes=True), user=user, agent=agent, progress=progress)
        return self._unpack(source, user=user, agent=agent, progress=progress)

    def merge(
        self,
        source: str | Path | Transfer,
        incoming_user_id: str | None = None,
        incoming_project: str | None = None,
        deduplicate: bool = False,
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> dict[str, int]:
        """Bring the records of another memory into this one's chains; `unmerge` takes them out again.

        Each gets ``source_vault`` (the file's name) in its metadata, and ``user_id`` and ``project`` as given. They are
        numbered after the revisions that are here; the order in a chain goes by time, so nothing older becomes
        current. `deduplicate` skips records whose chain and text (but for case and outer spaces) are here already.
        Returns ``incoming``, ``added`` and ``duplicates_skipped``.
        """
        self._check_open()
        if isinstance(source, Transfer):
            origin, parcels = source, list(source.parcels(all_scopes=True))
            name = origin.storage.place or origin.storage.name
        else:
            if not os.path.exists(source):
                raise NotFoundError(f"{source}: there is no such file to merge", id=str(source))
            name = str(source)
            with self._sibling(source, read_only=True) as other:
                parcels = list(other.parcels(all_scopes=True))
        stamp: dict[str, Any] = {"source_vault": os.path.basename(name)}
        if incoming_user_id is not None:
            stamp["user_id"] = incoming_user_id
        if incoming_project is not None:
            stamp["project"] = incoming_project
        scope = self._scope(user, agent)
        seen = {_likeness(p.record) for p in self.parcels(user=user, agent=agent)} if deduplicate else set()
        incoming: list[Parcel] = []
        skipped = 0
        for parcel in parcels:
            if parcel.record.kind == "purged":
                continue
            record = replace(parcel.record, revision=0, metadata={**parcel.record.metadata, **stamp})
            if deduplicate and _likeness(record) in seen:
                skipped += 1
                continue
            seen.add(_likeness(record))
            incoming.append(replace(parcel, scope=scope, record=record))
        report = self._unpack(incoming)
        return {
            "incoming": len(incoming) + skipped,
            "added": report["added"],
            "duplicates_skipped": skipped + report["skipped"],
        }

    def unmerge(
        self,
        vault_or_project: str,
        target: str | Path | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> int:
        """Remove what `merge` brought from a file, or into a project; first copied to `target` if given."""
        if not vault_or_project.strip():
            raise InputError("vault_or_project: an empty name would match every record")
        name = os.path.basename(vault_or_project)
        where = {"$or": [{"source_vault": name}, {"project": vault_or_project}]}
        if target is not None:
            return self.export(target, where, purge=True, user=user, agent=agent)
        return self.delete(where=where, kind=None, user=user, agent=agent)

    def _refuse_itself(self, target: Transfer) -> None:
        # All would be there already, so nothing would be copied; and then what was to be moved would be deleted.
        mine, other = self.storage.place, target.storage.place
        if target.storage is self.storage or (mine is not None and mine == other):
            raise InputError(f"target: {mine or self.storage.name} is this memory itself; name another")

    def _sibling(self, path: str | Path, read_only: bool = False) -> Transfer:
        """A memory over another file or folder of this store's kind, with the same embedder."""
        options = inspect.signature(type(self.storage)).parameters
        option = next((name for name in PLACES if name in options), None)
        if option is None:
            raise InputError(
                f"{path}: the store {self.storage.name!r} has no place on disk, so there is no other of its kind; "
                "use a .jsonl file, or another memory"
            )
        spec: dict[str, Any] = {"use": type(self.storage), option: str(path)}
        if read_only and "read_only" in options:
            spec["read_only"] = True
        return Transfer(spec, self.embedder, taggers=self.taggers, plugins=self.plugins, clock=self._clock)

    def _unpack(
        self,
        parcels: Iterable[Parcel],
        *,
        user: str | None = None,
        agent: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, int]:
        report = {"incoming": 0, "added": 0, "skipped": 0, "renamed": 0}
        batch: dict[Scope, list[Parcel]] = {}
        waiting = 0
        for parcel in parcels:
            scope = parcel.scope
            if user is not None or agent is not None:
                scope = self._scope(user, agent)
            batch.setdefault(scope, []).append(parcel)
            report["incoming"] += 1
            waiting += 1
            if waiting == _BATCH:
                self._unpack_batch(batch, report)
                batch, waiting = {}, 0
                if progress is not None:
                    progress(report["incoming"])
        self._unpack_batch(batch, report)
        if progress is not None:
            progress(report["incoming"])
        return report

    def _unpack_batch(self, batch: Mapping[Scope, list[Parcel]], report: dict[str, int]) -> None:
        here = self._space() if self.storage.keeps_vectors else None
        for scope, parcels in batch.items():
            puts: dict[str, Put] = {}
            for parcel in parcels:
                record = parcel.record
                held = self._held(scope, record.id, puts)
                if held is not None and "purged" not in (held.kind, record.kind) and not _same(held, record):
                    record = _renamed(record)
                    held = self._held(scope, record.id, puts)
                    report["renamed"] += held is None
                # A marker gives way to a record, and a record never to a marker.
                if held is not None and (held.kind != "purged" or record.kind == "purged"):
                    report["skipped"] += 1
                    continue
                vectors = parcel.vectors if here is not None and parcel.space == here else None
                puts[record.id] = Put(record, expect=0, vectors=vectors)
            if puts:
                self._commit(scope, list(puts.values()))
                report["added"] += len(puts)

    def _held(self, scope: Scope, id: str, puts: Mapping[str, Put]) -> Record | None:
        """What stands under `id`, or is about to."""
        return puts[id].record if id in puts else self.storage.get(scope, id)


def _content(record: Record) -> Record:
    return replace(record, version=0, revision=0, metadata=dict(record.metadata))


def _same(record: Record, other: Record) -> bool:
    return _content(record) == _content(other)


def _renamed(record: Record) -> Record:
    """`record` under an id made of its content, so that repeating an import finds it again."""
    content = json.dumps(_content(record).to_dict(), sort_keys=True, ensure_ascii=False)
    digest = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    return replace(record, id=digest, metadata={**record.metadata, "imported_id": record.id})


def _likeness(record: Record) -> tuple[str | None, str]:
    return record.chain, record.text.strip().casefold()
