"""What the two search tools have in common: their parameters and one search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pointsman.archive.archive import Archive
from pointsman.archive.model.query import Query
from pointsman.archive.search.query_parsing import parse
from pointsman.archive.search.searcher import Answer
from pointsman.archive.shipped import without_pages
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import Json
from pointsman.archive.tools.collections import LONGEST_NAME, find_collection

MOST_RESULTS = 100
MOST_COLLECTIONS = 50
LONGEST_QUERY = 20_000  # refused beyond; how much of it is read is the parser's business

LANGUAGE = (
    'Words, +must, -not, "a phrase" and the filters collection:, source:, tag:, after: and before: are understood.'
)
COLLECTIONS: Json = {
    "type": "array",
    "items": {"type": "string"},
    "maxItems": MOST_COLLECTIONS,
    "description": "Limit to specific collections",
}
OPTIONS: Json = {
    "maxDistance": {"type": "number", "minimum": 0, "maximum": 2, "description": "Maximum distance threshold"},
    "hybridSearch": {
        "type": "boolean",
        "default": True,
        "description": "Use hybrid search (words and meaning); false: meaning alone",
    },
}


@dataclass(frozen=True, slots=True)
class Options:
    limit: int
    max_distance: float | None
    hybrid: bool


def read_options(given: Arguments, default_limit: int) -> Options:
    return Options(
        limit=given.integer("limit", low=1, high=MOST_RESULTS, default=default_limit),
        max_distance=given.number("maxDistance", low=0, high=2) if given.has("maxDistance") else None,
        hybrid=given.flag("hybridSearch", True),
    )


def limit_schema(default: int) -> Json:
    return {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_RESULTS,
        "default": default,
        "description": "Maximum number of results",
    }


def read_query(archive: Archive, given: Arguments) -> Query:
    """The query within the collections that it and the call name.

    Raises:
        ToolError: one of them is not there.
    """
    query = parse(given.text("query", at_least=0, at_most=LONGEST_QUERY))
    named = _full_names(archive, given.texts("collections", at_most=MOST_COLLECTIONS, each_at_most=LONGEST_NAME))
    asked = _full_names(archive, query.filters.collections)
    both = [name for name in named if name in asked] if named and asked else named or asked
    if named and asked and not both:
        return Query(notices=(*query.notices, "`collections` and `collection:` have no collection in common."))
    within = tuple(both)
    return without_pages(archive.storage, replace(query, filters=replace(query.filters, collections=within)))


def search(archive: Archive, query: Query, options: Options) -> Answer:
    return archive.searcher.search(query, options.limit, by_words=options.hybrid, max_distance=options.max_distance)


def notice(query_text: str, query: Query, answer: Answer) -> Json:
    """What who asked should know about the answer."""
    notices = list(answer.notices)
    if query.empty and query_text.strip() and not notices:
        notices.append("The query has no word to look for. Add one to its filters or exclusions.")
    return {"notice": " ".join(notices)} if notices else {}


def _full_names(archive: Archive, names: Sequence[str]) -> list[str]:
    return [find_collection(archive, name).name for name in names]
