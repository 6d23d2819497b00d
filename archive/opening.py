"""From settings to an archive. The store is opened by the first tool that needs it, so that the others work without."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.archive.archive import Archive
from pointsman.archive.embedding.settings import EmbeddingSettings
from pointsman.archive.indexes.indexes import Indexes, nothing_kept
from pointsman.archive.settings import ArchiveSettings
from pointsman.archive.store.errors import StoreError, StoreUnusable

if TYPE_CHECKING:
    from pointsman.archive.embedding.background import BackgroundEmbedding
    from pointsman.archive.search.searcher import Searcher
    from pointsman.archive.store.base import Storage


logger = logging.getLogger(__name__)


def open_archive(settings: ArchiveSettings, *, shipped: bool = True) -> Archive:
    """`shipped`: a new store gets Pointsman's own documentation."""
    if settings.database is None:
        return Archive(settings.roots, Indexes(settings.index_limits, nothing_kept))
    opening = Opening(settings.database, settings.embeddings, shipped)
    return Archive(settings.roots, Indexes(settings.index_limits, lambda: opening.storage().indexes), opening)


@dataclass(frozen=True, slots=True)
class _Opened:
    storage: Storage
    searcher: Searcher
    background: BackgroundEmbedding | None


class Opening:
    """One store for all. What fails is tried again at the next call: a disk may be back by then.

    Raises:
        StoreError: from `storage` and `searcher`.
    """

    def __init__(self, path: Path, embeddings: EmbeddingSettings, shipped: bool) -> None:
        self._path = path
        self._shipped = shipped
        self._embeddings = embeddings
        self._lock = threading.Lock()
        self._opened: _Opened | None = None
        self._closed = False

    def prepare(self) -> None:
        threading.Thread(target=self._prepare, name="archive-opening", daemon=True).start()

    def storage(self) -> Storage:
        return self._open().storage

    def searcher(self) -> Searcher:
        return self._open().searcher

    def close(self) -> None:
        with self._lock:
            opened, self._opened, self._closed = self._opened, None, True
        if opened is not None:
            if opened.background is not None:
                opened.background.close()
            opened.storage.close()

    def _open(self) -> _Opened:
        with self._lock:
            if self._closed:
                raise StoreUnusable("The archive is closing.")
            if self._opened is None:
                self._opened = _open(self._path, self._embeddings, self._shipped)
            return self._opened

    def _prepare(self) -> None:
        try:
            self.searcher().prepare()
        except StoreError as error:  # whoever calls a tool is told as well
            logger.warning("%s", error)


def _open(path: Path, settings: EmbeddingSettings, shipped: bool) -> _Opened:
    from pointsman.archive.embedding.background import BackgroundEmbedding
    from pointsman.archive.embedding.choosing import make_embeddings
    from pointsman.archive.search.searcher import Searcher
    from pointsman.archive.shipped import ensure_pages
    from pointsman.archive.store.sqlite.storage import SqliteStorage

    storage = SqliteStorage(path)
    if shipped:
        ensure_pages(storage)
    storage.housekeeper.wake()  # whoever wrote before us may have left something to do
    embeddings = make_embeddings(settings)
    background = BackgroundEmbedding(storage, embeddings) if embeddings is not None else None
    return _Opened(storage, Searcher(storage, embeddings), background)
