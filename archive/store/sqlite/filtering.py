"""Filters of a query as a condition on `documents`."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.archive.query.model import Filters


def condition(filters: Filters) -> tuple[str, tuple[str, ...]]:
    """SQL and its values; empty where every document passes."""
    clauses: list[str] = []
    values: list[str] = []

    def add(clause: str, *given: str) -> None:
        clauses.append(clause)
        values.extend(given)

    for negation, names, sources in (
        ("", filters.collections, filters.sources),
        ("NOT ", filters.not_collections, filters.not_sources),
    ):
        if names:
            marks = _marks(names)
            add(
                f"documents.collection {negation}IN "
                f"(SELECT id FROM collections WHERE name IN ({marks}) OR alias IN ({marks}))",
                *names,
                *names,
            )
        if sources:
            add(f"documents.source {negation}IN ({_marks(sources)})", *sources)
    for negation, tags in (("", filters.tags), ("NOT ", filters.not_tags)):
        for tag in tags:
            add(f"{negation}EXISTS (SELECT 1 FROM json_each(documents.tags) WHERE value = ? COLLATE NOCASE)", tag)
    if filters.after:
        add("documents.date >= ?", filters.after)
    if filters.before:
        add("documents.date < ?", filters.before)
    return " AND ".join(clauses), tuple(values)


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
