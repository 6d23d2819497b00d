"""The filters of a query as conditions on tables."""

from __future__ import annotations

from pointsman.archive.model.query import Filters
from pointsman.archive.store.sql.database import placeholders

Condition = tuple[str, str, tuple[str, ...]]
"""A table, a condition on its rows, and the values to bind. An empty condition: all rows pass."""


def on_collections(filters: Filters) -> Condition:
    clauses: list[str] = []
    values: list[str] = []
    for negation, names in (("", filters.collections), ("NOT ", filters.not_collections)):
        if names:
            marks = placeholders(names)
            clauses.append(f"{negation}(name IN ({marks}) OR coalesce(alias, name) IN ({marks}))")
            values += [*names, *names]
    return "collections", " AND ".join(clauses), tuple(values)


def on_documents(filters: Filters, has_tag: str) -> Condition:
    """`has_tag`: see `Database`."""
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
            clauses.append(f"{negation}{has_tag}")
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
