"""What documents cite, and which document that is. Written in the same transaction as the document.

Every citation keeps the names it asks for, every document the names it answers to. Where they meet, the citation has
its target; whenever names come or go, only the citations that ask for them are looked at again. A text that changes
without changing its links or its names costs one lookup.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence

from pointsman.archive.citations.addresses import Name, address, asked_for, names_of
from pointsman.archive.model.model import Citation, Document

SCHEMA = """
CREATE TABLE citations (
    id INTEGER PRIMARY KEY,
    source INTEGER NOT NULL,
    target INTEGER,
    sure REAL NOT NULL,
    confidence REAL NOT NULL,
    line INTEGER NOT NULL,
    kind TEXT NOT NULL,
    written TEXT NOT NULL,
    address TEXT NOT NULL,
    context TEXT NOT NULL
);
CREATE INDEX citations_by_source ON citations (source, sure DESC, target);
CREATE INDEX citations_by_target ON citations (target, sure DESC, source) WHERE target IS NOT NULL;
CREATE TABLE citation_wishes (
    citation INTEGER NOT NULL,
    preference INTEGER NOT NULL,
    name INTEGER NOT NULL,
    alias INTEGER NOT NULL,
    PRIMARY KEY (citation, preference)
) WITHOUT ROWID;
CREATE INDEX citation_wishes_by_name ON citation_wishes (name, citation);
CREATE TABLE citation_names (
    name INTEGER NOT NULL,
    document INTEGER NOT NULL,
    alias INTEGER NOT NULL,
    PRIMARY KEY (name, document)
) WITHOUT ROWID;
CREATE INDEX citation_names_by_document ON citation_names (document, name, alias);
CREATE TABLE citation_prints (
    document INTEGER PRIMARY KEY,
    cited BLOB NOT NULL,
    named BLOB NOT NULL
);
"""

_BY_ALIAS = 0.9  # how much surer a name of its own is than another
_AT_ONCE = 500  # values in one statement


def write(connection: sqlite3.Connection, row: int, document: Document, citations: Sequence[Citation]) -> None:
    """Replace what the document cites, and settle what waited for it. `row` is its place in `documents`."""
    names = names_of(document)
    cited, named = _print(document.url, *citations), _print(*sorted((name.key, name.alias) for name in names))
    before = connection.execute("SELECT cited, named FROM citation_prints WHERE document = ?", (row,)).fetchone()
    if before == (cited, named):
        return
    old_cited, old_named = before or (None, None)
    if old_named != named:
        _rename(connection, row, names)
    if old_cited != cited:
        if old_cited is not None:
            _drop(connection, row)
        _cite(connection, row, document, citations)
    connection.execute("INSERT OR REPLACE INTO citation_prints VALUES (?, ?, ?)", (row, cited, named))


def forget(connection: sqlite3.Connection, row: int) -> None:
    """The document is about to go: its own citations go, those that lead to it wait again."""
    _drop(connection, row)
    _rename(connection, row, ())
    connection.execute("DELETE FROM citation_prints WHERE document = ?", (row,))


def _cite(connection: sqlite3.Connection, row: int, document: Document, citations: Sequence[Citation]) -> None:
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM citations").fetchone()
    numbered = list(enumerate(citations, start=last + 1))
    connection.executemany(
        "INSERT INTO citations (id, source, sure, confidence, line, kind, written, address, context) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (number, row, each.confidence, each.confidence, each.line, each.kind, each.target, known, each.context)
            for number, each in numbered
            for known in (address(document, each),)
        ],
    )
    connection.executemany(
        "INSERT INTO citation_wishes VALUES (?, ?, ?, ?)",
        [
            (number, preference, name.key, name.alias)
            for number, each in numbered
            for preference, name in enumerate(asked_for(document, each))
        ],
    )
    _settle(connection, [number for number, _ in numbered])


def _drop(connection: sqlite3.Connection, row: int) -> None:
    connection.execute(
        "DELETE FROM citation_wishes WHERE citation IN (SELECT id FROM citations WHERE source = ?)", (row,)
    )
    connection.execute("DELETE FROM citations WHERE source = ?", (row,))


def _rename(connection: sqlite3.Connection, row: int, names: Sequence[Name]) -> None:
    """The document answers to these names from now on; those who ask for the others look elsewhere."""
    old = set(connection.execute("SELECT name, alias FROM citation_names WHERE document = ?", (row,)))
    new = {(name.key, int(name.alias)) for name in names}
    connection.executemany(
        "DELETE FROM citation_names WHERE name = ? AND document = ?", [(name, row) for name, _ in old - new]
    )
    connection.executemany("INSERT INTO citation_names VALUES (?, ?, ?)", [(name, row, a) for name, a in new - old])
    changed = {name for name, _ in old ^ new}
    _settle(connection, _asking_for(connection, sorted(changed)))


def _asking_for(connection: sqlite3.Connection, names: Sequence[int]) -> list[int]:
    asking: set[int] = set()
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        marks = ",".join("?" * len(some))
        found = connection.execute(f"SELECT citation FROM citation_wishes WHERE name IN ({marks})", some)
        asking.update(number for (number,) in found)
    return sorted(asking)


def _settle(connection: sqlite3.Connection, citations: Iterable[int]) -> None:
    """Give each the document that fits best: by its likeliest name, by the document's own name, the oldest."""
    settled = []
    for citation in citations:
        best = connection.execute(
            "SELECT n.document, w.alias OR n.alias FROM citation_wishes w JOIN citation_names n ON n.name = w.name "
            "WHERE w.citation = ? ORDER BY w.preference, n.alias, n.document LIMIT 1",
            (citation,),
        ).fetchone()
        target, alias = best or (None, False)
        settled.append((target, _BY_ALIAS if alias else 1.0, citation))
    connection.executemany(
        "UPDATE citations SET target = ?1, sure = confidence * ?2 "
        "WHERE id = ?3 AND (target IS NOT ?1 OR sure <> confidence * ?2)",
        settled,
    )


def _print(*parts: object) -> bytes:
    """Equal for equal parts, and short."""
    return hashlib.blake2b(repr(parts).encode(errors="replace"), digest_size=16).digest()
