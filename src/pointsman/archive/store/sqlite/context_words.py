"""The words of context items, ranked by FTS5."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.archive.model.context import ItemFilter
from pointsman.archive.model.query import Query
from pointsman.archive.store.sql.context import passing
from pointsman.archive.store.sql.database import Connection
from pointsman.archive.store.sqlite.query_sql import with_any

SCHEMA = """
CREATE VIRTUAL TABLE context_words USING fts5 (
    title, content, module, parts,
    content = 'context_items', content_rowid = 'row', tokenize = 'porter unicode61'
);
CREATE TRIGGER context_item_comes AFTER INSERT ON context_items BEGIN
    INSERT INTO context_words (rowid, title, content, module, parts)
    VALUES (new.row, new.title, new.content, new.module, new.parts);
END;
CREATE TRIGGER context_item_goes AFTER DELETE ON context_items BEGIN
    INSERT INTO context_words (context_words, rowid, title, content, module, parts)
    VALUES ('delete', old.row, old.title, old.content, old.module, old.parts);
END;
"""


def rank(
    connection: Connection, query: Query, words: Sequence[str], item_filter: ItemFilter, limit: int
) -> list[tuple[int, float]]:
    """Fits `ItemRanking`."""
    where, values = passing(item_filter)
    return connection.execute(
        "SELECT row, -bm25(context_words, 2.0, 1.0, 1.0, 0.5) AS score FROM context_words "
        "JOIN context_items ON row = context_words.rowid "
        f"WHERE context_words MATCH ? AND {where} ORDER BY score DESC, row LIMIT ?",
        (with_any(query, words), *values, limit),
    ).fetchall()
