"""Whole documents: which of them have the words, how they are listed, and excerpts with the words highlighted."""

from __future__ import annotations

import html
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pointsman.archive.model.query import Filters
from pointsman.archive.store.archives import DocumentDescription, Graph, Postings, References
from pointsman.archive.store.sqlite import citations
from pointsman.archive.store.sqlite.database import Database, counter, placeholders
from pointsman.archive.store.sqlite.documents import total_passages
from pointsman.archive.store.sqlite.query_sql import any_of, in_hidden, on_collections, on_documents, term
from pointsman.archive.store.sqlite.vocabulary import SqliteVocabulary
from pointsman.archive.text.vocabulary import Vocabulary

Numbers = npt.NDArray[np.int64]

_MOST_PASSAGES = 100_000  # matched for one word
_EXACT_UP_TO = 50  # passages; a larger count includes the few that wait to be cleaned away
_BODY = "{heading text parts}"


class SqliteArchives:
    """Fits `ArchiveStore`. Its caches belong to one file: when another file takes its place, they start empty."""

    def __init__(self, database: Database, wake_housekeeper: Callable[[], None]) -> None:
        self._database = database
        self._wake_housekeeper = wake_housekeeper
        self._caches = (0, PassageMap(), SqliteVocabulary(wake_housekeeper))

    @contextmanager
    def reading(self) -> Iterator[SqliteArchiveView]:
        with self._database.reading() as connection:
            _, passage_map, vocabulary = self._current_caches()
            yield SqliteArchiveView(connection, passage_map.current(connection), vocabulary)

    def _current_caches(self) -> tuple[int, PassageMap, SqliteVocabulary]:
        inode = os.stat(self._database.path).st_ino
        if self._caches[0] != inode:
            self._caches = (inode, PassageMap(), SqliteVocabulary(self._wake_housekeeper))
        return self._caches


class SqliteArchiveView:
    """Fits `ArchiveView`. Valid for the length of its transaction."""

    def __init__(self, connection: sqlite3.Connection, map_: PassageMapState, vocabulary: SqliteVocabulary) -> None:
        self._connection = connection
        self._map = map_
        self._vocabulary = vocabulary

    def passage_count(self) -> int:
        return int(total_passages(self._connection))

    def count_passages(self, text: str, most: int) -> int:
        (times,) = self._connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)", (term(text), most + 1)
        ).fetchone()
        return int(times) if times > _EXACT_UP_TO else len(self._match(term(text))[0])

    def postings(self, text: str) -> Postings:
        passages, documents = self._match(f"{_BODY} : ({term(text)})")
        _, titles = self._match(f"title : ({term(text)})")
        return Postings(passages, documents, np.unique(titles))

    def documents_with_all(self, groups: Sequence[Sequence[str]]) -> Numbers:
        expression = " AND ".join(f"({any_of(group)})" for group in groups)
        return np.unique(self._match(expression)[1])

    def lengths(self, documents: Numbers) -> Numbers:
        return self._map.lengths[documents]

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

    def describe(self, documents: Sequence[int]) -> dict[int, DocumentDescription]:
        rows = self._connection.execute(
            "SELECT documents.id, collections.name || '/' || documents.name, title, documents.name, source, date "
            "FROM documents JOIN collections ON collections.id = documents.collection "
            f"WHERE documents.id IN ({placeholders(documents)})",
            tuple(documents),
        )
        return {row[0]: DocumentDescription(*row[1:]) for row in rows}

    def highlight_title(self, document: int, texts: Sequence[str]) -> str | None:
        row = self._connection.execute(
            "SELECT highlight(words, ?, ?, ?) FROM words WHERE words MATCH ? "
            "AND rowid = (SELECT min(id) FROM passages WHERE document = ?)",
            (_TITLE, _OPEN, _CLOSE, f"title : ({any_of(texts)})", document),
        ).fetchone()
        return _highlighted(row[0]) if row else None

    def highlight_passage(self, passage: int, texts: Sequence[str]) -> str | None:
        row = self._connection.execute(
            "SELECT snippet(words, ?, ?, ?, '…', ?) FROM words WHERE words MATCH ? AND rowid = ?",
            (_TEXT, _OPEN, _CLOSE, _TOKENS, any_of(texts), passage),
        ).fetchone()
        return _highlighted(row[0]) if row else None

    def vocabulary(self) -> Vocabulary:
        return self._vocabulary.current(self._connection)

    def references(self, document: int, most: int) -> References:
        return citations.references(self._connection, document, most)

    def graph(self, documents: Sequence[int], depth: int, most: int) -> Graph:
        return citations.graph(self._connection, documents, depth, most)

    def _match(self, expression: str) -> tuple[Numbers, Numbers]:
        """Passages and their documents, without those that wait to be cleaned away."""
        rows = self._connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", (expression, _MOST_PASSAGES)
        ).fetchall()
        passages = _column(rows)
        document_of = self._map.document_of
        passages = passages[passages < len(document_of)]
        documents = document_of[passages]
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


