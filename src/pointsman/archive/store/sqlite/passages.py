"""Full-text search in passages, ranked by BM25."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pointsman.archive.model.documents import Chunk
from pointsman.archive.model.query import Filters, Query
from pointsman.archive.store.base import Passage, Scope, TextHit
from pointsman.archive.store.sqlite import query_sql
from pointsman.archive.store.sqlite.database import Database, placeholders
from pointsman.archive.store.sqlite.documents import collection_number, document_row, total_passages
from pointsman.archive.store.sqlite.query_sql import in_hidden, on_collections, on_documents
from pointsman.archive.text.words import is_identifier

COMMON_SHARE = 0.1  # of all passages: a word in more of them is common
MOST_WORK = 40_000  # matches of words that a search may read in full: some ten milliseconds
COMMON_IDENTIFIER = 20  # passages: one in more of them (`utf-8`, `GitHub`) is a word like others
MAX_IDENTIFIERS = 8
_COUNTS_CACHED = 20_000
_WEIGHTS = "2.0, 1.0, 1.0, 0.5"  # title, heading, text, parts
_ALIVE = (
    "words.rowid NOT IN (SELECT passage FROM tombstones "
    "WHERE seq > (SELECT value FROM counters WHERE name = 'cleaned'))"
)
_JOINED = " CROSS JOIN passages ON passages.id = words.rowid"  # CROSS: SQLite must match the words first


class SqlitePassages:
    """Fits `PassageStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts: dict[str, tuple[int, float]] = {}  # passages with a word, and how many there were in all

    def search(self, query: Query, limit: int, *, enough: int) -> list[TextHit]:
        if query.empty:
            return []
        with self._database.reading() as connection:
            complete = _match(connection, query_sql.with_all(query), query.filters, limit)
            if len(complete) >= enough or not query.words or _is_one_word(query):
                return complete
            words = self._without_commonest(connection, query.words)
            partial = _match(connection, query_sql.with_any(query, words), query.filters, limit)
        return _rank(complete, partial)[:limit]

    def with_identifiers(self, query: Query) -> dict[int, int]:
        identifiers = [word for word in dict.fromkeys(query.words) if is_identifier(word)][:MAX_IDENTIFIERS]
        found: Counter[int] = Counter()
        with self._database.reading() as connection:
            for identifier in identifiers:
                expression = query_sql.as_written(identifier, query)
                numbers = _any(connection, expression, query.filters, COMMON_IDENTIFIER + 1)
                if len(numbers) <= COMMON_IDENTIFIER:
                    found.update(numbers)
        return found

    def passages(self, numbers: Sequence[int]) -> dict[int, Passage]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT passages.id, collections.name, documents.name, documents.title, passages.text, "
                "passages.heading, passages.start_line, passages.end_line, passages.place, documents.passages "
                "FROM passages JOIN documents ON documents.id = passages.document "
                "JOIN collections ON collections.id = documents.collection "
                f"WHERE passages.id IN ({placeholders(numbers)})",
                tuple(numbers),
            ).fetchall()
        return {row[0]: _passage(row) for row in rows}

    def weights(self, texts: Sequence[str]) -> dict[str, float]:
        with self._database.reading() as connection:
            total = total_passages(connection)
            seen = {text: self._count(connection, text, total) for text in texts}
        return {text: math.log(1 + (max(total - times, 0) + 0.5) / (times + 0.5)) for text, times in seen.items()}

    def numbers_of(self, collection: str, id: str) -> list[int]:  # noqa: A002
        with self._database.reading() as connection:
            row = document_row(connection, collection_number(connection, collection), id)
            rows = connection.execute("SELECT id FROM passages WHERE document = ? ORDER BY place", (row,)).fetchall()
        return [number for (number,) in rows]

    def scope(self, filters: Filters) -> Scope:
        filters = replace(filters, not_collections=(*filters.not_collections, *filters.hidden_collections))
        with self._database.reading() as connection:
            return Scope(_passing(connection, *on_collections(filters)), _passing(connection, *on_documents(filters)))

    def required_and_excluded(self, query: Query) -> tuple[frozenset[int] | None, frozenset[int]]:
        if not query.must and not query.must_not:
            return None, frozenset()
        with self._database.reading() as connection:
            only = _rows(connection, query_sql.all_of(query.must)) if query.must else None
            never = _rows(connection, query_sql.any_of(query.must_not)) if query.must_not else frozenset()
        return only, never

    def _without_commonest(self, connection: sqlite3.Connection, words: Sequence[str]) -> list[str]:
        """The words to rank by: the commonest are dropped where all together would cost too much, but never all."""
        total = total_passages(connection)
        seen = {word: self._count(connection, word, total) for word in dict.fromkeys(words)}
        work = sum(seen[word] for word in words)
        kept = list(words)
        for word in sorted(seen, key=lambda word: -seen[word]):
            if work <= MOST_WORK or seen[word] <= total * COMMON_SHARE:
                break
            rest = [other for other in kept if other != word]
            if not any(seen[other] for other in rest):
                break  # the rest would match nothing
            work -= seen[word] * (len(kept) - len(rest))
            kept = rest
        return kept

    def _count(self, connection: sqlite3.Connection, word: str, total: float) -> int:
        """How many passages have the word. Cached until the archive has grown or shrunk by a tenth."""
        times, among = self._counts.get(word, (0, 0.0))
        if among and abs(total - among) <= among / 10:
            return times
        (times,) = connection.execute(
            "SELECT count(*) FROM words WHERE words MATCH ?", (query_sql.term(word),)
        ).fetchone()
        if len(self._counts) >= _COUNTS_CACHED:
            self._counts.clear()
        self._counts[word] = times, total
        return int(times)


def _is_one_word(query: Query) -> bool:
    """A search for any of the words would repeat the one for all of them."""
    return len({*query.words, *query.must}) == 1 and not query_sql.pieces(query.words[0])


def _passage(row: tuple[Any, ...]) -> Passage:
    number, collection, document, title, *chunk, place, places = row
    return Passage(number, collection, document, title, Chunk(*chunk), place, places)


def _match(connection: sqlite3.Connection, expression: str, filters: Filters, limit: int) -> list[TextHit]:
    joined, where, values = _conditions(filters)
    rows = connection.execute(
        f"SELECT words.rowid, -bm25(words, {_WEIGHTS}) AS score FROM words{joined} "
        f"WHERE words MATCH ? AND {_ALIVE}{where} ORDER BY score DESC LIMIT ?",
        (expression, *values, limit),
    ).fetchall()
    return [TextHit(*row) for row in rows]


def _any(connection: sqlite3.Connection, expression: str, filters: Filters, limit: int) -> list[int]:
    """Some that match, not ranked: SQLite stops at the limit."""
    joined, where, values = _conditions(filters)
    rows = connection.execute(
        f"SELECT words.rowid FROM words{joined} WHERE words MATCH ? AND {_ALIVE}{where} LIMIT ?",
        (expression, *values, limit),
    ).fetchall()
    return [number for (number,) in rows]


def _conditions(filters: Filters) -> tuple[str, str, list[str]]:
    """A join, further conditions, and the values to bind."""
    joined, where = "", ""
    values: list[str] = []
    for table, condition, given in (on_collections(filters), on_documents(filters)):
        if condition:
            joined = _JOINED
            key = "passages.collection" if table == "collections" else "passages.document"
            where += f" AND {key} IN (SELECT id FROM {table} WHERE {condition})"
            values += given
    hidden, names = in_hidden(filters)
    if hidden:
        where += f" AND words.rowid NOT IN (SELECT id FROM passages WHERE document IN ({hidden}))"
        values += names
    return joined, where, values


def _rank(complete: Sequence[TextHit], partial: Sequence[TextHit]) -> list[TextHit]:
    """Those with all the words first: their scores are raised above the others by the smallest amount that does it."""
    scores = {hit.number: hit.score for hit in (*complete, *partial)}
    first = {hit.number for hit in complete}
    others = [score for number, score in scores.items() if number not in first]
    if first and others:
        lift = max(0.0, max(others) - min(scores[number] for number in first))
        scores.update({number: scores[number] + lift for number in first})
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0] not in first, item[0]))
    return [TextHit(*item) for item in ranked]


def _passing(connection: sqlite3.Connection, table: str, where: str, values: Sequence[str]) -> frozenset[int] | None:
    if not where:
        return None
    return frozenset(row for (row,) in connection.execute(f"SELECT id FROM {table} WHERE {where}", values))


def _rows(connection: sqlite3.Connection, expression: str) -> frozenset[int]:
    rows = connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (expression,)).fetchall()
    return frozenset(row for (row,) in rows)
