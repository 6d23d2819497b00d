"""One run over one folder: what is new or changed is read, what is gone is removed, the rest is left alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.archive.ingest.documents import prepare
from pointsman.archive.ingest.files import MAX_BYTES, BrokenFileError, Kind, kind_of, read_bytes
from pointsman.archive.ingest.walk import EVERYTHING, FoundFile, Selection, Walk
from pointsman.archive.model.documents import FileState, PreparedDocument, Source
from pointsman.archive.store.base import DocumentStore

BATCH_DOCUMENTS = 100
BATCH_CHARS = 4_000_000


class EmptyFolderError(Exception):
    """Nothing is found where documents came from: more likely a disk that is not mounted than a wish."""

    def __init__(self, root: Path, collection: str, documents: int) -> None:
        super().__init__(
            f"There is nothing to read in {root}, but {documents} documents of the collection `{collection}` came from "
            "there. Nothing was changed. Is it mounted? To remove them, add --allow-empty."
        )


@dataclass(frozen=True, slots=True)
class Order:
    """What to do. `again`: read files even if they look as they did."""

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
    broken: dict[str, str] = field(default_factory=dict)  # by path below the folder: why it was left out

    @property
    def documents(self) -> int:
        return self.added + self.changed + self.unchanged


Progress = Callable[[Iterable[FoundFile], int], Iterable[FoundFile]]
"""Hands the files on, and may show how far it is."""


def ingest(store: DocumentStore, order: Order, progress: Progress = lambda files, _: files) -> Report:
    """The collection must be there. What is committed stays, however this ends.

    Raises:
        EmptyFolderError
        GlobError
        StoreError
    """
    walk = Walk(order.root, order.selection)
    files = list(walk)
    ids = _Ids(store.origins(order.collection), order.root)
    if not files and not order.allow_empty and (there := len(ids.below_root())):
        raise EmptyFolderError(order.root, order.collection, there)
    report = Report(broken={path: f"it cannot be looked into: {why}" for path, why in walk.unread.items()})
    batch = _Batch(store, order.collection)
    for document in _read(store, order, progress(files, len(files)), ids, report):
        batch.add(document)
    batch.flush()
    gone = _gone(order, ids, {str(file.path) for file in files}, walk.unread)
    for first in range(0, len(gone), BATCH_DOCUMENTS):
        report.removed += store.remove_documents(order.collection, gone[first : first + BATCH_DOCUMENTS])
    return report


def _read(
    store: DocumentStore, order: Order, files: Iterable[FoundFile], ids: _Ids, report: Report
) -> Iterator[PreparedDocument]:
    for file in files:
        if not _is_unicode(file.below):
            report.broken[file.below.encode("utf-8", "replace").decode()] = "its name is not UTF-8; rename it"
            continue
        id_ = ids.of(file)
        known = ids.state(id_)
        if known and not order.again and known == FileState(str(file.path), file.size, file.mtime_ns, known.sha256):
            report.unchanged += 1
            continue
        try:
            kind = kind_of(file.below) or "text"
            raw, state = _looked_at(file, kind)
            if known and not order.again and known.sha256 == state.sha256:
                store.touch(order.collection, id_, state)
                report.unchanged += 1
                continue
            document = prepare(raw, kind, state, collection=order.collection, id=id_, source=order.source)
        except BrokenFileError as error:
            report.broken[file.below] = str(error)
            continue
        yield document
        report.added += known is None
        report.changed += known is not None


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that Python carries along
        return False
    return True


def _looked_at(file: FoundFile, kind: Kind) -> tuple[bytes, FileState]:
    if file.size > MAX_BYTES[kind]:
        raise BrokenFileError(f"it is larger than {MAX_BYTES[kind] >> 20} MB; cut it into parts")
    return read_bytes(file.path, kind)


def _gone(order: Order, ids: _Ids, found: set[str], unread: Mapping[str, str]) -> list[str]:
    """Documents whose files are no longer there, or no longer to be read.

    With --include or --exclude a file may be passed over only this time; below a folder that cannot be looked into,
    nothing is known to be gone.
    """
    hidden = tuple(f"{order.root / path}{os.sep}" for path in unread if path != ".")
    return [
        id_
        for id_, path in ids.below_root()
        if path not in found
        and not path.startswith(hidden)
        and "." not in unread
        and (not order.selection.narrowed or not os.path.lexists(path))
    ]


class _Ids:
    """Which file is which document: the one it was, else its path below the folder, else that with more in front."""

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
        """Ids and paths of the documents that came from the folder."""
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
        """Also when its file is no more: the folder was moved, and this is its new place."""
        held = self._origins.get(id_)
        return id_ not in self._taken and (held is None or not os.path.lexists(held.path))


class _Batch:
    """Documents that are committed together."""

    def __init__(self, store: DocumentStore, collection: str) -> None:
        self._store = store
        self._collection = collection
        self._held: list[PreparedDocument] = []
        self._chars = 0

    def add(self, document: PreparedDocument) -> None:
        self._held.append(document)
        self._chars += len(document.document.content)
        if len(self._held) >= BATCH_DOCUMENTS or self._chars >= BATCH_CHARS:
            self.flush()

    def flush(self) -> None:
        if self._held:
            self._store.put_documents(self._collection, self._held)
            self._held.clear()
            self._chars = 0
