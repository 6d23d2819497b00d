"""The search itself: candidates by their words, the best of them scored, and shown with the places that match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product

from pointsman.archive.local_archives.ranking import Match, average, score
from pointsman.archive.local_archives.terms import Term, said_instead, terms_of
from pointsman.archive.query.model import Query
from pointsman.archive.store.archives import ArchiveView, Described

SNIPPETS = 3
_SCORED = 400  # candidates that are looked at closely
_MARKED_TEXTS = 200


@dataclass(frozen=True, slots=True)
class Hit:
    number: int  # the store's own
    document: Described
    score: float
    title: str | None  # marked, where it matches
    snippets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    hits: tuple[Hit, ...]
    matches: int  # documents that have something of the query
    corrections: Mapping[str, tuple[str, ...]]
    did_you_mean: str | None


def search(view: ArchiveView, text: str, query: Query, fuzzy: bool, limit: int) -> Found:
    if query.empty:
        return _newest(view, query, limit)
    terms = terms_of(view, query, fuzzy)
    matches = _matches(view, query, terms)
    ranked = _ranked(view, terms, matches)
    texts = _marked_texts(terms)
    hits = tuple(
        _hit(view, number, document, score, matches[number], texts) for number, document, score in ranked[:limit]
    )
    corrections = {term.text: tuple(guess.word for guess in term.guesses) for term in terms if term.guesses}
    return Found(hits, len(matches), corrections, said_instead(terms, text))


def _newest(view: ArchiveView, query: Query, limit: int) -> Found:
    """Filters alone ask for no words: the latest documents that pass."""
    allowed = view.within(query.filters)
    if allowed is None:
        return Found((), 0, {}, None)
    unwanted = _with_any(view, query.must_not) & allowed
    numbers = [each for each in view.newest(query.filters, limit + len(unwanted)) if each not in unwanted][:limit]
    described = view.described(numbers)
    hits = tuple(Hit(number, described[number], 1.0, None, ()) for number in numbers)
    return Found(hits, len(allowed) - len(unwanted), {}, None)


def _matches(view: ArchiveView, query: Query, terms: Sequence[Term]) -> dict[int, Match]:
    """Every document that has a telling word, with all that it has; without those that the query rules out."""
    every_common = all(term.common for term in terms)
    matches: dict[int, Match] = {}
    for place, term in enumerate(terms):
        if not term.common or term.required or every_common:
            for reading, fit in term.readings:
                _add(view, matches, len(terms), place, reading, fit)
    allowed = view.within(query.filters)
    unwanted = _with_any(view, query.must_not)
    required = [place for place, term in enumerate(terms) if term.required]
    return {
        document: match
        for document, match in matches.items()
        if (allowed is None or document in allowed)
        and document not in unwanted
        and all(match.fits[place] for place in required)
    }


def _add(view: ArchiveView, matches: dict[int, Match], terms: int, place: int, reading: str, fit: float) -> None:
    holders = view.holders(reading)
    for document in {*holders.passages.values(), *holders.titles}:
        match = matches.get(document)
        if match is None:
            match = matches[document] = Match([0.0] * terms)
        match.fits[place] = max(match.fits[place], fit)
    for passage, document in holders.passages.items():
        matches[document].passages[passage].add(place)
    for document in holders.titles:
        matches[document].titled.add(place)


def _with_any(view: ArchiveView, texts: Sequence[str]) -> set[int]:
    unwanted: set[int] = set()
    for text in texts:
        holders = view.holders(text)
        unwanted |= {*holders.passages.values(), *holders.titles}
    return unwanted


def _ranked(
    view: ArchiveView, terms: Sequence[Term], matches: Mapping[int, Match]
) -> list[tuple[int, Described, float]]:
    weights = [term.weight for term in terms]
    counted = [place for place, term in enumerate(terms) if not term.common] or range(len(terms))

    def whole(match: Match) -> bool:
        return all(match.fits[place] == 1.0 for place in counted)

    def promise(item: tuple[int, Match]) -> tuple[bool, float, int]:
        match = item[1]
        fits = sum(fit * weight for fit, weight in zip(match.fits, weights, strict=True))
        return whole(match), fits + len(match.titled) + min(len(match.passages), 50) / 100, -item[0]

    best = sorted(matches.items(), key=promise, reverse=True)[:_SCORED]
    described = view.described([document for document, _ in best])
    usual = average({document: each.passages for document, each in described.items()})
    together = view.together([term.texts for term in terms]) if len(terms) > 1 else frozenset(matches)
    phrase = view.together([[" ".join(term.texts[0] for term in terms)]]) if len(terms) > 1 else together
    scored = [
        (
            document,
            described[document],
            score(
                match,
                weights,
                described[document].passages / usual,
                together=document in together,
                phrase=document in phrase,
                whole=whole(match),
            ),
        )
        for document, match in best
    ]
    return sorted(scored, key=lambda each: (-each[2], each[1].id))


def _marked_texts(terms: Sequence[Term]) -> list[str]:
    """Words that follow each other in the query are also looked for as a phrase, so that they share a mark."""
    phrases = (" ".join(both) for first, second in pairwise(terms) for both in product(first.texts, second.texts))
    return [*islice(phrases, _MARKED_TEXTS), *(text for term in terms for text in term.texts)]


def _hit(view: ArchiveView, number: int, document: Described, score: float, match: Match, texts: Sequence[str]) -> Hit:
    best = sorted(match.passages, key=lambda passage: (-len(match.passages[passage]), passage))[:SNIPPETS]
    snippets = (view.marked_passage(passage, texts) for passage in best)
    title = view.marked_title(number, texts) if match.titled else None
    return Hit(number, document, round(score, 4), title, tuple(snippet for snippet in snippets if snippet))
