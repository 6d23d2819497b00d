"""The index of one set of tools: scores each tool for a query, and turns the scores into a relevance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.actions import KINDS, Kind, RequestKind
from pointsman.providers.bm25.documents import IN_DESCRIPTION, Prepared, Vocabulary
from pointsman.providers.bm25.language import is_english_catalog, is_foreign
from pointsman.providers.bm25.names import ExactNames, NameCoverage, ServerNames
from pointsman.providers.bm25.postings import Floats, Postings
from pointsman.providers.bm25.query import FAINT_WEIGHT, PAIR_LENGTH, Query
from pointsman.providers.bm25.relevance import Evidence, relevance
from pointsman.providers.bm25.spelling import CORRECTED_WEIGHT, MAX_CORRECTED, Corrections, Spelling, replace_words
from pointsman.providers.bm25.synonyms import synonyms_of, words_with_same
from pointsman.providers.embeddings import Embedder, unit
from pointsman.providers.semantic.tool_encoder import SentenceMatch
from pointsman.providers.text import has_cjk, is_plural, stem, without_cjk
from pointsman.providers.tool_vectors import ToolVectors

Vectors = NDArray[np.float32]
Array = TypeVar("Array", Floats, NDArray[np.float32])

MEANING_WEIGHT = 0.52  # the rest is for the words
# With the sentence encoder: words .4, meaning .3, sentences .3.
SENTENCE_WEIGHT = 0.3
MEANING_BESIDE_SENTENCES = 0.43  # of the rest
NAME_WEIGHT = 0.07  # of the share of the name that the query has
PART_WEIGHT = 1.5  # of the sentence that matches a tool best, relative to the whole request
EQUALITY = 0.8  # of the sentences of a request: 0 leaves their scores as they are, 1 gives all the same best score
ALTERNATION = 0.92  # of its score remains to a tool for each better one that fits the same part of the request
LOWERED = 10  # tools of a part that are lowered one by one; the others are lowered as the last of them
OTHER_KIND = 0.7  # of its score remains to a tool that writes where the request is to read or undo, and the reverse
DONE_ALREADY = 0.35  # to one that would do what the request asks about: `who created this branch`
OTHER_CHANGE = 0.85  # and to one that removes where the request is to write, and the reverse
SAME_SERVER = 1.4  # by words, for the tools of the server that fits the step before, if a step refers back to that one
UNKNOWN_KIND = 0.95  # and to one whose name does not say which of both it does
OTHER_NUMBER = 0.95  # to one whose name has a word in the singular where the request has the plural, and the reverse
DEPRECATED = 0.9  # to one that calls itself so, and mostly names the one that replaces it
NOT_CONFIGURED = 0.5  # to one that refuses every call until the operator has set what it needs
LEAST_COSINE = 0.2  # counts as the best cosine if all are lower: in a small catalog, the best of a bad lot is noise
COSINE_DIGITS = 5  # so that equal tools have equal cosines: a product of matrices differs in the last bits
TOKENS_AT_ONCE = 32  # each takes a row of figures for all tools
SIMILAR = 0.15  # the cosine from which a tool without any of the words is shown
SIMILAR_SENTENCE = 0.3  # the same for the sentence encoder
FALL = 3  # how fast the tools behind the best lose relevance with their share of its score


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of all tools for one query, in the order of the index."""

    scores: Floats
    best: int
    evidence: Evidence
    meant: Floats | None  # how much of each score comes from meaning; None: by words alone

    def semantic_share(self, row: int) -> float | None:
        """The share of a tool's score that comes from meaning, from 0 to 1."""
        if self.meant is None or not self.scores[row]:
            return None
        return min(max(float(self.meant[row] / self.scores[row]), 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Match(Generic[Array]):
    """How well each tool matches a query, by words or by meaning."""

    whole: Array  # the whole query
    parts: Array  # its parts, a row for each

    def times(self, factors: Floats) -> Match[Array]:
        """The match with factors for each part and tool; the whole query gets the best of a tool's factors."""
        whole, parts = self.whole.copy(), self.parts.copy()  # multiplied in place, which keeps the type of the figures
        whole *= factors.max(axis=0)
        parts *= factors
        return Match(whole, parts)

    def combined(self) -> Array:
        """The match of the whole query plus that of the part that a tool matches best.

        Of a query of one part, the shares of the best score stay as they are.
        """
        combined: Array = self.whole + PART_WEIGHT * self.equalized().max(axis=0)
        return combined

    def equalized(self) -> Array:
        """The parts, scaled to about the same best score: one with few words asks for its tool nonetheless."""
        tops = self.parts.max(axis=1, initial=0)
        scales = np.where(tops > 0, tops.max() / np.where(tops > 0, tops, 1), 1) ** EQUALITY
        equalized: Array = self.parts.copy()
        equalized *= scales[:, None]
        return equalized


@dataclass(frozen=True, slots=True)
class Meaning:
    """The embeddings of the tools, and the model for those of queries."""

    vectors: ToolVectors
    embedder: Embedder


class Index:
    def __init__(
        self,
        tools: Sequence[ToolDocument],
        documents: Sequence[Prepared],
        vocabulary: Vocabulary,
        meaning: Meaning | None,
    ) -> None:
        self.tool_keys = [tool.tool_key for tool in tools]
        self.exact_names = ExactNames(tools)
        self.server_names = ServerNames(tools)
        self.documents = documents
        self.vocabulary = vocabulary
        self._meaning = meaning
        self._postings = Postings([(document.words, document.counts) for document in documents])
        self._name_coverage = NameCoverage(documents, self._postings.idf)
        self._servers = np.unique([tool.server_name for tool in tools], return_inverse=True)[1]
        self._deprecated = np.array([document.deprecated for document in documents], dtype=bool)
        self._not_configured = np.array([not tool.configured for tool in tools], dtype=bool)
        self._of_kind: dict[Kind, NDArray[np.bool_]] = {
            kind: np.array([document.kind == kind for document in documents]) for kind in KINDS
        }

    def fit(self, query: Query, sentence: SentenceMatch | None = None) -> Floats:
        """The probability that each tool is what was asked for; 0 for tools that match neither words nor meaning.

        `sentence` is the match by the sentence encoder, if that is in use.
        """
        return self.fit_of(self.score(query, sentence))

    def fit_of(self, scored: Scored | None) -> Floats:
        if scored is None:
            return np.zeros(len(self.documents))
        share: Floats = scored.scores / scored.scores[scored.best]
        return relevance(scored.evidence) * share**FALL

    def as_meant(self, query: Query) -> Query:
        """The query with its sentences as they are meant: with the words of the tools in place of misspelt ones."""
        return replace(query, sentences=_as_meant(query.sentences, query, self._corrections(query)))

    def score(self, query: Query, sentence: SentenceMatch | None = None) -> Scored | None:
        """None: no tool matches."""
        if not query.tokens or not self.documents:
            return None
        agreement = self._agreement(query)
        corrections = self._corrections(query)
        by_words = self._match_words(query, corrections).times(agreement)
        by_meaning = self._match_meaning(query, corrections)
        by_meaning = by_meaning and by_meaning.times(agreement)
        words = by_words.combined()
        matches = words > 0
        scores = _shares_of_best(words)
        meant: Floats | None = None
        if by_meaning is not None:
            matches |= by_meaning.whole + by_meaning.parts.max(axis=0) >= 2 * SIMILAR
            meaning = MEANING_WEIGHT if sentence is None else MEANING_BESIDE_SENTENCES
            shares = _shares_of_best(by_meaning.combined(), (1 + PART_WEIGHT) * LEAST_COSINE)
            meant = meaning * shares
            scores = (1 - meaning) * scores + meant
        if sentence is not None:
            matches |= sentence.cosines >= SIMILAR_SENTENCE
            sentences = SENTENCE_WEIGHT * sentence.shares * agreement.max(axis=0)
            meant = sentences if meant is None else (1 - SENTENCE_WEIGHT) * meant + sentences
            scores = (1 - SENTENCE_WEIGHT) * scores + sentences
        if not matches.any():
            return None
        numbers = [number for token in query.tokens if (number := self.vocabulary.get(token)) is not None]
        scores += NAME_WEIGHT * self._name_coverage.of(numbers)
        scores *= matches
        if len(query.parts) > 1:
            _alternate(scores, by_words, by_meaning)
        best = int(scores.argmax())
        evidence = self._evidence(query, corrections, best, by_words, by_meaning, sentence)
        return Scored(scores, best, evidence, meant)

    def is_foreign(self, queries: Iterable[Query]) -> bool:
        """Whether queries are neither in English nor in the words of the tools; False if these are not English."""
        return self._is_english and is_foreign([text for query in queries for text in query.texts], self._means)

    @cached_property
    def _is_english(self) -> bool:
        return is_english_catalog(self._own_words())

    def knows(self, word: str) -> bool:
        """Whether a tool has a word, or a synonym of it."""
        return self._means(stem(word))

    def _means(self, token: str) -> bool:
        """Whether a tool has a token or a synonym of it."""
        return self._has(token) or any(map(self._has, synonyms_of(token)))

    def _match_words(self, query: Query, corrections: Corrections) -> Match[Floats]:
        """The part of BM25Plus that depends on the query."""
        scores = np.zeros((1 + len(query.parts), len(self.documents)))
        tokens = list(query.tokens)
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            block = tokens[start : start + TOKENS_AT_ONCE]
            gains = np.zeros((len(block), len(self.documents)))
            for row, token in zip(gains, block, strict=True):
                self._add_gains(row, token, corrections)
                if token in query.faint:
                    row *= FAINT_WEIGHT
            # Sums of rows, not a product of matrices: that would give equal tools figures that differ in the last bit.
            scores[0] += gains.sum(axis=0)
            for row, part in zip(scores[1:], query.parts, strict=True):
                row += gains[[token in part for token in block]].sum(axis=0)
        if any(query.referring):
            self._favour_same_server(scores[1:], query.referring)
        return Match(scores[0], scores[1:])

    def _favour_same_server(self, parts: Floats, referring: Sequence[bool]) -> None:
        """Raise, in place, the tools that share a server with the best one for the part before; the top score stays.

        `open an issue there` after `fork the repository` asks the server that has the repository.
        """
        for place, refers in enumerate(referring):
            top = parts[place].max()
            if refers and top > 0 and parts[place - 1].any():
                best = int(parts[place - 1].argmax())
                parts[place, self._servers == self._servers[best]] *= SAME_SERVER
                parts[place] *= top / parts[place].max()

    def _add_gains(self, gains: Floats, token: str, corrections: Corrections) -> None:
        """The gain of each tool that has a token or a word that stands for it, by the better of them."""
        word = self._number(token)
        most = np.inf if word is None else self._postings.worth(word)
        for other, weight in self._stand_ins(token, corrections).items():
            rows, values = self._postings.matching(other, most)
            gains[rows] = np.maximum(gains[rows], weight * values)
        if word is not None:
            rows, values = self._postings.matching(word)
            gains[rows] = np.maximum(gains[rows], values)

    def _stand_ins(self, token: str, corrections: Corrections) -> dict[int, float]:
        """The words of the tools that may stand for a token, by number, each with its weight."""
        meant = list(map(stem, corrections.get(token, ())))
        weights = dict.fromkeys(meant, CORRECTED_WEIGHT) or dict(synonyms_of(token))
        for other in meant:
            if self._number(other) is None:
                weights = {one: CORRECTED_WEIGHT * weight for one, weight in synonyms_of(other).items()} | weights
        return {number: weight for other, weight in weights.items() if (number := self._number(other)) is not None}

    def _corrections(self, query: Query) -> Corrections:
        """For each token that no tool has, nor a synonym of it, the words of the tools that are spelt alike, or else
        the words that mean the same as one of these.
        """
        unknown = [token for token in query.tokens if not self._means(token)]
        words = {token: query.tokens[token] for token in unknown[:MAX_CORRECTED]}
        return {token: found for token, word in words.items() if (found := self._spelling.stand_ins(word))}

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(
            self._own_words(), [word for word, same in words_with_same().items() if any(map(self._has, same))]
        )

    def _own_words(self) -> Iterator[str]:
        """The words of the tools, as they are written."""
        return (word for word, number in self.vocabulary.words().items() if number in self._postings.idf)

    def _has(self, token: str) -> bool:
        return self._number(token) is not None

    def _agreement(self, query: Query) -> Floats:
        """For each part of a query and each tool: less than 1 if their kinds or the number of a word differ, or for a
        tool that calls itself deprecated or is not configured.
        """
        factors = np.ones((len(query.kinds), len(self.documents)))
        factors[:, self._deprecated] = DEPRECATED
        factors[:, self._not_configured] *= NOT_CONFIGURED
        for part, kind in zip(factors, query.kinds, strict=True):
            if kind is not None:
                agreement = np.full(len(part), UNKNOWN_KIND)
                for other, tools in self._of_kind.items():
                    agreement[tools] = _agreement_of(kind, other)
                part *= agreement
        for token, word in query.tokens.items():
            number = self._number(token)
            if number is not None:
                factors[:, self._name_coverage.in_other_number(number, plural=is_plural(word))] *= OTHER_NUMBER
        return factors

    def _number(self, token: str) -> int | None:
        number = self.vocabulary.get(token)
        return number if number in self._postings.idf else None

    def _match_meaning(self, query: Query, corrections: Corrections) -> Match[Vectors] | None:
        if self._meaning is None or not query.embedded:
            return None
        parts = self._meaning.embedder.sums(_as_meant(query.embedded, query, corrections))
        cosines = self._meaning.vectors.cosines
        whole: Vectors = cosines(unit(parts.sum(axis=0, keepdims=True))).round(COSINE_DIGITS)
        return Match(whole[0], whole if len(parts) == 1 else cosines(unit(parts)).round(COSINE_DIGITS))

    def _evidence(
        self,
        query: Query,
        corrections: Corrections,
        row: int,
        by_words: Match[Floats],
        by_meaning: Match[Vectors] | None,
        sentence: SentenceMatch | None,
    ) -> Evidence:
        fields = self.documents[row].fields_by_word()
        unsaid = query.hints | query.subject
        words = [self._word(token, corrections, fields) for token in query.tokens if token not in unsaid]
        part = int(by_words.parts[:, row].argmax())
        plain = [word for word in words if word.token not in query.values]
        objects = [word for word in plain if word.token not in query.acts]
        rarest = self._postings.rarest
        acted = cosine = lead = object_cosine = None
        if by_meaning is not None:
            lacking = 1 - _mean([word.share for word in objects]) if objects else 0
            acted = sum([self._gain(token, row, corrections, query) for token in query.acts]) * lacking / rarest
            nearest = by_meaning.parts[int(by_meaning.parts[:, row].argmax())]
            cosine = float(nearest[row])
            lead = max(0.0, cosine) / max(float(nearest.max()), LEAST_COSINE)
            (said,) = _as_meant((" ".join([query.tokens[word.token] for word in objects]),), query, corrections)
            object_cosine = self._cosine(said, row, otherwise=cosine)
        return Evidence(
            score=float(by_words.whole[row]) / rarest,
            part_score=float(by_words.parts[part, row]) / rarest,
            plain=_mean([word.share for word in plain]),
            part_plain=_mean([word.share for word in plain if word.token in query.parts[part]]),
            names=_coverage([word for word in words if word.token in query.names]),
            missing=sum([word.worth * (1 - word.share) for word in words]) / rarest,
            echoed=self._echoed(query, fields),
            described=sum([word.worth for word in words if word.described]) / rarest,
            acted=acted,
            cosine=cosine,
            lead=lead,
            object_cosine=object_cosine,
            sentence=None if sentence is None else float(sentence.cosines[row]),
            tools=len(self.documents),
            other_removed=query.kinds[part] == self.documents[row].kind == "removes"
            and bool(objects)
            and not any(word.share for word in objects),
            done_already=query.kinds[part] == "done" and self.documents[row].kind not in (None, "reads"),
        )

    def _gain(self, token: str, row: int, corrections: Corrections, query: Query) -> float:
        """What a token brings to the score of one tool."""
        gains = np.zeros(len(self.documents))
        self._add_gains(gains, token, corrections)
        return float(gains[row]) * (FAINT_WEIGHT if token in query.faint else 1)

    def _cosine(self, text: str, row: int, otherwise: float) -> float:
        """The cosine of a text and the own texts of one tool; `otherwise` if there is no text for the model."""
        text = without_cjk(text)
        if self._meaning is None or not text.strip():
            return otherwise
        return float(unit(self._meaning.embedder.sums((text,)))[0] @ self._meaning.vectors.own[row])

    def _word(self, token: str, corrections: Corrections, fields: Mapping[int, int]) -> Word:
        """A word of a query and how far a tool has it; a word that stands for it counts less."""
        number = self._number(token)
        worth = self._postings.rarest if number is None else self._postings.idf[number]
        if has_cjk(token):
            worth *= PAIR_LENGTH
        found = fields.get(number, 0) if number is not None else 0
        if found:
            return Word(token, worth, 1.0, (found & -found) == IN_DESCRIPTION)
        others = self._stand_ins(token, corrections).items()
        return Word(token, worth, max([weight for other, weight in others if other in fields], default=0.0), False)

    def _echoed(self, query: Query, fields: Mapping[int, int]) -> float:
        """The share of a tool's words that a query has; rare ones count more."""
        idf = self._postings.idf
        total = sum([idf[number] for number in fields])
        numbers = [number for token in query.tokens if (number := self._number(token)) is not None]
        return sum([idf[number] for number in numbers if number in fields]) / total if total else 0.0


def _agreement_of(request: RequestKind, tool: Kind) -> float:
    """What remains of the score of a tool; `undo the commit` asks for the opposite of `git_commit`."""
    if request == "done":
        return 1 if tool == "reads" else DONE_ALREADY
    if request == tool:
        return 1
    return OTHER_KIND if "reads" in (request, tool) or (request, tool) == ("undoes", "writes") else OTHER_CHANGE


class Word(NamedTuple):
    """A word of a query, as one tool has it."""

    token: str
    worth: float  # its idf
    share: float  # 1: the tool has it; less: it has one that stands for it; 0: it has neither
    described: bool  # whether it is in the description, and not in a name


def _as_meant(texts: tuple[str, ...], query: Query, corrections: Corrections) -> tuple[str, ...]:
    meant = {query.tokens[token]: words[0] for token, words in corrections.items()}
    return tuple([replace_words(text, meant) for text in texts]) if meant else texts


def _mean(figures: Sequence[float]) -> float:
    return sum(figures) / len(figures) if figures else 0.0


def _coverage(words: Sequence[Word]) -> float:
    total = sum([word.worth for word in words])
    return sum([word.worth * word.share for word in words]) / total if total else 0.0


def _shares_of_best(figures: Floats | Vectors, least: float = 0) -> Floats:
    """As shares of the highest figure, or of `least` if all are lower; none below 0."""
    best = figures.max(initial=least)
    shares = np.maximum(figures, 0).astype(np.float64)
    return shares / best if best > 0 else shares


def _alternate(scores: Floats, by_words: Match[Floats], by_meaning: Match[Vectors] | None) -> None:
    """Lower every tool, in place, for each better one that fits the same part of the query.

    So the list serves all steps of a task before it offers the fifth tool for one of them.
    """
    parts = _shares_of_best(by_words.equalized())
    if by_meaning is not None:
        parts += _shares_of_best(by_meaning.equalized())
    served = parts.argmax(axis=0)
    order = np.argsort(-scores, kind="stable")
    for part in range(len(parts)):
        rows = order[served[order] == part]
        scores[rows] *= ALTERNATION ** np.minimum(np.arange(len(rows)), LOWERED)
