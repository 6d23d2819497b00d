"""Full-text search in passages, ranked by BM25."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pointsman.archive.model.documents import Chunk
from pointsman.archive.model.query import Filters, Query
from pointsman.archive.store.base import Named, Passage, Scope, TextHit
from pointsman.archive.store.sql.database import Connection, Database, padded, placeholders
from pointsman.archive.store.sql.documents import collection_number, document_row
from pointsman.archive.store.sql.filters import on_collections, on_documents
from pointsman.archive.store.sql.passage_texts import PLACED, Texts
from pointsman.archive.store.sql.words import SqlWords
from pointsman.archive.text.words import is_identifier, numbered_names

MAX_IDENTIFIERS = 8


class SqlPassages:
    """Fits `PassageStore`."""

    def __init__(self, database: Database, words: SqlWords) -> None:
        self._database = database
        self._words = words

    def search(self, query: Query, limit: int, *, enough: int) -> list[TextHit]:
        if query.empty:
            return []
        with self._database.reading() as connection:
            scope = _scope(connection, query.filters, self._database.has_tag)
            return self._words.search(connection).search(query, limit, enough=enough, scope=scope)

    def with_identifiers(self, query: Query) -> dict[int, Named]:
        identifiers = [*filter(is_identifier, (*query.words, *query.must)), *numbered_names(query.prose)]
        if not identifiers:
            return {}
        with self._database.reading() as connection:
            scope = _scope(connection, query.filters, self._database.has_tag)
            return self._words.search(connection).with_identifiers(identifiers[:MAX_IDENTIFIERS], query, scope)

    def passages(self, numbers: Sequence[int]) -> dict[int, Passage]:
        found = {}
        asked = padded(numbers)
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT passages.id, collections.name, documents.name, heading, start_line, end_line, place, "
                f"documents.passages, {PLACED} FROM passages JOIN documents ON documents.id = passages.document "
                "JOIN collections ON collections.id = documents.collection "
                f"WHERE passages.id IN ({placeholders(asked)}) ORDER BY passages.document, place",
                asked,
            ).fetchall()
            texts = Texts(connection)
            texts.load({row[8] for row in rows})
            for number, collection, document, heading, start, end, place, places, *placed in rows:
                title, text = texts.of(*placed)
                chunk = Chunk(text, heading, start, end)
                found[number] = Passage(number, collection, document, title, chunk, place, places)
        return found

    def weights(self, texts: Sequence[str]) -> dict[str, float]:
        with self._database.reading() as connection:
            search = self._words.search(connection)
            total = search.corpus.total
            seen = {text: len(search.passages(text)) for text in texts}
        return {text: math.log(1 + (max(total - times, 0) + 0.5) / (times + 0.5)) for text, times in seen.items()}

    def numbers_of(self, collection: str, id: str) -> list[int]:  # noqa: A002
        with self._database.reading() as connection:
            row = document_row(connection, collection_number(connection, collection), id)
            rows = connection.execute("SELECT id FROM passages WHERE document = ? ORDER BY place", (row,)).fetchall()
        return [number for (number,) in rows]

    def scope(self, filters: Filters) -> Scope:
        with self._database.reading() as connection:
            return _scope(connection, filters, self._database.has_tag)

    def required_and_excluded(self, query: Query) -> tuple[frozenset[int] | None, frozenset[int]]:
        if not query.must and not query.must_not:
            return None, frozenset()
        with self._database.reading() as connection:
            return self._words.search(connection).required_and_excluded(query)


def _scope(connection: Connection, filters: Filters, has_tag: str) -> Scope:
    filters = replace(filters, not_collections=(*filters.not_collections, *filters.hidden_collections))
    return Scope(_passing(connection, *on_collections(filters)), _passing(connection, *on_documents(filters, has_tag)))


def _passing(connection: Connection, table: str, where: str, values: Sequence[str]) -> frozenset[int] | None:
    if not where:
        return None
    return frozenset(row for (row,) in connection.execute(f"SELECT id FROM {table} WHERE {where}", values))
