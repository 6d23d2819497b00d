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
from pointsman.providers.bm25.language import seems_english
from pointsman.providers.bm25.names import NOTE, put_first, raise_named
from pointsman.providers.bm25.postings import Floats
from pointsman.providers.bm25.query import Query, parse_all
from pointsman.providers.bm25.spelling import with_common_words
from pointsman.providers.bm25.synonyms import synonyms_of

if TYPE_CHECKING:
    from pointsman.providers.bm25.index import Index, Scored
    from pointsman.providers.semantic.tool_encoder import EncodedTools

ALL_WEIGHT = 0.2  # of the sum over all queries, added to the best of them
CONTEXT_WEIGHT = 0.3
SERVES = 0.5  # the share of the best hit's relevance for an intent from which a tool serves it, too
FITS = 0.33  # the relevance from which a tool serves an intent at all
FILLS = 0.2  # the relevance from which a tool is shown that is not among the best of any intent; right ones have more
MAX_EXPLAINED_WORDS = 6

Marks = NDArray[np.bool_]  # of tools, for each query
_Numbers = tuple[list[int], list[int]]  # of a word itself, and of its synonyms


def rank(index: Index, request: SearchRequest, encoded: EncodedTools | None = None) -> SearchHits:
    """Rank the tools of the index, best first. `encoded` are the same tools by the sentence encoder."""
    places = _places(request.queries)
    texts = [index.exact_names.without_forbidden(request.queries[same[0]]) for same in places]
    *queries, context = parsed = parse_all(
        (*texts, request.context or ""), lambda text: with_common_words(text, index.knows, seems_english)
    )
    sentences = encoded.match(list(map(index.as_meant, parsed))) if encoded else [None] * len(parsed)
    scored = [index.score(*each) for each in zip(parsed, sentences, strict=True)]
    *fits, context_fit = map(index.fit_of, scored)
    named = [index.exact_names.rows(text) for text in texts]
    for fit, text, rows in zip(fits, texts, named, strict=True):
        raise_named(fit, index.server_names.rows(text))
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
            *_served(hit, fits, places),
            shares.get(hit.row),
        )
        for hit in fused
    ]
    best = {place: round(float(fit.max()), 3) for fit, same in zip(fits, places, strict=True) for place in same}
    ranked = SearchHits(hits, [best[place] for place in range(len(request.queries))])
    ranked.foreign = max(best.values(), default=0.0) < FITS and index.is_foreign(queries)
    return ranked


def _places(queries: Sequence[str]) -> list[list[int]]:
    """Where each query is in the request: one that is there several times is ranked once."""
    places: dict[str, list[int]] = {}
    for place, query in enumerate(queries):
        places.setdefault(" ".join(query.split()), []).append(place)
    return list(places.values())


