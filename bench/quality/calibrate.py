"""`python -m bench.quality.calibrate`: the coefficients of providers/bm25/relevance.py, fitted and cross-validated."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bench.quality.in_process import STRANGERS, sentence_encoder
from bench.quality.metrics import area_under_curve
from bench.quality.sets import ToolSet, load_sets, spread
from pointsman.core.extras import semantic_is_installed
from pointsman.providers.bm25.documents import PreparedTools
from pointsman.providers.bm25.index import Index, Meaning
from pointsman.providers.bm25.query import parse
from pointsman.providers.bm25.relevance import Evidence, features
from pointsman.providers.embeddings import load

Floats = NDArray[np.float64]
OWN = 1_000  # requests of each set that are put to its own catalog


@dataclass(frozen=True, slots=True)
class Case:
    """The best hit for one request: right, or found in a catalog that the request was not made for."""

    asked_by: int
    searched: int
    right: bool
    evidence: Evidence


Mode = Literal["words alone", "with embeddings", "with the sentence encoder"]
# How much foreign requests weigh: what nothing fits in `tests/golden` then stays below .2.
FOREIGN: dict[Mode, float] = {"words alone": 4.3, "with embeddings": 3.6, "with the sentence encoder": 4.3}


def index_of(tools: ToolSet, embeddings: bool) -> Index:
    library = PreparedTools()
    prepared = [library.prepared(document) for document in tools.documents]
    meaning = Meaning(library.vectors(tools.documents, prepared, load()), load()) if embeddings else None
    return Index(tools.documents, prepared, library.vocabulary, meaning)


def cases(sets: Sequence[ToolSet], mode: Mode) -> list[Case]:
    found = []
    embeddings = mode != "words alone"
    for searched, tools in enumerate(sets):
        index = index_of(tools, embeddings)
        encoded = sentence_encoder().encode_now(tools.documents) if mode == "with the sentence encoder" else None
        for asked_by, other in enumerate(sets):
            for asked in spread(other.asked, OWN if asked_by == searched else STRANGERS):
                query = parse(asked.query)
                ranking = index.score(query, *(encoded.match([query]) if encoded else ()))
                if ranking is None or (embeddings and ranking.evidence.cosine is None):
                    continue
                right = asked_by == searched and any(index.tool_keys[ranking.best] in each for each in asked.wanted)
                if right or asked_by != searched:
                    found.append(Case(asked_by, searched, right, ranking.evidence))
    return found


def fit(known: Sequence[Case], foreign: float) -> Floats:
    """Logistic regression by Newton's method. The right hits of all sets weigh alike, foreign requests more."""
    rows = np.array([[1.0, *features(case.evidence)] for case in known])
    right = np.array([float(case.right) for case in known])
    hits = Counter(case.searched for case in known if case.right)
    each = np.array([1 / hits[case.searched] / len(hits) for case in known])
    weights = np.where(right == 1, each, foreign / (1 - right).sum()) * len(known) / (1 + foreign)
    found: Floats = np.zeros(rows.shape[1])
    for _ in range(30):
        chance = 1 / (1 + np.exp(-rows @ found))
        slope = rows.T @ (weights * (chance - right)) + 1e-3 * found
        bend = (rows * (weights * chance * (1 - chance))[:, None]).T @ rows + 1e-3 * np.eye(len(found))
        found = found - np.linalg.solve(bend, slope)
    return found


def score(found: Floats, judged: Sequence[Case]) -> list[tuple[bool, float]]:
    return [(case.right, float(found @ np.array([1.0, *features(case.evidence)]))) for case in judged]


def separation(scored: Sequence[tuple[bool, float]]) -> float:
    return area_under_curve([s for right, s in scored if right], [s for right, s in scored if not right])


def main() -> None:
    sets = load_sets(Path(os.environ["POINTSMAN_TOOL_SEARCH_DATA"]))
    for mode in get_args(Mode) if semantic_is_installed() else get_args(Mode)[:2]:
        known = cases(sets, mode)
        held_out: list[tuple[bool, float]] = []
        for number in range(len(sets)):
            kept = [case for case in known if number not in (case.asked_by, case.searched)]
            held_out += score(fit(kept, FOREIGN[mode]), [case for case in known if case.asked_by == number])
        found = fit(known, FOREIGN[mode])
        print(mode, found.round(2).tolist(), end=": ")
        print(f"AUC {separation(score(found, known)):.4f}, held out {separation(held_out):.4f}")


if __name__ == "__main__":
    main()
