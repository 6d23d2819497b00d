"""The archive as its tools see it. The store is opened lazily, so that tools that do not need it work without."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.archive.code.imports.parser import ImportParser
from pointsman.archive.code.reader import AccessLog, NullAccessLog
from pointsman.archive.indexes.indexes import Indexes, no_store
from pointsman.archive.settings import ArchiveSettings, PostgresStore
from pointsman.archive.store.errors import StoreAwayError, StoreError, StoreUnusableError
from pointsman.archive.store.outage import Outage

if TYPE_CHECKING:
    from pointsman.archive.context.service import ProjectContext
    from pointsman.archive.embedding.passage_vectors import BackgroundEmbedding
    from pointsman.archive.search.searcher import Searcher
    from pointsman.archive.store.base import Storage

logger = logging.getLogger(__name__)


def open_archive(settings: ArchiveSettings, *, shipped: bool = True) -> Archive:
    """`shipped`: put Pointsman's own documentation into a new store."""
    if settings.database is None:
        return Archive(settings.roots, Indexes(settings.index_limits, no_store))
    store = LazyStore(settings, shipped=shipped)
    shared = isinstance(settings.database, PostgresStore)
    indexes = Indexes(settings.index_limits, lambda: store.storage().indexes, shared=shared)
    return Archive(settings.roots, indexes, store)


@dataclass(frozen=True, slots=True)
class Archive:
    """Ends with `close`.

    Raises:
        StoreError: from `storage`, `searcher`, `context` and `embedding`, if there is no store or it cannot be opened.
    """

    roots: Mapping[str, Path]  # the folders that the code tools may read, by name
    indexes: Indexes = field(default_factory=Indexes)  # made by callers
    store: LazyStore | None = None
    access_log: AccessLog | None = None  # None: in the store
    imports: ImportParser = field(default_factory=ImportParser)  # starts its process with the first parsed file

    @property
    def storage(self) -> Storage:
        return self._require_store().storage()

    @property
    def searcher(self) -> Searcher:
        return self._require_store().searcher()

    @property
    def context(self) -> ProjectContext:
        return self._require_store().context()

    @property
    def embedding(self) -> BackgroundEmbedding | None:
        """What computes vectors in the background; None: embeddings are disabled."""
        return self._require_store().embedding()

    @property
    def accesses(self) -> AccessLog:
        """Where reads are recorded. A read does not fail for lack of a store."""
        if self.access_log is not None:
            return self.access_log
        try:
            return self.context.accesses
        except StoreError:
            return NullAccessLog()

    def prepare(self) -> None:
        """Open the store in the background, ahead of the first call."""
        if self.store is not None:
            self.store.prepare()

    def close(self) -> None:
        self.imports.close()
        if self.store is not None:
            self.store.close()

    def _require_store(self) -> LazyStore:
        if self.store is None:
            no_store()
        assert self.store is not None
        return self.store


@dataclass(frozen=True, slots=True)
class _Opened:
    storage: Storage
    searcher: Searcher
    context: ProjectContext
    background: BackgroundEmbedding | None


class LazyStore:
    """One store for all tools, opened at its first use. A failure is retried at the next call.

    While its server is away, a thread retries, and calls hear so at once.

    Raises:
        StoreError: from `storage`, `searcher`, `context` and `embedding`.
    """

    def __init__(self, settings: ArchiveSettings, *, shipped: bool) -> None:
        self._settings = settings
        self._shipped = shipped
        self._lock = threading.Lock()
        self._opened: _Opened | None = None
        self._closed = False
        self._outage = Outage(self._try_again)

    def prepare(self) -> None:
        threading.Thread(target=self._prepare, name="archive-opening", daemon=True).start()

    def storage(self) -> Storage:
        return self._open().storage

    def searcher(self) -> Searcher:
        return self._open().searcher

    def context(self) -> ProjectContext:
        return self._open().context

    def embedding(self) -> BackgroundEmbedding | None:
        return self._open().background

    def close(self) -> None:
        self._outage.close()
        with self._lock:
            opened, self._opened, self._closed = self._opened, None, True
        if opened is not None:
            opened.context.close()
            if opened.background is not None:
                opened.background.close()
            opened.storage.close()

    def _open(self) -> _Opened:
        self._outage.check()
        with self._lock:
            self._outage.check()  # another call may have tried meanwhile
            try:
                return self._try()
            except StoreAwayError as error:
                self._outage.begin(error)
                raise

    def _try(self) -> _Opened:
        if self._closed:
            raise StoreUnusableError("The archive is closing. Try again in a moment.")
        if self._opened is None:
            self._opened = _open(self._settings, self._shipped)
        return self._opened

    def _try_again(self) -> None:
        with self._lock:
            self._try()

    def _prepare(self) -> None:
        try:
            self.searcher().prepare()
        except StoreError as error:  # the next tool call reports it too
            logger.warning("%s", error)


def open_storage(database: Path | PostgresStore) -> Storage:
    """Raises StoreError."""
    if isinstance(database, PostgresStore):
        from pointsman.archive.store.postgres.storage import PostgresStorage

        return PostgresStorage(database.url, database.schema)
    from pointsman.archive.store.sqlite.storage import SqliteStorage

    return SqliteStorage(database)


def _open(settings: ArchiveSettings, shipped: bool) -> _Opened:
    from pointsman.archive.context.service import ProjectContext
    from pointsman.archive.embedding.passage_vectors import BackgroundEmbedding
    from pointsman.archive.embedding.settings import make_embeddings
    from pointsman.archive.search.searcher import Searcher
    from pointsman.archive.shipped import ensure_pages

    assert settings.database is not None  # else `open_archive` makes no LazyStore
    storage = open_storage(settings.database)
    if shipped:
        ensure_pages(storage)
    storage.wake_housekeeper()  # a previous process may have left work
    embeddings = make_embeddings(settings.embeddings)
    background = BackgroundEmbedding(storage, embeddings) if embeddings is not None else None
    context = ProjectContext(storage.context, embeddings, settings.roots, storage.turn)
    return _Opened(storage, Searcher(storage, embeddings), context, background)