@dataclass(frozen=True, slots=True)
class PassageMapState:
    document_of: Numbers  # by number of the passage; 0: deleted, or never used
    lengths: Numbers  # passages of each document, by its number


class PassageMap:
    """Which document each passage belongs to, in memory: one search matches tens of thousands of passages.

    It follows the store incrementally: numbers of passages only grow, and deletions are listed in `tombstones`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passages = -1  # read up to this number
        self._tombstones = 0
        self._state = PassageMapState(np.zeros(1, np.int64), np.zeros(1, np.int64))

    def current(self, connection: sqlite3.Connection) -> PassageMapState:
        """At least as new as the transaction; one that another reader made newer lacks only what was deleted since."""
        passages = counter(connection, "passage")
        first, last = connection.execute(
            "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM tombstones"
        ).fetchone()
        with self._lock:
            if passages <= self._passages and last <= self._tombstones:
                return self._state
            rebuild = first > self._tombstones + 1 or self._passages < 0
            known = np.zeros(1, np.int64) if rebuild else self._state.document_of
            document_of = np.zeros(max(passages + 1, len(known)), np.int64)
            document_of[: len(known)] = known
            rows = connection.execute(
                "SELECT id, document FROM passages WHERE id >= ? AND document IS NOT NULL", (len(known),)
            ).fetchall()
            if rows:
                numbers = np.array(rows, np.int64)
                document_of[numbers[:, 0]] = numbers[:, 1]
            gone = connection.execute("SELECT passage FROM tombstones WHERE seq > ?", (self._tombstones,)).fetchall()
            document_of[[number for (number,) in gone if number < len(document_of)]] = 0
            lengths = np.bincount(document_of)
            lengths[0] = 0
            self._state = PassageMapState(document_of, lengths.astype(np.int64))
            self._passages, self._tombstones = passages, last
            return self._state


_OPEN, _CLOSE = (f"\x01{secrets.token_hex(4)}{sign}" for sign in "()")  # random, so that no text contains them
_TITLE, _TEXT = 0, 2  # columns of `words`
_TOKENS = 32
_LEAD, _LONGEST = 200, 300  # characters that are shown before the first mark and from there on
_TAGS = {_OPEN: "<mark>", _CLOSE: "</mark>"}
_SIGN = re.compile(f"({re.escape(_OPEN)}|{re.escape(_CLOSE)})")


def _highlighted(marked: str) -> str | None:
    """HTML from shortly before the first mark on; None without a mark. The text is escaped: marks are the only tags."""
    before, *pieces = _SIGN.split(" ".join(marked.split()))
    if not pieces:
        return None
    if len(before) > _LEAD:
        before = f"…{before[-_LEAD:]}"
    shown, room = [html.escape(before, quote=False)], _LONGEST
    for sign, text in zip(pieces[::2], pieces[1::2], strict=True):
        shown += (_TAGS[sign], html.escape(text[:room], quote=False))
        room -= len(text)
        if room < 0:
            shown.append("…" if sign == _CLOSE else f"…{_TAGS[_CLOSE]}")
            break
    return "".join(shown)
