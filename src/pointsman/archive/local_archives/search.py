"""Search for whole documents: candidates by their words, scored, the best with highlights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from pointsman.archive.local_archives.ranking import Evidence, scores
from pointsman.archive.local_archives.terms import Term, corrected_query, resolve_terms
from pointsman.archive.model.query import Query
from pointsman.archive.search.evidence import COMMON_WORDS_ONLY
from pointsman.archive.store.archives import ArchiveView, DocumentDescription, Postings
from pointsman.providers.text import tokens

if TYPE_CHECKING:
    from pointsman.archive.store.archives import Numbers

SNIPPETS = 3
_MAX_PHRASES = 200


@dataclass(frozen=True, slots=True)
class Hit:
    number: int  # in the store
    document: DocumentDescription
    score: float
    title: str | None  # highlighted; None if it does not match
    snippets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    hits: tuple[Hit, ...]
    matches: int  # documents that match any term
    corrections: Mapping[str, tuple[str, ...]]
    did_you_mean: str | None


@dataclass(frozen=True, slots=True)
class _Reading:
    """One reading of a term (as written or corrected), and where it occurs."""

    term: int  # its index in the query
    fit: float
    postings: Postings


def search(view: ArchiveView, text: str, query: Query, fuzzy: bool, limit: int) -> Found:
    if query.empty:
        return _newest(view, query, limit)
    terms = resolve_terms(view, query, fuzzy)
    readings = _readings(view, terms)
    documents = _candidates(view, query, terms, readings)
    corrections = {term.text: tuple(guess.word for guess in term.guesses) for term in terms if term.guesses}
    hits = _best(view, terms, readings, documents, limit) if len(documents) else ()
    return Found(hits, len(documents), corrections, corrected_query(terms, text))


def _newest(view: ArchiveView, query: Query, limit: int) -> Found:
    """For a query of filters alone: the latest documents that pass."""
    allowed = view.within(query.filters)
    if allowed is None:
        return Found((), 0, {}, None)
    excluded = set(np.intersect1d(_excluded(view, query), allowed).tolist())
    numbers = [each for each in view.newest(query.filters, limit + len(excluded)) if each not in excluded][:limit]
    described = view.describe(numbers)
    hits = tuple(Hit(number, described[number], 1.0, None, ()) for number in numbers)
    return Found(hits, len(allowed) - len(excluded), {}, None)


def _readings(view: ArchiveView, terms: Sequence[Term]) -> list[_Reading]:
    """Skip common words, which are costly and carry little, unless there are no others."""
    every_common = all(term.common for term in terms)
    return [
        _Reading(place, fit, view.postings(text))
        for place, term in enumerate(terms)
        if term.required or every_common or not term.common
        for text, fit in term.readings
    ]


def _candidates(view: ArchiveView, query: Query, terms: Sequence[Term], readings: Sequence[_Reading]) -> Numbers:
    """Documents that match any term and pass the query's requirements, filters and exclusions."""
    documents = _union([_documents(reading.postings) for reading in readings])
    for place, term in enumerate(terms):
        if term.required:
            matching = _union([_documents(each.postings) for each in readings if each.term == place])
            documents = np.intersect1d(documents, matching, assume_unique=True)
    allowed = view.within(query.filters)
    if allowed is not None:
        documents = np.intersect1d(documents, allowed, assume_unique=True)
    return np.setdiff1d(documents, _excluded(view, query), assume_unique=True)


def _best(
    view: ArchiveView, terms: Sequence[Term], readings: Sequence[_Reading], documents: Numbers, limit: int
) -> tuple[Hit, ...]:
    weights = np.array([term.weight for term in terms])
    selective = np.array([not term.common for term in terms])
    evidence = _evidence(view, terms, readings, documents)
    scored = scores(evidence, weights, selective if selective.any() else ~selective)
    if not tokens(" ".join(term.text for term in terms)):
        scored *= COMMON_WORDS_ONLY
    order = np.lexsort((documents, -scored))[:limit]
    numbers = documents[order].tolist()
    described = view.describe(numbers)
    passages = _passages(readings, documents[order])
    texts = _highlighted_texts(terms)
    return tuple(
        Hit(
            number,
            described[number],
            round(float(scored[place]), 4),
            view.highlight_title(number, texts) if evidence.titled[:, place].any() else None,
            _snippets(view, passages.get(number, {}), texts),
        )
        for number, place in zip(numbers, order, strict=True)
    )


def _evidence(view: ArchiveView, terms: Sequence[Term], readings: Sequence[_Reading], documents: Numbers) -> Evidence:
    shape = (len(terms), len(documents))
    fits, counts, titled = np.zeros(shape), np.zeros(shape), np.zeros(shape, bool)
    for reading in readings:
        term, postings = reading.term, reading.postings
        matching, times = np.unique(postings.documents, return_counts=True)
        for found in (matching, postings.titles):
            here = np.isin(documents, found, assume_unique=True)
            fits[term, here] = np.maximum(fits[term, here], reading.fit)
        titled[term] |= np.isin(documents, postings.titles, assume_unique=True)
        known = np.isin(matching, documents, assume_unique=True)
        counts[term, np.searchsorted(documents, matching[known])] += times[known]
    together = np.ones(len(documents), bool)
    phrase = together
    if len(terms) > 1:
        together = np.isin(documents, view.documents_with_all([term.texts for term in terms]))
        phrase = np.isin(documents, view.documents_with_all([[" ".join(term.texts[0] for term in terms)]]))
    return Evidence(fits, counts, titled, together, phrase, view.lengths(documents).astype(float))


def _passages(readings: Sequence[_Reading], documents: Numbers) -> dict[int, dict[int, set[int]]]:
    """By document: its matching passages, each with the terms that it has."""
    found: dict[int, dict[int, set[int]]] = {}
    for reading in readings:
        here = np.isin(reading.postings.documents, documents)
        for document, passage in zip(
            reading.postings.documents[here].tolist(), reading.postings.passages[here].tolist(), strict=True
        ):
            found.setdefault(document, {}).setdefault(passage, set()).add(reading.term)
    return found


def _snippets(view: ArchiveView, passages: Mapping[int, set[int]], texts: Sequence[str]) -> tuple[str, ...]:
    """From the passages with the most terms, the earliest first."""
    best = sorted(passages, key=lambda passage: (-len(passages[passage]), passage))[:SNIPPETS]
    return tuple(snippet for passage in best if (snippet := view.highlight_passage(passage, texts)))


def _highlighted_texts(terms: Sequence[Term]) -> list[str]:
    """Adjacent words of the query are also highlighted as a phrase, so that they share one mark."""
    phrases = (" ".join(both) for first, second in pairwise(terms) for both in product(first.texts, second.texts))
    return [*islice(phrases, _MAX_PHRASES), *(text for term in terms for text in term.texts)]


def _excluded(view: ArchiveView, query: Query) -> Numbers:
    return _union([view.hidden(query.filters), *(_documents(view.postings(text)) for text in query.must_not)])


def _documents(postings: Postings) -> Numbers:
    return _union([postings.documents, postings.titles])


def _union(parts: Sequence[Numbers]) -> Numbers:
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
