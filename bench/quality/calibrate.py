"""`python -m bench.quality.calibrate`: the coefficients of providers/bm25/relevance.py, fitted and cross-validated."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bench.quality import short_requests
from bench.quality.in_process import STRANGERS, sentence_encoder
from bench.quality.metrics import area_under_curve
from bench.quality.sets import Asked, ToolSet, load_sets, load_tools_alone, spread
from pointsman.catalog.results import DOUBTFUL
from pointsman.core.extras import semantic_is_installed
from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.documents import PreparedTools
from pointsman.providers.bm25.index import Index, Meaning
from pointsman.providers.bm25.query import parse
from pointsman.providers.bm25.relevance import WORDS_ALONE, Evidence, at_least_by_words, chance, features
from pointsman.providers.embeddings import load

Floats = NDArray[np.float64]
OWN = 1_000  # requests of each set that are put to its own catalog
DRAWN = 10  # small catalogs that are drawn from each set
DRAWN_TOOLS = (50, 75, 100, 150)
DRAWN_OWN, DRAWN_STRANGERS = 80, 40  # requests that are put to each of them: of its own set, and of each other one
DRAWN_WEIGHT = 0.35  # of all cases in drawn catalogs, relative to those in whole ones
SHORT_WEIGHT = 0.05  # of all short requests, relative to those in whole catalogs: more of them cost AUC on the sets
MOST_OF_A_SERVER = 30


# Requests in whole catalogs, in small ones drawn from a set, and short requests in small catalogs of real servers.
Group = Literal["whole", "small", "short"]
WEIGHTS: dict[Group, float] = {"whole": 1.0, "small": DRAWN_WEIGHT, "short": SHORT_WEIGHT}
SHORT, ELSEWHERE = -1, -2  # in place of the number of a set: short requests that are right, and that are foreign


@dataclass(frozen=True, slots=True)
class Case:
    """The best hit for one request: right, or found in a catalog that the request was not made for."""

    asked_by: int
    searched: int
    group: Group
    right: bool
    evidence: Evidence


Mode = Literal["words alone", "with embeddings", "with the sentence encoder"]
# How much foreign requests weigh: about the least with which what nothing fits in `tests/golden` stays below DOUBTFUL.
FOREIGN: dict[Mode, float] = {"words alone": 2.0, "with embeddings": 1.9, "with the sentence encoder": 2.3}
# In use, people mostly ask for what there is: right hits count this many times. A factor of the odds moves every figure
# in the same direction, so what is better stays better, and a right hit is seldom shown below .2.
PRIOR = 2.0
LOW = 0.2

Requests = list[tuple[int, Asked]]  # each with the number of the set that it was made for


class Catalogs:
    """The catalogs that requests are put to: each set as a whole, and small catalogs drawn from it."""

    def __init__(self, mode: Mode) -> None:
        self._library = PreparedTools(kept=100_000)
        self._embeddings = mode != "words alone"
        self._encoder = sentence_encoder() if mode == "with the sentence encoder" else None

    def cases(self, searched: int, tools: Sequence[ToolDocument], requests: Requests, group: Group) -> Iterator[Case]:
        index = self._index(tools)
        encoded = self._encoder.encode_now(tuple(tools)) if self._encoder else None
        for asked_by, asked in requests:
            query = parse(asked.query)
            ranking = index.score(query, *(encoded.match([index.as_meant(query)]) if encoded else ()))
            if ranking is None or (self._embeddings and ranking.evidence.cosine is None):
                continue
            right = asked_by == searched and any(index.tool_keys[ranking.best] in each for each in asked.wanted)
            if right or asked_by != searched:
                yield Case(asked_by, searched, group, right, ranking.evidence)

    def _index(self, tools: Sequence[ToolDocument]) -> Index:
        prepared = [self._library.prepared(document) for document in tools]
        meaning = Meaning(self._library.vectors(tools, prepared, load()), load()) if self._embeddings else None
        return Index(tools, prepared, self._library.vocabulary, meaning)


def cases(sets: Sequence[ToolSet], tools_alone: Sequence[ToolDocument], mode: Mode) -> list[Case]:
    found: list[Case] = []
    catalogs, chance = Catalogs(mode), Random(7)
    for number, tools in enumerate(sets):
        requests = [
            (by, asked)
            for by, other in enumerate(sets)
            for asked in spread(other.asked, OWN if by == number else STRANGERS)
        ]
        found += catalogs.cases(number, tools.documents, requests, "whole")
        for _ in range(DRAWN):
            small = draw(tools, chance.choice(DRAWN_TOOLS), chance)
            found += catalogs.cases(number, small, drawn_requests(sets, number, small, chance), "small")
    for each in short_requests.draw_all(tools_alone, chance) if tools_alone else ():
        asked = [*((SHORT, one) for one in each.right), *((ELSEWHERE, one) for one in each.foreign)]
        found += catalogs.cases(SHORT, each.tools, asked, "short")
    return found


def draw(tools: ToolSet, size: int, chance: Random) -> list[ToolDocument]:
    """Tools of servers drawn at random, or single tools where a set has few servers."""
    by_server: dict[str, list[ToolDocument]] = {}
    for document in tools.documents:
        by_server.setdefault(document.server_name, []).append(document)
    if len(by_server) * MOST_OF_A_SERVER < size:
        return chance.sample(tools.documents, size)
    drawn: list[ToolDocument] = []
    for server in chance.sample(list(by_server), len(by_server)):
        drawn += by_server[server][:MOST_OF_A_SERVER]
        if len(drawn) >= size:
            break
    return drawn


def drawn_requests(sets: Sequence[ToolSet], number: int, tools: Sequence[ToolDocument], chance: Random) -> Requests:
    keys = {document.tool_key for document in tools}
    own = [asked for asked in sets[number].asked if any(keys & wanted for wanted in asked.wanted)]
    requests = [(number, asked) for asked in chance.sample(own, min(len(own), DRAWN_OWN))]
    for by, other in enumerate(sets):
        if by != number:
            requests += [(by, asked) for asked in chance.sample(other.asked, DRAWN_STRANGERS)]
    return requests


def fit(known: Sequence[Case], foreign: float) -> Floats:
    """Logistic regression by Newton's method. The right hits of all sets weigh alike, foreign requests more."""
    rows = np.array([[1.0, *features(case.evidence)] for case in known])
    right = np.array([float(case.right) for case in known])
    weights = _weights(known, foreign) * len(known)
    found: Floats = np.zeros(rows.shape[1])
    for _ in range(30):
        chance = 1 / (1 + np.exp(-rows @ found))
        slope = rows.T @ (weights * (chance - right)) + 1e-3 * found
        bend = (rows * (weights * chance * (1 - chance))[:, None]).T @ rows + 1e-3 * np.eye(len(found))
        found = found - np.linalg.solve(bend, slope)
    found[0] += math.log(PRIOR)
    return found


