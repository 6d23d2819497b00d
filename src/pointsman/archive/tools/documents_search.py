"""`documents_search`: passages that answer a question, by words and by meaning."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json
from pointsman.archive.tools.found import ITEM, items
from pointsman.archive.tools.search_options import (
    COLLECTIONS,
    LANGUAGE,
    LONGEST_QUERY,
    OPTIONS,
    limit_schema,
    notice,
    read_options,
    read_query,
    search,
)

DEFAULT_LIMIT = 10


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    options = read_options(given, DEFAULT_LIMIT)
    query = read_query(archive, given)
    answer = search(archive, query, options)
    return {"results": items(archive, answer.found), **notice(arguments["query"], query, answer)}


TOOL = ArchiveTool(
    name="documents_search",
    title="Search documents",
    description=(
        "Search the documentation: look up or check what the docs, a guide, manual, page or our notes say, explain "
        "or recommend about a topic, and how something is done, works or is configured according to them. Finds "
        "the passages that describe or answer it, by words and by meaning (hybrid search), with their document, "
        "section and score. Not for source code."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "maxLength": LONGEST_QUERY,
                "description": f"Search query: a question or keywords. {LANGUAGE}",
            },
            "collections": COLLECTIONS,
            "limit": limit_schema(DEFAULT_LIMIT),
            **OPTIONS,
        },
        "required": ["query"],
    },
    output_schema={
        "type": "object",
        "properties": {"results": {"type": "array", "items": ITEM}, "notice": {"type": "string"}},
        "required": ["results"],
    },
    run=run,
)
