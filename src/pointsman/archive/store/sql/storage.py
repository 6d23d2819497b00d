"""The parts of a store that both engines have in common, put together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from pointsman.archive.store.sql.archives import SqlArchives
from pointsman.archive.store.sql.context import ItemRanking, SqlContext
from pointsman.archive.store.sql.database import Database
from pointsman.archive.store.sql.documents import SqlDocuments
from pointsman.archive.store.sql.housekeeper import Housekeeper
from pointsman.archive.store.sql.indexes import SqlIndexes
from pointsman.archive.store.sql.key_values import SqlKeyValues
from pointsman.archive.store.sql.passages import SqlPassages
from pointsman.archive.store.sql.vectors import SqlVectors
from pointsman.archive.store.sql.words import SqlWords


class SqlStorage:
    """Fits `Storage`, with the engine's `vector_search`. Ends with `close`."""

    def __init__(self, database: Database, rank_items: ItemRanking, finish: Callable[[], None]) -> None:
        """`rank_items`: how the engine ranks context items. `finish`: what it does when the housekeeping is done."""
        words = SqlWords(database)
        self.housekeeper = Housekeeper(database, words, finish)
        self.documents = SqlDocuments(database, self.housekeeper.wake)
        self.passages = SqlPassages(database, words)
        self.context = SqlContext(database, rank_items)
        self.vectors = SqlVectors(database)
        self.archives = SqlArchives(database, words, self.housekeeper.wake)
        self.indexes = SqlIndexes(database)
        self.key_values = SqlKeyValues(database)
        self._engine = database

    def reading(self) -> AbstractContextManager[object]:
        return self._engine.reading()

    def turn(self, task: str) -> AbstractContextManager[bool]:
        return self._engine.turn(task)

    def wake_housekeeper(self) -> None:
        self.housekeeper.wake()

    def tidy(self) -> None:
        self.housekeeper.tidy()

    def close(self) -> None:
        self.housekeeper.close()
        self._engine.close()
