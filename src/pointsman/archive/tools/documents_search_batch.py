"""`documents_search_batch`: up to ten searches in one call, one after another."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json
from pointsman.archive.tools.found import ITEM, items
from pointsman.archive.tools.search_options import (
    COLLECTIONS,
    LONGEST_QUERY,
    OPTIONS,
    limit_schema,
    notice,
    read_options,
    read_query,
    search,
)

DEFAULT_LIMIT = 5
MOST_QUERIES = 10


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    options = read_options(given, DEFAULT_LIMIT)
    asked = [
        (each.text("query", at_least=0), read_query(archive, each))  # all are read before the first is answered
        for each in given.each("queries", at_least=1, at_most=MOST_QUERIES)
    ]
    results = []
    for text, query in asked:
        answer = search(archive, query, options)
        results.append({"query": text, "results": items(archive, answer.found), **notice(text, query, answer)})
    return {"results": results}


TOOL = ArchiveTool(
    name="documents_search_batch",
    title="Search documents for several things at once",
    description=(
        "Run several document searches in a single call: look up multiple different topics, questions or queries "
        "in the docs and manuals simultaneously, all at once in one go, as one batch or request instead of one "
        "after another. Execute it to research many things with fewer round trips. Limited to 10 queries; for a "
        "single one use documents_search."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "queries": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_QUERIES,
                "description": f"Array of search queries (max {MOST_QUERIES})",
                "items": {
                    "type": "object",
                    "properties": {
                        "query": {
                            "type": "string",
                            "maxLength": LONGEST_QUERY,
                            "description": "Search query, as documents_search takes it",
                        },
                        "collections": COLLECTIONS,
                    },
                    "required": ["query"],
                },
            },
            "limit": {**limit_schema(DEFAULT_LIMIT), "description": "Results per query"},
            **OPTIONS,
        },
        "required": ["queries"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string"},
                        "results": {"type": "array", "items": ITEM},
                        "notice": {"type": "string"},
                    },
                    "required": ["query", "results"],
                },
            }
        },
        "required": ["results"],
    },
    run=run,
)
