"""From settings to an archive. The store is opened by the first tool that needs it, so that the others work without."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.archive.archive import Archive
from pointsman.archive.indexes.base import KeptIndexes
from pointsman.archive.indexes.indexes import Indexes, nothing_kept
from pointsman.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from pointsman.archive.store.sqlite.database import Database


def open_archive(settings: ArchiveSettings) -> Archive:
    kept = nothing_kept
    if settings.database is not None:
        opening = Opening(settings.database)

        def kept() -> KeptIndexes:
            from pointsman.archive.store.sqlite.indexes import SqliteIndexes

            return SqliteIndexes(opening.database())

    return Archive(settings.roots, Indexes(settings.index_limits, kept))


class Opening:
    """One database for all. What fails is tried again at the next call: a disk may be back by then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._opened: Database | None = None

    def database(self) -> Database:
        """Raises StoreError."""
        from pointsman.archive.store.sqlite.database import Database
        from pointsman.archive.store.sqlite.tables import VERSIONS

        with self._lock:
            if self._opened is None:
                self._opened = Database(self._path, VERSIONS)
            return self._opened
