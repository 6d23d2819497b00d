"""Whole documents: which of them have the words, how they are listed, and excerpts with the words highlighted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from pointsman.archive.model.query import Filters
from pointsman.archive.store.archives import DocumentDescription, Graph, Postings, References
from pointsman.archive.store.excerpts import excerpt, highlight
from pointsman.archive.store.phrase_frequencies import BODY
from pointsman.archive.store.postings import TITLE
from pointsman.archive.store.sql import citations
from pointsman.archive.store.sql.database import Connection, Database, placeholders
from pointsman.archive.store.sql.filters import in_hidden, on_collections, on_documents
from pointsman.archive.store.sql.passage_texts import PLACED, Texts
from pointsman.archive.store.sql.vocabulary import SqlVocabulary
from pointsman.archive.store.sql.words import SqlWords
from pointsman.archive.store.text_search import TextSearch
from pointsman.archive.text.vocabulary import Vocabulary

Numbers = npt.NDArray[np.int64]

_TITLES = frozenset((TITLE,))


class SqlArchives:
    """Fits `ArchiveStore`. Its caches belong to one database: when another one takes its place, they start empty."""

    def __init__(self, database: Database, words: SqlWords, wake_housekeeper: Callable[[], None]) -> None:
        self._database = database
        self._words = words
        self._wake_housekeeper = wake_housekeeper
        self._vocabulary: tuple[object, SqlVocabulary] = (None, SqlVocabulary(wake_housekeeper))

    @contextmanager
    def reading(self) -> Iterator[SqlArchiveView]:
        with self._database.reading() as connection:
            search = self._words.search(connection)
            vocabulary = self._current_vocabulary(connection)
            yield SqlArchiveView(connection, self._database.has_tag, search, vocabulary)

    def _current_vocabulary(self, connection: Connection) -> SqlVocabulary:
        identity = self._database.identity(connection)
        if self._vocabulary[0] != identity:
            self._vocabulary = (identity, SqlVocabulary(self._wake_housekeeper))
        return self._vocabulary[1]


class SqlArchiveView:
    """Fits `ArchiveView`. Valid for the length of its transaction."""

    def __init__(self, connection: Connection, has_tag: str, search: TextSearch, vocabulary: SqlVocabulary) -> None:
        self._connection = connection
        self._has_tag = has_tag
        self._search = search
        self._vocabulary = vocabulary

    def passage_count(self) -> int:
        return self._search.corpus.total

    def count_passages(self, text: str, most: int) -> int:
        return min(len(self._search.passages(text)), most + 1)

    def postings(self, text: str) -> Postings:
        corpus = self._search.corpus
        passages = self._search.passages(text, BODY)
        titles = self._search.passages(text, _TITLES)
        return Postings(passages, corpus.documents(passages), np.unique(corpus.documents(titles)))

    def documents_with_all(self, groups: Sequence[Sequence[str]]) -> Numbers:
        return np.unique(self._search.corpus.documents(self._search.with_all(groups)))

    def lengths(self, documents: Numbers) -> Numbers:
        return self._search.corpus.passages_of[documents]

    def within(self, filters: Filters) -> Numbers | None:
        where, values = _condition(filters, self._has_tag)
        if not where:
            return None
        rows = self._connection.execute(f"SELECT id FROM documents WHERE {where}", values).fetchall()
        return _column(rows)

    def hidden(self, filters: Filters) -> Numbers:
        query, names = in_hidden(filters)
        return _column(self._connection.execute(query, names).fetchall() if query else [])

    def newest(self, filters: Filters, limit: int) -> list[int]:
        where, values = _condition(filters, self._has_tag)
        rows = self._connection.execute(
            f"SELECT id FROM documents WHERE {where or 'true'} ORDER BY date DESC, id DESC LIMIT ?", (*values, limit)
        )
        return [row for (row,) in rows]

    def describe(self, documents: Sequence[int]) -> dict[int, DocumentDescription]:
        rows = self._connection.execute(
            "SELECT documents.id, collections.name || '/' || documents.name, title, documents.name, source, date "
            "FROM documents JOIN collections ON collections.id = documents.collection "
            f"WHERE documents.id IN ({placeholders(documents)})",
            tuple(documents),
        )
        return {row[0]: DocumentDescription(*row[1:]) for row in rows}

    def highlight_title(self, document: int, texts: Sequence[str]) -> str | None:
        (title,) = self._connection.execute("SELECT title FROM documents WHERE id = ?", (document,)).fetchone()
        return highlight(title, texts)

    def highlight_passage(self, passage: int, texts: Sequence[str]) -> str | None:
        row = self._connection.execute(f"SELECT {PLACED} FROM passages WHERE id = ?", (passage,)).fetchone()
        return excerpt(Texts(self._connection).of(*row)[1], texts) if row else None

    def vocabulary(self) -> Vocabulary:
        return self._vocabulary.current(self._connection)

    def references(self, document: int, most: int) -> References:
        return citations.references(self._connection, document, most)

    def graph(self, documents: Sequence[int], depth: int, most: int) -> Graph:
        return citations.graph(self._connection, documents, depth, most)


def _column(rows: list[tuple[int]]) -> Numbers:
    return np.array(rows, np.int64).reshape(-1)


def _condition(filters: Filters, has_tag: str) -> tuple[str, tuple[str, ...]]:
    """On documents; empty where all pass."""
    _, of_collections, names = on_collections(filters)
    _, of_documents, values = on_documents(filters, has_tag)
    chosen = f"collection IN (SELECT id FROM collections WHERE {of_collections})" if of_collections else ""
    return " AND ".join(filter(None, (chosen, of_documents))), (*names, *values)
