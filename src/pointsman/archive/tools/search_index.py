"""`search_index`: the documents of an index that fit a query, best first."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.indexes.searching import Found, search
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json
from pointsman.archive.tools.named_index import INDEX_NAME, named_index

LONGEST_QUERY = 1_000
MOST_RESULTS = 100


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments, as_object=True)
    query = given.text("query", at_least=0, at_most=LONGEST_QUERY)
    k = given.integer("k", low=1, high=MOST_RESULTS, default=10)
    index = named_index(archive, given)
    found = search(index, query, k)
    answer: Json = {
        "results": [hit.as_json() for hit in found.hits],
        "total_matches": found.total,
        "query_parsed": found.query.as_json(),
    }
    notice = _notice(query, found, index.tokenizer.min_length)
    return answer | ({"notice": notice} if notice else {})


def _notice(query: str, found: Found, min_length: int) -> str:
    if found.query.seeks or not query.strip():
        return ""
    if found.query.must_not:
        return "The query only says what to leave out. Add a word to look for."
    return f"The query holds no word that this index keeps: they have at least {min_length} characters."


TOOL = ArchiveTool(
    name="search_index",
    title="Search an index",
    description=(
        "Search an index that you made: query it for entries, find the texts that you indexed or added earlier and "
        "that contain or mention these words or a phrase, ranked, with TF-IDF scores, highlights and metadata. "
        '`+word` must be there, `-word` must not, `"a phrase"` is an exact match. Without index_name the `default` '
        "index is searched. Not for documentation: that is documents_search."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": 'Words to look for; +word, -word and "phrase" are understood',
                "maxLength": LONGEST_QUERY,
            },
            "k": {
                "type": "integer",
                "description": "How many results at most",
                "minimum": 1,
                "maximum": MOST_RESULTS,
                "default": 10,
            },
            "index_name": INDEX_NAME,
        },
        "required": ["query"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "doc_id": {"type": "string"},
                        "score": {"type": "number", "description": "TF-IDF: comparable within one answer"},
                        "highlights": {
                            "type": "array",
                            "description": "Where it matches: plain text, with HTML escaped",
                            "items": {"type": "string"},
                            "maxItems": 3,
                        },
                        "metadata": {"type": "object"},
                    },
                    "required": ["doc_id", "score", "highlights", "metadata"],
                },
            },
            "total_matches": {"type": "integer"},
            "query_parsed": {
                "type": "object",
                "properties": {
                    name: {"type": "array", "items": {"type": "string"}}
                    for name in ("terms", "must", "must_not", "phrases")
                },
            },
            "notice": {"type": "string"},
        },
        "required": ["results", "total_matches", "query_parsed"],
    },
    run=run,
)
