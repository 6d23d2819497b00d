"""The search itself: candidates by their words, scored, and the best shown with the places that match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from pointsman.archive.local_archives.ranking import Evidence, scores
from pointsman.archive.local_archives.terms import Term, said_instead, terms_of
from pointsman.archive.model.query import Query
from pointsman.archive.search.evidence import COMMON_WORDS_ONLY
from pointsman.archive.store.archives import ArchiveView, DocumentDescription, Postings
from pointsman.providers.text import tokens

if TYPE_CHECKING:
    from pointsman.archive.store.archives import Numbers

SNIPPETS = 3
_MARKED_TEXTS = 200


@dataclass(frozen=True, slots=True)
class Hit:
    number: int  # the store's own
    document: DocumentDescription
    score: float
    title: str | None  # marked, where it matches
    snippets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    hits: tuple[Hit, ...]
    matches: int  # documents that have something of the query
    corrections: Mapping[str, tuple[str, ...]]
    did_you_mean: str | None


@dataclass(frozen=True, slots=True)
class _Reading:
    """One way to read a term, and who has it."""

    place: int  # of the term in the query
    fit: float
    holders: Postings


def search(view: ArchiveView, text: str, query: Query, fuzzy: bool, limit: int) -> Found:
    if query.empty:
        return _newest(view, query, limit)
    terms = terms_of(view, query, fuzzy)
    readings = _readings(view, terms)
    documents = _candidates(view, query, terms, readings)
    corrections = {term.text: tuple(guess.word for guess in term.guesses) for term in terms if term.guesses}
    hits = _best(view, terms, readings, documents, limit) if len(documents) else ()
    return Found(hits, len(documents), corrections, said_instead(terms, text))


def _newest(view: ArchiveView, query: Query, limit: int) -> Found:
    """Filters alone ask for no words: the latest documents that pass."""
    allowed = view.within(query.filters)
    if allowed is None:
        return Found((), 0, {}, None)
    unwanted = set(np.intersect1d(_unwanted(view, query), allowed).tolist())
    numbers = [each for each in view.newest(query.filters, limit + len(unwanted)) if each not in unwanted][:limit]
    described = view.describe(numbers)
    hits = tuple(Hit(number, described[number], 1.0, None, ()) for number in numbers)
    return Found(hits, len(allowed) - len(unwanted), {}, None)


def _readings(view: ArchiveView, terms: Sequence[Term]) -> list[_Reading]:
    """Common words are not looked for: they cost much and tell little. Unless there are no others."""
    every_common = all(term.common for term in terms)
    return [
        _Reading(place, fit, view.postings(text))
        for place, term in enumerate(terms)
        if term.required or every_common or not term.common
        for text, fit in term.readings
    ]


def _candidates(view: ArchiveView, query: Query, terms: Sequence[Term], readings: Sequence[_Reading]) -> Numbers:
    """Every document that has one of the words, without those that the query rules out."""
    documents = _union([_documents(reading.holders) for reading in readings])
    for place, term in enumerate(terms):
        if term.required:
            having = _union([_documents(each.holders) for each in readings if each.place == place])
            documents = np.intersect1d(documents, having, assume_unique=True)
    allowed = view.within(query.filters)
    if allowed is not None:
        documents = np.intersect1d(documents, allowed, assume_unique=True)
    return np.setdiff1d(documents, _unwanted(view, query), assume_unique=True)


def _best(
    view: ArchiveView, terms: Sequence[Term], readings: Sequence[_Reading], documents: Numbers, limit: int
) -> tuple[Hit, ...]:
    weights = np.array([term.weight for term in terms])
    telling = np.array([not term.common for term in terms])
    evidence = _evidence(view, terms, readings, documents)
    scored = scores(evidence, weights, telling if telling.any() else ~telling)
    if not tokens(" ".join(term.text for term in terms)):
        scored *= COMMON_WORDS_ONLY
    order = np.lexsort((documents, -scored))[:limit]
    numbers = documents[order].tolist()
    described = view.describe(numbers)
    passages = _passages(readings, documents[order])
    texts = _marked_texts(terms)
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
        place, holders = reading.place, reading.holders
        having, times = np.unique(holders.documents, return_counts=True)
        for found in (having, holders.titles):
            here = np.isin(documents, found, assume_unique=True)
            fits[place, here] = np.maximum(fits[place, here], reading.fit)
        titled[place] |= np.isin(documents, holders.titles, assume_unique=True)
        known = np.isin(having, documents, assume_unique=True)
        counts[place, np.searchsorted(documents, having[known])] += times[known]
    together = np.ones(len(documents), bool)
    phrase = together
    if len(terms) > 1:
        together = np.isin(documents, view.documents_with_all([term.texts for term in terms]))
        phrase = np.isin(documents, view.documents_with_all([[" ".join(term.texts[0] for term in terms)]]))
    return Evidence(fits, counts, titled, together, phrase, view.lengths(documents).astype(float))


def _passages(readings: Sequence[_Reading], documents: Numbers) -> dict[int, dict[int, set[int]]]:
    """Of these documents, the passages that match and the terms that they have."""
    found: dict[int, dict[int, set[int]]] = {}
    for reading in readings:
        here = np.isin(reading.holders.documents, documents)
        for document, passage in zip(
            reading.holders.documents[here].tolist(), reading.holders.passages[here].tolist(), strict=True
        ):
            found.setdefault(document, {}).setdefault(passage, set()).add(reading.place)
    return found


def _snippets(view: ArchiveView, passages: Mapping[int, set[int]], texts: Sequence[str]) -> tuple[str, ...]:
    """Of the passages with the most terms, the first."""
    best = sorted(passages, key=lambda passage: (-len(passages[passage]), passage))[:SNIPPETS]
    return tuple(snippet for passage in best if (snippet := view.highlight_passage(passage, texts)))


def _marked_texts(terms: Sequence[Term]) -> list[str]:
    """Words that follow each other in the query are also looked for as a phrase, so that they share a mark."""
    phrases = (" ".join(both) for first, second in pairwise(terms) for both in product(first.texts, second.texts))
    return [*islice(phrases, _MARKED_TEXTS), *(text for term in terms for text in term.texts)]


def _unwanted(view: ArchiveView, query: Query) -> Numbers:
    return _union([view.hidden(query.filters), *(_documents(view.postings(text)) for text in query.must_not)])


def _documents(holders: Postings) -> Numbers:
    return _union([holders.documents, holders.titles])


def _union(parts: Sequence[Numbers]) -> Numbers:
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
