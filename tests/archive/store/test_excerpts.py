"""Excerpts with highlights: cut where FTS5's `snippet` and `highlight` cut."""

from __future__ import annotations

import html
import random

import pytest

from pointsman.archive.store import excerpts
from pointsman.archive.store.excerpts import excerpt, highlight
from tests.archive.fts5 import Fts5, passages, quoted


@pytest.fixture
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpts, "_LEAD", 10**6)
    monkeypatch.setattr(excerpts, "_LONGEST", 10**6)


def from_fts5(reference: Fts5, function: str, number: int, texts: list[str]) -> str | None:
    row = reference.connection.execute(
        f"SELECT {function} FROM words WHERE words MATCH ? AND rowid = ?",
        ("text : (" + " OR ".join(map(quoted, texts)) + ")", number),
    ).fetchone()
    if row is None:
        return None
    escaped = html.escape(" ".join(row[0].split()), quote=False)
    return escaped.replace("\x02", "<mark>").replace("\x03", "</mark>")


@pytest.mark.usefixtures("unbounded")
def test_excerpts_equal_those_of_fts5() -> None:
    reference = Fts5(passages())
    chance = random.Random(3)
    longer = [each for each in passages() if len(each.text.split()) > 40]
    for _ in range(1_500):
        passage = chance.choice(longer)
        words = [word for word in passage.text.replace("\x00", " ").split() if any(map(str.isalnum, word))]
        start = chance.randrange(len(words) - 3)
        texts = [" ".join(words[start : start + 2]), *chance.sample(words, chance.randint(1, 4)), "nowhere"]
        expected = from_fts5(reference, "snippet(words, 2, char(2), char(3), '…', 32)", passage.number, texts)
        assert excerpt(passage.text, texts) == expected, (passage.number, texts)
        expected = from_fts5(reference, "highlight(words, 2, char(2), char(3))", passage.number, texts)
        assert highlight(passage.text, texts) == expected, (passage.number, texts)


def test_text_is_escaped_and_marks_are_the_only_tags() -> None:
    assert highlight("<b>Kettle</b> & cup", ["kettle"]) == "&lt;b&gt;<mark>Kettle</mark>&lt;/b&gt; &amp; cup"


def test_a_long_lead_and_a_long_rest_are_cut() -> None:
    shown = excerpt(f"{'x' * 500} kettle {'y' * 500}", ["kettle"])
    assert shown is not None
    assert shown.startswith("…x")
    assert shown.endswith("y…")
    assert len(shown) < 550


def test_without_a_match_there_is_no_excerpt() -> None:
    assert excerpt("kettle", ["cup"]) is None
    assert highlight("kettle", ["…"]) is None