def _weights(known: Sequence[Case], foreign: float) -> Floats:
    alike = Counter((case.group, case.right, case.searched if case.right else None) for case in known)
    sets = {group: len({case.searched for case in known if case.group == group}) for group in WEIGHTS}
    return np.array(
        [
            WEIGHTS[case.group]
            * (1 / sets[case.group] if case.right else foreign)
            / alike[case.group, case.right, case.searched if case.right else None]
            for case in known
        ]
    )


def score(found: Floats, judged: Sequence[Case]) -> list[tuple[Case, float]]:
    """Each case with its relevance. With a set held out, words alone still count as fitted on all of them."""
    weights = found.tolist()
    scored: list[tuple[Case, float]] = []
    for case in judged:
        figures = features(case.evidence)
        by_all = chance(weights, figures)
        words_alone = len(figures) + 1 == len(WORDS_ALONE)
        scored.append((case, by_all if words_alone else at_least_by_words(by_all, figures)))
    return scored


def separation(scored: Sequence[tuple[bool, float]]) -> float:
    return area_under_curve([s for right, s in scored if right], [s for right, s in scored if not right])


def under_and_over(scored: Sequence[tuple[bool, float]]) -> str:
    """Shares of right hits that are shown low, of those called doubtful, and of foreign requests that are not."""
    under = [fmean([figure < edge for right, figure in scored if right]) for edge in (LOW, DOUBTFUL)]
    over = fmean([figure >= DOUBTFUL for right, figure in scored if not right])
    return f"right below {LOW}: {under[0]:.3f}, below {DOUBTFUL}: {under[1]:.3f}, foreign above that: {over:.3f}"


def main() -> None:
    folder = Path(os.environ["POINTSMAN_TOOL_SEARCH_DATA"])
    sets, tools_alone = load_sets(folder), load_tools_alone(folder)
    for mode in get_args(Mode) if semantic_is_installed() else get_args(Mode)[:2]:
        known = cases(sets, tools_alone, mode)
        held_out: list[tuple[Case, float]] = []
        for number in range(len(sets)):
            kept = [case for case in known if number not in (case.asked_by, case.searched)]
            held_out += score(fit(kept, FOREIGN[mode]), [case for case in known if case.asked_by == number])
        found = fit(known, FOREIGN[mode])
        print(mode, found.round(3).tolist())
        for group in get_args(Group):
            for name, scored in (("", score(found, known)), (", set held out", held_out)):
                figures = [(case.right, figure) for case, figure in scored if case.group == group]
                if figures:
                    print(f"  {group}{name}: AUC {separation(figures):.4f}, {under_and_over(figures)}")


if __name__ == "__main__":
    main()
