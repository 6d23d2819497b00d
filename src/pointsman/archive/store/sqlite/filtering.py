"""Filters of a query as conditions: a table, what its rows must be, and the values. No condition: all pass."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.archive.model.query import Filters

Condition = tuple[str, str, tuple[str, ...]]


def on_collections(filters: Filters) -> Condition:
    clauses: list[str] = []
    values: list[str] = []
    for negation, names in (("", filters.collections), ("NOT ", filters.not_collections)):
        if names:
            clauses.append(f"{negation}(name IN ({_marks(names)}) OR coalesce(alias, name) IN ({_marks(names)}))")
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
            clauses.append(f"{negation}source IN ({_marks(sources)})")
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
    """The documents of hidden collections: a query for their numbers. Empty where none is hidden.

    Apart from the conditions above, because it is short: to look up which few passages are not wanted costs next to
    nothing, to look up for each of many where it belongs doubles the time of a search.
    """
    if not filters.hidden_collections:
        return "", ()
    names = filters.hidden_collections
    chosen = f"SELECT id FROM collections WHERE name IN ({_marks(names)})"
    return f"SELECT id FROM documents WHERE collection IN ({chosen})", names


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
