"""A tool as search sees it: which tokens stand in which of its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from pointsman.providers.base import ToolDocument
from pointsman.providers.text import tokens

Field = Literal["name", "server", "description", "parameter", "parameter description"]

# How often a field's tokens count in the document that is ranked, weightiest first.
WEIGHTS: Mapping[Field, int] = {"name": 6, "server": 4, "description": 2, "parameter": 1, "parameter description": 1}

# Bounds for what a server may send; real tools stay far below.
MAX_DESCRIPTION_CHARS = 8_000
MAX_PARAMETERS = 200
MAX_PARAMETER_CHARS = 500
MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Prepared:
    """The tokens of one tool, by field and altogether."""

    fields: dict[Field, frozenset[str]]
    frequencies: dict[str, int]  # weighted: as if each field stood there as often as it weighs

    def field_of(self, token: str) -> Field | None:
        """The weightiest field that has it."""
        return next((field for field, found in self.fields.items() if token in found), None)


def prepare(document: ToolDocument) -> Prepared:
    parameters = list(islice(_parameters(document.input_schema, MAX_DEPTH), MAX_PARAMETERS))
    texts: dict[Field, str] = {
        "name": document.tool_name,
        "server": document.server_name,
        "description": document.description[:MAX_DESCRIPTION_CHARS],
        "parameter": " ".join(name for name, _ in parameters),
        "parameter description": " ".join(text for _, text in parameters),
    }
    fields: dict[Field, frozenset[str]] = {}
    frequencies: dict[str, int] = {}
    for field, weight in WEIGHTS.items():
        found = tokens(texts[field])
        fields[field] = frozenset(found)
        for token in found:
            frequencies[token] = frequencies.get(token, 0) + weight
    return Prepared(fields, frequencies)


def _parameters(schema: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    """Names and descriptions, also of what lies inside objects and lists."""
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, inner in properties.items():
            description = inner.get("description") if isinstance(inner, dict) else None
            yield name[:MAX_PARAMETER_CHARS], description[:MAX_PARAMETER_CHARS] if isinstance(description, str) else ""
            if isinstance(inner, dict) and depth > 1:
                yield from _parameters(inner, depth - 1)
    items = schema.get("items")
    if isinstance(items, dict) and depth > 1:
        yield from _parameters(items, depth - 1)
