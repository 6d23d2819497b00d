"""One run over one folder: new and changed files are read, documents of deleted files removed, the rest left alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.archive.ingest.documents import prepare
from pointsman.archive.ingest.files import BrokenFileError, kind_of, read_bytes
from pointsman.archive.ingest.walk import EVERYTHING, FoundFile, Selection, Walk
from pointsman.archive.model.documents import FileState, PreparedDocument, Source
from pointsman.archive.store.base import DocumentStore
from pointsman.archive.text.lines import is_encodable

BATCH_DOCUMENTS = 100
BATCH_CHARS = 4_000_000


class EmptyFolderError(Exception):
    """A folder that documents came from has no files any more: more likely unmounted than emptied on purpose."""

    def __init__(self, root: Path, collection: str, documents: int) -> None:
        super().__init__(
            f"{root} has no files to read, but {documents} documents of the collection `{collection}` came from it. "
            "Nothing was changed. Check that it is mounted. To remove the documents, add --allow-empty."
        )


@dataclass(frozen=True, slots=True)
class IngestJob:
    """What to ingest. `again`: read files even if they are unchanged."""

    root: Path
    collection: str
    source: Source | None = None
    selection: Selection = EVERYTHING
    again: bool = False
    allow_empty: bool = False


@dataclass(slots=True)
class Report:
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    broken: dict[str, str] = field(default_factory=dict)  # by path below the folder: why it was skipped

    @property
    def documents(self) -> int:
        return self.added + self.changed + self.unchanged


Progress = Callable[[Iterable[FoundFile], int], Iterable[FoundFile]]
"""Iterates over the files, and may show the progress."""


def ingest(store: DocumentStore, job: IngestJob, progress: Progress = lambda files, _: files) -> Report:
    """Bring a collection, which must exist, up to date with a folder. What was committed stays, even if the run fails.

    Raises:
        EmptyFolderError
        FilePatternError
        StoreError
    """
    walk = Walk(job.root, job.selection)
    files = list(walk)
    ids = _Ids(store.origins(job.collection), job.root)
    if not files and not job.allow_empty and (ingested := len(ids.below_root())):
        raise EmptyFolderError(job.root, job.collection, ingested)
    report = Report(broken={path: f"it cannot be read: {why}" for path, why in walk.unread.items()})
    batch = _Batch(store, job.collection)
    for document in _read(store, job, progress(files, len(files)), ids, report):
        batch.add(document)
    batch.flush()
    gone = _gone(job, ids, {str(file.path) for file in files}, walk.unread)
    for first in range(0, len(gone), BATCH_DOCUMENTS):
        report.removed += store.remove_documents(job.collection, gone[first : first + BATCH_DOCUMENTS])
    return report


def _read(
    store: DocumentStore, job: IngestJob, files: Iterable[FoundFile], ids: _Ids, report: Report
) -> Iterator[PreparedDocument]:
    for file in files:
        if not is_encodable(file.below):
            report.broken[file.below.encode("utf-8", "replace").decode()] = "its name is not UTF-8; rename it"
            continue
        id_ = ids.of(file)
        known = ids.state(id_)
        if known and not job.again and known == FileState(str(file.path), file.size, file.mtime_ns, known.sha256):
            report.unchanged += 1
            continue
        try:
            kind = kind_of(file.below) or "text"
            raw, state = read_bytes(file.path, kind)
            if known and not job.again and known.sha256 == state.sha256:
                store.touch(job.collection, id_, state)
                report.unchanged += 1
                continue
            document = prepare(raw, kind, state, collection=job.collection, id=id_, source=job.source)
        except BrokenFileError as error:
            report.broken[file.below] = str(error)
            continue
        yield document
        report.added += known is None
        report.changed += known is not None


def _gone(job: IngestJob, ids: _Ids, found: set[str], unread: Mapping[str, str]) -> list[str]:
    """Documents whose files were deleted, or are no longer to be read.

    With --include or --exclude a file may be skipped in this run only, so it must be deleted. Below a folder that
    cannot be read, no document is removed.
    """
    hidden = tuple(f"{job.root / path}{os.sep}" for path in unread if path != ".")
    return [
        id_
        for id_, path in ids.below_root()
        if path not in found
        and not path.startswith(hidden)
        and "." not in unread
        and (not job.selection.narrowed or not os.path.lexists(path))
    ]


class _Ids:
    """Maps files to document ids: the id a file had, else its path below the folder, else that with parent folders."""

    def __init__(self, origins: Mapping[str, FileState], root: Path) -> None:
        self._origins = dict(origins)
        self._root = root
        self._by_path = {state.path: id_ for id_, state in origins.items()}
        self._taken: set[str] = set()

    def of(self, file: FoundFile) -> str:
        path = str(file.path)
        known = self._by_path.get(path)
        id_ = known or next(candidate for candidate in self._candidates(file) if self._free(candidate))
        self._taken.add(id_)
        return id_

    def state(self, id_: str) -> FileState | None:
        return self._origins.get(id_)

    def below_root(self) -> list[tuple[str, str]]:
        """Ids and paths of the documents that were read from the folder."""
        prefix = f"{self._root}{os.sep}"
        return [
            (id_, state.path)
            for id_, state in self._origins.items()
            if state.path.startswith(prefix) and id_ not in self._taken
        ]

    def _candidates(self, file: FoundFile) -> Iterator[str]:
        candidate = file.below
        yield candidate
        for folder in (self._root, *self._root.parents):
            candidate = f"{folder.name}/{candidate}"
            yield candidate

    def _free(self, id_: str) -> bool:
        """Also if its file no longer exists: the folder was moved."""
        origin = self._origins.get(id_)
        return id_ not in self._taken and (origin is None or not os.path.lexists(origin.path))


class _Batch:
    """Documents that are committed together."""

    def __init__(self, store: DocumentStore, collection: str) -> None:
        self._store = store
        self._collection = collection
        self._documents: list[PreparedDocument] = []
        self._chars = 0

    def add(self, document: PreparedDocument) -> None:
        self._documents.append(document)
        self._chars += len(document.document.content)
        if len(self._documents) >= BATCH_DOCUMENTS or self._chars >= BATCH_CHARS:
            self.flush()

    def flush(self) -> None:
        if self._documents:
            self._store.put_documents(self._collection, self._documents)
            self._documents.clear()
            self._chars = 0
