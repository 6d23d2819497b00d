"""A query in SQL: its words as an FTS5 expression, its filters as conditions on tables.

Every word is quoted, so that input is never parsed as FTS5 syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pointsman.archive.model.query import Filters, Query
from pointsman.archive.store.sqlite.database import placeholders
from pointsman.archive.text.words import split_identifier

Condition = tuple[str, str, tuple[str, ...]]
"""A table, a condition on its rows, and the values to bind. An empty condition: all rows pass."""

_PIECE = re.compile(r"[^\W_]{2,}")


def with_all(query: Query) -> str:
    """Passages that have every word."""
    wanted = [*query.must, *dict.fromkeys(query.words)]
    return _without(all_of(wanted), query.must_not)


def with_any(query: Query, words: Sequence[str]) -> str:
    """Passages that have what they must, and rank by `words`; a word that is repeated counts again."""
    musts = list(map(term, query.must))
    parts = [piece for word in words for piece in pieces(word)]
    any_word = " OR ".join([*map(term, [*words, *parts]), *musts[:1]])  # a must: none of the words has to be there
    return _without(" AND ".join([*musts, f"({any_word})"]), query.must_not)


def as_written(word: str, query: Query) -> str:
    """Passages that have one word as written, besides what they must."""
    return _without(" AND ".join([_quoted(word), *map(term, query.must)]), query.must_not)


def all_of(texts: Iterable[str]) -> str:
    return " AND ".join(map(term, texts))


def any_of(texts: Iterable[str]) -> str:
    return " OR ".join(map(term, texts))


def term(text: str) -> str:
    """A word or a phrase; an identifier that is written as one word also matches by its parts."""
    parts = split_identifier(text)
    return f"({_quoted(text)} OR parts : {_quoted(parts)})" if parts else _quoted(text)


def pieces(word: str) -> list[str]:
    """The halves of `high-speed`, which match where the whole does not."""
    found = _PIECE.findall(word)
    return found if len(found) > 1 else []


def _without(expression: str, unwanted: Iterable[str]) -> str:
    excluded = any_of(unwanted)
    return f"({expression}) NOT ({excluded})" if excluded else expression


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def on_collections(filters: Filters) -> Condition:
    clauses: list[str] = []
    values: list[str] = []
    for negation, names in (("", filters.collections), ("NOT ", filters.not_collections)):
        if names:
            marks = placeholders(names)
            clauses.append(f"{negation}(name IN ({marks}) OR coalesce(alias, name) IN ({marks}))")
            values += [*names, *names]
    return "collections", " AND ".join(clauses), tuple(values)


def on_documents(filters: Filters) -> Condition:
    clauses: list[str] = []
    values: list[str] = []
    for negation, sources, tags in (
        ("", filters.sources, filters.tags),
        ("NOT ", filters.not_sources, filters.not_tags),
    ):
        if sources:
            clauses.append(f"{negation}source IN ({placeholders(sources)})")
            values += sources
        for tag in tags:
            clauses.append(f"{negation}EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ? COLLATE NOCASE)")
            values.append(tag)
    for comparison, day in ((">=", filters.after), ("<", filters.before)):
        if day:
            clauses.append(f"date {comparison} ?")
            values.append(day)
    return "documents", " AND ".join(clauses), tuple(values)


def in_hidden(filters: Filters) -> tuple[str, tuple[str, ...]]:
    """A query for the numbers of the documents in hidden collections; empty where none is hidden.

    Not a `Condition`, because hidden collections are small: excluding their few passages costs next to nothing, while
    joining every match with its collection would double the time of a search.
    """
    names = filters.hidden_collections
    if not names:
        return "", ()
    chosen = f"SELECT id FROM collections WHERE name IN ({placeholders(names)})"
    return f"SELECT id FROM documents WHERE collection IN ({chosen})", names
