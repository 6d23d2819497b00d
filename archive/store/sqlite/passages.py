"""Search in the words of passages, ranked by BM25."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from pointsman.archive.model import Chunk
from pointsman.archive.query.model import Filters, Query
from pointsman.archive.store.base import Passage, Scope, TextHit
from pointsman.archive.store.sqlite import matching
from pointsman.archive.store.sqlite.database import Database
from pointsman.archive.store.sqlite.documents import collection_number, document_row
from pointsman.archive.store.sqlite.filtering import on_collections, on_documents

COMMON_SHARE = 0.1
FEW_PASSAGES = 2_000  # among so few, looking for common words costs nothing
_KNOWN_WORDS = 20_000
_WEIGHTS = "2.0, 1.0, 1.0, 0.5"  # title, heading, text, parts
_ALIVE = (
    "words.rowid NOT IN (SELECT passage FROM tombstones "
    "WHERE seq > (SELECT value FROM counters WHERE name = 'cleaned'))"
)


_JOINED = " CROSS JOIN passages ON passages.id = words.rowid"  # in this order: first the words, then what they are in


class SqlitePassages:
    """Fits `PassageStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[int, int]] = {}  # how often words were seen among how many passages

    def search(self, query: Query, limit: int, *, enough: int) -> list[TextHit]:
        if query.empty:
            return []
        with self._database.reading() as connection:
            every = _matching(connection, matching.with_all(query), query.filters, limit)
            if len(every) >= enough or not query.words or len({*query.words, *query.must}) == 1:
                return every
            words = self._telling(connection, query.words)
            some = _matching(connection, matching.with_any(query, words), query.filters, limit)
        return _ranked(every, some)[:limit]

    def passages(self, numbers: Sequence[int]) -> dict[int, Passage]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT passages.id, collections.name, documents.name, documents.title, passages.text, "
                "passages.heading, passages.start_line, passages.end_line, passages.place, documents.passages "
                "FROM passages JOIN documents ON documents.id = passages.document "
                "JOIN collections ON collections.id = documents.collection "
                f"WHERE passages.id IN ({', '.join('?' * len(numbers))})",
                tuple(numbers),
            ).fetchall()
        return {row[0]: _passage(row) for row in rows}

    def of_document(self, collection: str, id: str) -> list[int]:  # noqa: A002
        with self._database.reading() as connection:
            row = document_row(connection, collection_number(connection, collection), id)
            rows = connection.execute("SELECT id FROM passages WHERE document = ? ORDER BY place", (row,)).fetchall()
        return [number for (number,) in rows]

    def scope(self, filters: Filters) -> Scope:
        with self._database.reading() as connection:
            return Scope(_passing(connection, *on_collections(filters)), _passing(connection, *on_documents(filters)))

    def barred(self, query: Query) -> tuple[frozenset[int] | None, frozenset[int]]:
        if not query.must and not query.must_not:
            return None, frozenset()
        with self._database.reading() as connection:
            only = _rows(connection, matching.musts(query)) if query.must else None
            never = _rows(connection, matching.must_nots(query)) if query.must_not else frozenset()
        return only, never

    def _telling(self, connection: sqlite3.Connection, words: Sequence[str]) -> list[str]:
        """Without those that so many passages have that they tell little and cost much; never none."""
        (total,) = connection.execute("SELECT total(passages) FROM collections").fetchone()
        if total < FEW_PASSAGES:
            return list(words)
        most = int(total * COMMON_SHARE)
        seen = {word: self._seen(connection, word, most) for word in dict.fromkeys(words)}
        if not any(0 < times <= most for times in seen.values()):
            return list(words)
        return [word for word in words if seen[word] <= most]

    def _seen(self, connection: sqlite3.Connection, word: str, most: int) -> int:
        """In how many passages; counting ends above `most`. Taken as known until the archive is quite another."""
        times, among = self._known.get(word, (0, 0))
        if among and abs(most - among) <= among // 10:
            return times
        (times,) = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)", (matching.term(word), most + 1)
        ).fetchone()
        if len(self._known) >= _KNOWN_WORDS:
            self._known.clear()
        self._known[word] = times, most
        return int(times)


def _passage(row: tuple[Any, ...]) -> Passage:
    number, collection, document, title, *chunk, place, places = row
    return Passage(number, collection, document, title, Chunk(*chunk), place, places)


def _matching(connection: sqlite3.Connection, expression: str, filters: Filters, limit: int) -> list[TextHit]:
    joined, where = "", ""
    values: list[str] = []
    for table, condition, given in (on_collections(filters), on_documents(filters)):
        if condition:
            joined = _JOINED
            key = "passages.collection" if table == "collections" else "passages.document"
            where += f" AND {key} IN (SELECT id FROM {table} WHERE {condition})"
            values += given
    rows = connection.execute(
        f"SELECT words.rowid, -bm25(words, {_WEIGHTS}) AS score FROM words{joined} "
        f"WHERE words MATCH ? AND {_ALIVE}{where} ORDER BY score DESC LIMIT ?",
        (expression, *values, limit),
    ).fetchall()
    return [TextHit(*row) for row in rows]


def _ranked(every: Sequence[TextHit], some: Sequence[TextHit]) -> list[TextHit]:
    """Those with all the words first: to have them all counts as much again as the best score."""
    if not every:
        return list(some)
    scores = {hit.number: hit.score for hit in some}
    bonus = max(scores.values(), default=0.0)
    for hit in every:
        scores[hit.number] = scores.get(hit.number, hit.score) + bonus
    return sorted((TextHit(*item) for item in scores.items()), key=lambda hit: -hit.score)


def _passing(connection: sqlite3.Connection, table: str, where: str, values: Sequence[str]) -> frozenset[int] | None:
    if not where:
        return None
    return frozenset(row for (row,) in connection.execute(f"SELECT id FROM {table} WHERE {where}", values))


def _rows(connection: sqlite3.Connection, expression: str) -> frozenset[int]:
    rows = connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (expression,)).fetchall()
    return frozenset(row for (row,) in rows)
