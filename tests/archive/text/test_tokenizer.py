"""The words of a text are those of SQLite's `porter unicode61`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pointsman.archive.text import tokenizer
from pointsman.archive.text.tokenizer import spans, tokenize
from tests.archive.fts5 import UNUSUAL, Fts5, passages


def test_words_equal_those_of_fts5_on_real_and_unusual_texts() -> None:
    reference = Fts5(passages())
    assert len(passages()) > 500
    for passage in passages():
        assert tokenize(passage.text) == reference.words(passage.number), passage.text
        assert [span.word for span in spans(passage.text)] == tokenize(passage.text)


def test_spans_name_the_characters_of_each_word() -> None:
    text = "Running  cafe\u0301s, (naïve)!"
    assert [(span.word, text[span.start : span.end]) for span in spans(text)] == [
        ("run", "Running"),
        ("cafe", "cafe\u0301s"),
        ("naiv", "naïve"),
    ]


@pytest.mark.parametrize("text", ["", " ", "…", "\u0301", "\x00"])
def test_a_text_may_have_no_words(text: str) -> None:
    assert tokenize(text) == []
    assert spans(text) == []


def test_threads_share_the_tables_and_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "MOST_STEMS", 50)
    texts = [*UNUSUAL, *(f"words{number} of{number} running{number}" for number in range(200))]
    expected = {text: [span.word for span in spans(text)] for text in texts}
    with ThreadPoolExecutor(8) as pool:
        for text, words in zip(texts * 4, pool.map(tokenize, texts * 4), strict=True):
            assert words == expected[text]
    assert len(tokenizer._stems._known) <= 50 + max(len(words) for words in expected.values())


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        tokenize("a\ud800b")
