"""A query as an expression of FTS5. Every word is quoted: what somebody typed is never read as syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pointsman.archive.model.query import Query
from pointsman.archive.text.identifiers import split

_PIECE = re.compile(r"[^\W_]{2,}")


def with_all(query: Query) -> str:
    """Passages that have every word."""
    wanted = [*query.must, *dict.fromkeys(query.words)]
    return _without(" AND ".join(map(term, wanted)), query.must_not)


def with_any(query: Query, words: Sequence[str]) -> str:
    """Passages that have what they must, and rank by `words`; a word that is repeated counts again."""
    musts = list(map(term, query.must))
    parts = [piece for word in words for piece in pieces(word)]
    any_word = " OR ".join([*map(term, [*words, *parts]), *musts[:1]])  # a must: none of the words has to be there
    return _without(" AND ".join([*musts, f"({any_word})"]), query.must_not)


def musts(query: Query) -> str:
    return " AND ".join(map(term, query.must))


def must_nots(query: Query) -> str:
    return " OR ".join(map(term, query.must_not))


def term(text: str) -> str:
    """A word or a phrase; a name that programs write as one word may also be found by its parts."""
    parts = split(text)
    return f"({_quoted(text)} OR parts : {_quoted(parts)})" if parts else _quoted(text)


def pieces(word: str) -> list[str]:
    """`high-speed` as one is best; either half is better than nothing."""
    found = _PIECE.findall(word)
    return found if len(found) > 1 else []


def _without(expression: str, unwanted: Iterable[str]) -> str:
    excluded = " OR ".join(map(term, unwanted))
    return f"({expression}) NOT ({excluded})" if excluded else expression


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
