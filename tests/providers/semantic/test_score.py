"""How the match of the sentence encoder counts in the score of a tool. Needs no model: the match is given."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pointsman.providers.bm25.documents import PreparedTools
from pointsman.providers.bm25.index import Index, Meaning
from pointsman.providers.bm25.query import parse
from pointsman.providers.embeddings import load
from pointsman.providers.semantic.tool_encoder import SentenceMatch
from tests.providers.small_catalog import small_catalog

CATALOG = small_catalog()
FLAT, QUERY = 0.2, "rename a file"


@cache
def index() -> Index:
    known = PreparedTools()
    prepared = [known.prepared(tool) for tool in CATALOG]
    return Index(CATALOG, prepared, known.vocabulary, Meaning(known.vectors(CATALOG, prepared, load()), load()))


def row(tool_key: str) -> int:
    return index().tool_keys.index(tool_key)


def match(**cosines: float) -> SentenceMatch:
    figures = np.full(len(CATALOG), FLAT, dtype=np.float32)
    for name, cosine in cosines.items():
        figures[row(name.replace("__", ":"))] = cosine
    return SentenceMatch(figures / figures.max(), figures)


def test_it_lifts_the_tool_that_it_finds_and_leaves_the_sure_one_first() -> None:
    query = parse(QUERY)
    without, with_it = index().fit(query), index().fit(query, match(mail__send_email=0.8, files__move_file=0.9))
    lifted, sure = row("mail:send_email"), row("files:move_file")
    assert with_it[lifted] > without[lifted]
    assert int(without.argmax()) == int(with_it.argmax()) == sure


def test_a_tool_without_any_of_the_words_is_shown_from_a_cosine_on() -> None:
    query = parse("qwertz uiop")
    assert index().fit(query)[row("mail:send_email")] == 0
    assert index().fit(query, match(mail__send_email=0.25))[row("mail:send_email")] == 0
    assert index().fit(query, match(mail__send_email=0.7))[row("mail:send_email")] > 0


@pytest.mark.parametrize("text", [QUERY, "send a mail. rename a file.", "x", "qwertz uiop asdf " * 200])
def test_the_relevance_is_a_probability_that_grows_with_the_cosine(text: str) -> None:
    tops = []
    for cosine in (0.0, 0.3, 0.6, 0.95):
        fit = index().fit(parse(text), match(files__move_file=cosine))
        assert ((fit >= 0) & (fit <= 1)).all()
        tops.append(float(fit[row("files:move_file")]))
    assert tops == sorted(tops)
    assert tops[-1] > tops[0]


def test_misspelt_words_are_replaced_before_a_sentence_is_encoded() -> None:
    assert index().as_meant(parse("renmae a fiel. Send it to Jhon.")).sentences == (
        "rename a file.",
        "Send it to Jhon.",
    )
    query = parse("rename a file")
    assert index().as_meant(query).sentences == query.sentences
