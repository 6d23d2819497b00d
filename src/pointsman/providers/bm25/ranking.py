"""One search over an index: the fit of each tool for each query, fused into one list, each hit with an explanation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pointsman.providers.base import SearchHit, SearchHits, SearchRequest
from pointsman.providers.bm25.documents import FIELDS, Prepared, Vocabulary
from pointsman.providers.bm25.names import NOTE, put_first
from pointsman.providers.bm25.postings import Floats
from pointsman.providers.bm25.query import Query, parse_all
from pointsman.providers.bm25.synonyms import synonyms_of

if TYPE_CHECKING:
    from pointsman.providers.bm25.index import Index, Scored
    from pointsman.providers.semantic.tool_encoder import EncodedTools

ALL_WEIGHT = 0.2  # of the sum over all queries, added to the best of them
CONTEXT_WEIGHT = 0.3
SERVES = 0.5  # the share of the best hit's relevance for an intent from which a tool serves it, too
FITS = 0.33  # the relevance from which a tool serves an intent at all
MAX_EXPLAINED_WORDS = 6

_Numbers = tuple[list[int], list[int]]  # of a word itself, and of its synonyms


def rank(index: Index, request: SearchRequest, encoded: EncodedTools | None = None) -> SearchHits:
    """Rank the tools of the index, best first. `encoded` are the same tools by the sentence encoder."""
    *queries, context = parsed = parse_all([*request.queries, request.context or ""])
    sentences = encoded.match(list(map(index.as_meant, parsed))) if encoded else [None] * len(parsed)
    scored = [index.score(*each) for each in zip(parsed, sentences, strict=True)]
    *fits, context_fit = map(index.fit_of, scored)
    named = [index.exact_names.rows(text) for text in request.queries]
    for fit, rows in zip(fits, named, strict=True):
        put_first(fit, rows)
    exact = frozenset(chain.from_iterable(named))
    fused = fuse(fits, context_fit, request.max_results, exact, request.least_each)
    explanations: dict[int, str] = {}
    shares: dict[int, float | None] = {}
    if request.explain:
        shares = {hit.row: _semantic_share(scored[:-1], fits, hit.row) for hit in fused}
        explainer = Explainer(queries, context, index.vocabulary)
        explanations = {hit.row: explainer.explain(index.documents[hit.row], hit.intents) for hit in fused}
    explanations |= dict.fromkeys(exact, NOTE)
    hits = [
        SearchHit(
            index.tool_keys[hit.row],
            round(hit.relevance, 3),
            explanations.get(hit.row),
            hit.intents,
            tuple(round(float(fits[intent][hit.row]), 3) for intent in hit.intents),
            shares.get(hit.row),
        )
        for hit in fused
    ]
    ranked = SearchHits(hits, [round(float(fit.max()), 3) for fit in fits])
    ranked.known_words = any(not query.tokens or index.knows(query) for query in queries)
    return ranked


def _semantic_share(scored: Sequence[Scored | None], fits: Sequence[Floats], row: int) -> float | None:
    """Of the query that the tool fits best."""
    best = max(range(len(fits)), key=lambda query: float(fits[query][row]), default=None)
    found = scored[best] if best is not None else None
    share = found.semantic_share(row) if found is not None else None
    return None if share is None else round(share, 3)


@dataclass(frozen=True, slots=True)
class Fused:
    row: int
    relevance: float
    intents: tuple[int, ...]


def fuse(
    fits: Sequence[Floats],
    context: Floats,
    max_results: int,
    first: Collection[int] = frozenset(),
    least_each: int = 1,
) -> list[Fused]:
    """Fuse the queries into one list, best first: the best fit of a tool for any query, plus a little for its fit to
    the others and to the context.

    Every query gets its `least_each` best tools into the list if there is room, the best of all queries before the
    second best of any. The rows in `first` come before all others.
    """
    context_share = CONTEXT_WEIGHT * context
    by_query = np.array(fits) if fits else np.zeros((1, len(context)))
    best = by_query.max(axis=0)
    scores = best + ALL_WEIGHT * by_query.sum(axis=0) + context_share
    if first:
        scores[list(first)] += scores.max()
    relevance = np.maximum(best, context_share)
    rows = _choose(scores, by_query, max_results, least_each)
    return [Fused(row, float(relevance[row]), _intents(by_query, row, least_each)) for row in rows]


def _choose(scores: Floats, by_query: Floats, max_results: int, least_each: int) -> list[int]:
    """The best hits for each query, as far as there is room, and then the best of all the others."""
    ranked = _best_of_each(by_query, least_each)
    must: dict[int, None] = {}
    for place in range(least_each):
        tops = {
            rows[place]: float(fit[rows[place]]) for rows, fit in zip(ranked, by_query, strict=True) if rows[place:]
        }
        must |= dict.fromkeys(sorted(tops, key=lambda row: -tops[row]))
    chosen = dict.fromkeys([*list(must)[:max_results], *_best(scores, max_results)])
    return sorted(list(chosen)[:max_results], key=lambda row: (-scores[row], row))


def _best_of_each(by_query: Floats, least_each: int) -> list[list[int]]:
    """For each query the tools that fit it best; several only of those that serve it or fit no other query better."""
    if least_each == 1:
        return [[int(fit.argmax())] if fit.any() else [] for fit in by_query]
    fits_best = by_query.argmax(axis=0) == np.arange(len(by_query))[:, None]
    return [_best(fit, least_each) for fit in by_query * (_serves(by_query) | fits_best)]


def _best(scores: Floats, most: int) -> list[int]:
    """The rows with the highest scores; of equals the first. Sorts only the candidates."""
    rows: NDArray[np.intp] = scores.nonzero()[0]
    if len(rows) > most:
        least = np.partition(scores[rows], len(rows) - most)[len(rows) - most]
        rows = rows[scores[rows] >= least]
    best: list[int] = rows[np.argsort(-scores[rows], kind="stable")][:most].tolist()
    return best


def _intents(by_query: Floats, row: int, least_each: int) -> tuple[int, ...]:
    """The intents that a tool fits, and nearly as well as the best tool does.

    A tool that fits none of them may still be the best that there is for one: then it serves that one. If each query
    has several tools, it serves the one that it fits best.
    """
    fits = by_query[:, row]
    serves = _serves(by_query, row)
    if not serves.any():
        serves = (fits > 0) & (by_query.argmax(axis=1) == row)
    if least_each > 1 and not serves.any() and fits.any():
        return (int(fits.argmax()),)
    return tuple(serves.nonzero()[0].tolist())


def _serves(by_query: Floats, row: int | slice = slice(None)) -> NDArray[np.bool_]:
    fits, tops = by_query[:, row], by_query.max(axis=1)
    most = tops if isinstance(row, int) else tops[:, None]
    serves: NDArray[np.bool_] = (fits >= FITS) & (fits >= np.minimum(SERVES * most, fits.max(axis=0)))
    return serves


class Explainer:
    """Explains a hit by the words that matched and where: `weather in name; city in parameter`."""

    def __init__(self, queries: Sequence[Query], context: Query, vocabulary: Vocabulary) -> None:
        self._queries = [_word_numbers(query, vocabulary) for query in queries]
        self._context = _word_numbers(context, vocabulary)

    def explain(self, tool: Prepared, intents: Sequence[int]) -> str:
        """By the words of the queries that it serves, or of all if it serves none."""
        fields = tool.fields_by_word()
        words: dict[str, _Numbers] = {}
        for index in intents or range(len(self._queries)):
            words |= self._queries[index]
        by_field: list[list[str]] = [[] for _ in FIELDS]
        for word, (itself, synonyms) in (words | self._context).items():
            if (field := _weightiest_field(fields, itself)) is not None:
                by_field[field].append(word)
            elif (field := _weightiest_field(fields, synonyms)) is not None:
                by_field[field].append(f"~{word}")
        room, parts = MAX_EXPLAINED_WORDS, []
        for field, matched in enumerate(by_field):
            if matched and room > 0:
                parts.append(f"{', '.join(matched[:room])} in {FIELDS[field]}")
                room -= len(matched)
        return "; ".join(parts) or "similar in meaning"


def _word_numbers(query: Query, vocabulary: Vocabulary) -> dict[str, _Numbers]:
    return {
        word: (_numbers((token,), vocabulary), _numbers(synonyms_of(token), vocabulary))
        for token, word in query.tokens.items()
    }


def _numbers(tokens: Iterable[str], vocabulary: Vocabulary) -> list[int]:
    return [number for token in tokens if (number := vocabulary.get(token)) is not None]


def _weightiest_field(fields: Mapping[int, int], words: Iterable[int]) -> int | None:
    """The weightiest field that has one of the words: the lowest bit of all."""
    bits = 0
    for word in words:
        bits |= fields.get(word, 0)
    return (bits & -bits).bit_length() - 1 if bits else None