def _served(
    hit: Fused, fits: Sequence[Floats], places: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The places of the queries that a hit serves, and its relevance for each."""
    served = {place: round(float(fits[intent][hit.row]), 3) for intent in hit.intents for place in places[intent]}
    return tuple(sorted(served)), tuple(served[place] for place in sorted(served))


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
    the others and to the context. Of one query, the relevance has the same order.

    Every query gets its `least_each` best tools into the list if there is room, the best of all queries before the
    second best of any. If `least_each` is more than 1, the rest of the room is for tools with a relevance of `FILLS`
    or more. The rows in `first` come before all others.
    """
    context_share = CONTEXT_WEIGHT * context
    by_query = np.array(fits) if fits else np.zeros((1, len(context)))
    best = by_query.max(axis=0)
    scores = best + ALL_WEIGHT * by_query.sum(axis=0) + context_share
    if first:
        scores[list(first)] += scores.max()
    serves, own = _serves(by_query), _own_best(by_query, least_each)
    must = _best_of_each(own, by_query)[:max_results]
    if least_each == 1 or not must:
        rows = _choose(scores, must, _best(scores, max_results), max_results)
        marks, relevance = _serving_or_best(by_query, serves, rows), best[rows]
    else:
        rows = _choose(scores, must, _best(scores * (best >= FILLS), max_results), max_results)
        marks = _serving_or_own(by_query, serves, own, rows)
        relevance = (by_query[:, rows] * marks).max(axis=0)
    relevances = np.maximum(relevance, context_share[rows])
    if len(by_query) == 1:
        relevances = _at_least_of_passed(np.maximum(best, context_share), scores)[rows]
    intents = [tuple(mark.nonzero()[0].tolist()) for mark in marks.T]
    return [Fused(*each) for each in zip(rows, relevances.tolist(), intents, strict=True)]


def _at_least_of_passed(relevances: Floats, scores: Floats) -> Floats:
    """The relevances of one query, none below that of a tool with a lower score, which the context moves down.

    So the order follows the relevance, and the highest relevance stays as it is.
    """
    order = np.argsort(scores, kind="stable")
    raised = np.empty_like(relevances)
    raised[order] = np.maximum.accumulate(relevances[order])
    return raised


def _own_best(by_query: Floats, least_each: int) -> list[list[int]]:
    """For each query the tools that fit it best."""
    if least_each == 1:
        return [[int(fit.argmax())] if fit.any() else [] for fit in by_query]
    return [_best(fit, least_each) for fit in by_query]


def _best_of_each(own: Sequence[Sequence[int]], by_query: Floats) -> list[int]:
    """The best hits of all queries, then the second best, and so on."""
    must: dict[int, None] = {}
    for place in range(max(map(len, own))):
        tops = {rows[place]: float(fit[rows[place]]) for rows, fit in zip(own, by_query, strict=True) if rows[place:]}
        must |= dict.fromkeys(sorted(tops, key=lambda row: -tops[row]))
    return list(must)


def _choose(scores: Floats, must: Sequence[int], others: Sequence[int], most: int) -> list[int]:
    chosen = list(dict.fromkeys([*must, *others]))[:most]
    return sorted(chosen, key=lambda row: (-scores[row], row))


def _serving_or_best(by_query: Floats, serves: Marks, rows: Sequence[int]) -> Marks:
    """For each query, which of the rows serve it. One that serves none may still be the best that there is for it."""
    is_best = (by_query.argmax(axis=1)[:, None] == np.array(rows, dtype=int)) & (by_query[:, rows] > 0)
    serving = serves[:, rows]
    marks: Marks = serving | (is_best & ~serving.any(axis=0))
    return marks


def _serving_or_own(by_query: Floats, serves: Marks, own: Sequence[Sequence[int]], rows: Sequence[int]) -> Marks:
    """For each query, which of the rows serve it, are among its `own` best or fit it best, and those that fit no worse.

    So no tool is shown for a query while another one that fits it better is shown only for others.
    """
    shown = by_query[:, rows]
    least_own = np.array([fit[best[-1]] if best else np.inf for best, fit in zip(own, by_query, strict=True)])
    fits_best = (shown.argmax(axis=0) == np.arange(len(shown))[:, None]) & (shown >= FILLS)
    least_other = np.where(serves[:, rows] | fits_best, shown, np.inf).min(axis=1)
    marks: Marks = shown >= np.minimum(least_own, least_other)[:, None]
    return marks


def _best(scores: Floats, most: int) -> list[int]:
    """The rows with the highest scores; of equals the first. Sorts only the candidates."""
    rows: NDArray[np.intp] = scores.nonzero()[0]
    if len(rows) > most:
        least = np.partition(scores[rows], len(rows) - most)[len(rows) - most]
        rows = rows[scores[rows] >= least]
    best: list[int] = rows[np.argsort(-scores[rows], kind="stable")][:most].tolist()
    return best


def _serves(by_query: Floats) -> Marks:
    """For each query the tools that fit it, and nearly as well as the best tool does."""
    tops = by_query.max(axis=1)[:, None]
    serves: Marks = (by_query >= FITS) & (by_query >= np.minimum(SERVES * tops, by_query.max(axis=0)))
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
