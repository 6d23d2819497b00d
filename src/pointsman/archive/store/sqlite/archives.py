"""Whole documents: which have the words, how they are shown, where their words stand."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from pointsman.archive.model.query import Filters
from pointsman.archive.store.archives import Described, Graph, Holders, References
from pointsman.archive.store.sqlite import citing
from pointsman.archive.store.sqlite import highlight as marking
from pointsman.archive.store.sqlite.database import Database
from pointsman.archive.store.sqlite.filtering import in_hidden, on_collections, on_documents
from pointsman.archive.store.sqlite.matching import term
from pointsman.archive.store.sqlite.passage_map import Numbers, PassageMap, PassageMaps
from pointsman.archive.store.sqlite.vocabulary import SqliteVocabulary
from pointsman.archive.text.vocabulary import Vocabulary

_MOST_PASSAGES = 100_000  # looked at for one word
_FEW = 50  # passages: so few are counted without those that are about to be cleaned away
_BODY = "{heading text parts}"


class SqliteArchives:
    """Fits `ArchiveStore`. What it keeps in memory belongs to one file: another one in its place begins anew."""

    def __init__(self, database: Database, wake_housekeeper: Callable[[], None]) -> None:
        self._database = database
        self._wake_housekeeper = wake_housekeeper
        self._remembered = (0, PassageMap(), SqliteVocabulary(wake_housekeeper))

    @contextmanager
    def reading(self) -> Iterator[SqliteArchiveView]:
        with self._database.reading() as connection:
            _, belonging, vocabulary = self._memory()
            yield SqliteArchiveView(connection, belonging.current(connection), vocabulary)

    def _memory(self) -> tuple[int, PassageMap, SqliteVocabulary]:
        file = os.stat(self._database.path).st_ino
        if self._remembered[0] != file:
            self._remembered = (file, PassageMap(), SqliteVocabulary(self._wake_housekeeper))
        return self._remembered


class SqliteArchiveView:
    """Fits `ArchiveView`. Good for the length of its transaction."""

    def __init__(self, connection: sqlite3.Connection, belongings: PassageMaps, vocabulary: SqliteVocabulary) -> None:
        self._connection = connection
        self._belongings = belongings
        self._vocabulary = vocabulary

    def total(self) -> int:
        (total,) = self._connection.execute("SELECT total(passages) FROM collections").fetchone()
        return int(total)

    def seen(self, text: str, most: int) -> int:
        (times,) = self._connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)", (term(text), most + 1)
        ).fetchone()
        return int(times) if times > _FEW else len(self._places(term(text))[0])

    def holders(self, text: str) -> Holders:
        passages, documents = self._places(f"{_BODY} : ({term(text)})")
        _, titles = self._places(f"title : ({term(text)})")
        return Holders(passages, documents, np.unique(titles))

    def together(self, texts: Sequence[Sequence[str]]) -> Numbers:
        expression = " AND ".join(f"({' OR '.join(map(term, any_of))})" for any_of in texts)
        return np.unique(self._places(expression)[1])

    def lengths(self, documents: Numbers) -> Numbers:
        return self._belongings.lengths[documents]

    def within(self, filters: Filters) -> Numbers | None:
        where, values = _condition(filters)
        if not where:
            return None
        rows = self._connection.execute(f"SELECT id FROM documents WHERE {where}", values).fetchall()
        return _column(rows)

    def hidden(self, filters: Filters) -> Numbers:
        query, names = in_hidden(filters)
        return _column(self._connection.execute(query, names).fetchall() if query else [])

    def newest(self, filters: Filters, limit: int) -> list[int]:
        where, values = _condition(filters)
        rows = self._connection.execute(
            f"SELECT id FROM documents WHERE {where or 'true'} ORDER BY date DESC, id DESC LIMIT ?", (*values, limit)
        )
        return [row for (row,) in rows]

    def described(self, documents: Sequence[int]) -> dict[int, Described]:
        rows = self._connection.execute(
            "SELECT documents.id, collections.name || '/' || documents.name, title, documents.name, source, date "
            "FROM documents JOIN collections ON collections.id = documents.collection "
            f"WHERE documents.id IN ({', '.join('?' * len(documents))})",
            tuple(documents),
        )
        return {row[0]: Described(*row[1:]) for row in rows}

    def marked_title(self, document: int, texts: Sequence[str]) -> str | None:
        return marking.title(self._connection, document, texts)

    def marked_passage(self, passage: int, texts: Sequence[str]) -> str | None:
        return marking.passage(self._connection, passage, texts)

    def vocabulary(self) -> Vocabulary:
        return self._vocabulary.current(self._connection)

    def references(self, document: int, most: int) -> References:
        return citing.references(self._connection, document, most)

    def graph(self, documents: Sequence[int], depth: int, most: int) -> Graph:
        return citing.graph(self._connection, documents, depth, most)

    def _places(self, expression: str) -> tuple[Numbers, Numbers]:
        """Passages and their documents, without what is about to be cleaned away."""
        rows = self._connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", (expression, _MOST_PASSAGES)
        ).fetchall()
        passages = _column(rows)
        known = self._belongings.document_of
        passages = passages[passages < len(known)]
        documents = known[passages]
        alive = documents > 0
        return passages[alive], documents[alive]


def _column(rows: list[tuple[int]]) -> Numbers:
    return np.array(rows, np.int64).reshape(-1)


def _condition(filters: Filters) -> tuple[str, tuple[str, ...]]:
    """On documents; empty where all pass."""
    _, of_collections, names = on_collections(filters)
    _, of_documents, values = on_documents(filters)
    chosen = f"collection IN (SELECT id FROM collections WHERE {of_collections})" if of_collections else ""
    return " AND ".join(filter(None, (chosen, of_documents))), (*names, *values)
