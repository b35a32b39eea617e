"""Reading files and old vaults into the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..changes import Change, Delete, Put
from ..errors import InputError, NanomemError
from ..pipeline.chunking import passages
from ..records import Record, clean_metadata
from ..view import has_vectors
from .parcels import Parcel
from .transfer import Transfer

if TYPE_CHECKING:
    from ..pipeline.readers import Section, SourceFile

__all__ = ["Ingesting", "SectionMetadata"]

_BATCH = 256
"""Records that are embedded between two reports of progress."""

SectionMetadata = Mapping[str, Any] | Callable[[str, int, int], Mapping[str, Any]]
"""Metadata for the sections of a file: one mapping, or a function of (text, start line, end line)."""


class Ingesting(Transfer):
    """The part of `Memory` that reads files."""

    def ingest_file(
        self,
        path: str | Path,
        lines_per_chunk: int = 50,
        overlap_lines: int = 10,
        metadata: SectionMetadata | None = None,
        source: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> int:
        """Remember a text file section by section, in one commit; returns the number of sections.

        Markdown is cut at headings, CSV keeps its header, JSON and YAML their elements, code its blocks; other text is
        cut into windows of lines. A file that is unchanged since it was read is skipped; of a changed one the old
        sections are replaced. Its sections are no statements of the user, so they form no chains.

        Raises:
            NotFoundError: no such file.
            InputError: it is binary, or can't be read.
        """
        from ..pipeline.readers import read_file  # with all formats, which a program that reads no files needn't load

        return self._ingest(
            read_file(path, lines=lines_per_chunk, overlap=overlap_lines), metadata, source, user, agent
        )[0]

    def ingest_directory(
        self,
        directory: str | Path,
        extensions: Iterable[str] | None = None,
        ignore_dirs: Iterable[str] | None = None,
        confine_root: str | Path | None = None,
        *,
        metadata: SectionMetadata | None = None,
        progress: Callable[[int, int, str], None] | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> dict[str, Any]:
        """Remember every text file below a directory; a file that can't be read is reported and hinders no other.

        Returns ``files_indexed``, ``chunks_indexed``, ``skipped_unchanged`` and ``failed``, a mapping from path to
        reason. `progress` is told the files done, of how many, and the next one's path. For the other arguments see
        `nanomem_core.pipeline.walk.walk`.
        """
        from ..pipeline.readers import read_file
        from ..pipeline.walk import walk

        files = list(walk(directory, extensions, ignore_dirs, confine_root))
        report: dict[str, Any] = {"files_indexed": 0, "chunks_indexed": 0, "skipped_unchanged": 0, "failed": {}}
        for number, path in enumerate(files):
            if progress is not None:
                progress(number, len(files), str(path))
            try:
                count, changed = self._ingest(read_file(path), metadata, None, user, agent)
            except NanomemError as error:
                if not isinstance(error, (InputError, LookupError)):
                    raise
                report["failed"][str(path)] = str(error)
                continue
            report["files_indexed" if changed else "skipped_unchanged"] += 1
            report["chunks_indexed"] += count if changed else 0
        if progress is not None:
            progress(len(files), len(files), "")
        return report

    def _ingest(
        self,
        file: SourceFile,
        metadata: SectionMetadata | None,
        source: str | None,
        user: str | None,
        agent: str | None,
    ) -> tuple[int, bool]:
        """Returns the number of sections, and whether anything had to be written."""
        frame = self._frame(user=user, agent=agent, filter={"file_id": file.id})
        held = frame.records(np.flatnonzero(frame.allowed).tolist()).values()
        if held and all(record.metadata.get("file_sha256") == file.sha256 for record in held):
            return len(held), False
        now = self._clock()
        puts: list[Change] = [
            Put(self._section_record(file, section, metadata, source, now)) for section in file.sections
        ]
        kept = {put.record.id for put in puts if isinstance(put, Put)}
        old: list[Change] = [Delete(record.id) for record in held if record.id not in kept]
        if puts or old:
            self._commit(self._scope(user, agent), [*old, *puts])
        return len(puts), bool(puts or old)

    def _section_record(
        self, file: SourceFile, section: Section, metadata: SectionMetadata | None, source: str | None, now: float
    ) -> Record:
        given = metadata(section.text, section.start_line, section.end_line) if callable(metadata) else metadata
        cleaned = clean_metadata(given)
        cleaned.pop("entity", None)
        return Record(
            id=file.section_id(section),
            text=section.text,
            valid_from=now,
            recorded_at=now,
            source=file.source(section) if source is None else source,
            metadata={**cleaned, **file.section_metadata(section)},
        )

    def import_nanomem(
        self,
        path: str | Path,
        password: str | None = None,
        *,
        keep_vectors: bool = False,
        user: str | None = None,
        agent: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        """Bring over a vault that PyPI's ``nanomem`` 0.8 wrote: ids, texts, metadata, times, revisions, entities.

        The old file does not say which model made its vectors. With `keep_vectors` you state that it was this
        memory's embedder, and they come along; otherwise the texts are embedded anew. Returns the report of
        `import_` and ``notes``, a list of (rule, id, detail) for what could not be brought over as it was.

        Raises:
            ConfigError: the extra ``nanomem08`` is not installed.
            InputError: `keep_vectors`, and the vectors have another width than the embedder's.
        """
        from ..pipeline.nanomem08 import read_nanomem

        vault = read_nanomem(path, password)
        space = None
        if keep_vectors:
            if vault.dim != self.embedder.dim:
                raise InputError(
                    f"keep_vectors: the vectors in {path} have {vault.dim} dimensions, those of the embedder "
                    f"{self.embedder.id!r} have {self.embedder.dim}; leave keep_vectors out to embed the texts anew"
                )
            space = self._space()
        scope = self._scope(user, agent)
        report = self.import_((Parcel(scope, record, vectors, space) for record, vectors in vault), progress=progress)
        return {**report, "notes": [[note.rule, note.id, note.detail] for note in vault.notes]}

    def reembed(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Replace all vectors of the store, in all scopes, by those of this memory's embedder; returns how many records
        were embedded by this call.

        Until all are done the old vectors stay in use; interrupted work is taken up by the next call.
        """
        self._check_open()
        tell = progress or (lambda done, total: None)
        if not self.storage.keeps_vectors:
            return self._refill(tell)
        count = self.storage.reembed(self._space(), self._embed, tell)
        with self._lock:
            self._views.clear()
        return count

    def _refill(self, progress: Callable[[int, int], None]) -> int:
        """Fill the sidecar; it keeps the vectors of each embedder apart, so there are none to replace."""
        held = self._derived_vectors()
        everything = (record for scope in self.storage.scopes() for record in self.storage.scan(scope))
        records = [record for record in everything if has_vectors(record)]
        fresh = [record for record in records if not held.knows(passages(record.text))]
        done = len(records) - len(fresh)
        for start in range(0, len(fresh), _BATCH):
            self._embed(fresh[start : start + _BATCH])
            progress(done + min(start + _BATCH, len(fresh)), len(records))
        return len(fresh)
