"""The words of a query as an FTS5 expression, for project context.

Every word is quoted, so that input is never parsed as FTS5 syntax.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pointsman.archive.model.query import Query
from pointsman.archive.store.text_search import pieces
from pointsman.archive.text.words import spellings, split_identifier


def with_any(query: Query, words: Sequence[str]) -> str:
    """Rows that have what they must, and rank by `words`; a word that is repeated counts again."""
    musts = list(map(_term, query.must))
    parts = [piece for word in words for piece in pieces(word)]
    any_word = " OR ".join([*map(_term, [*words, *parts]), *musts[:1]])  # a must: none of the words has to be there
    return _without(" AND ".join([*musts, f"({any_word})"]), query.must_not)


def _term(text: str) -> str:
    """A word or a phrase; an identifier that is written as one word also matches by its parts."""
    terms = list(map(_quoted, spellings(text)))
    parts = split_identifier(text)
    if parts:
        terms.append(f"parts : {_quoted(parts)}")
    return f"({' OR '.join(terms)})" if len(terms) > 1 else terms[0]


def _without(expression: str, unwanted: Iterable[str]) -> str:
    excluded = " OR ".join(map(_term, unwanted))
    return f"({expression}) NOT ({excluded})" if excluded else expression


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
