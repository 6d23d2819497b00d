"""What becomes a token."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.providers import text as module
from pointsman.providers.stemmer import english
from pointsman.providers.text import (
    MAX_TOKEN_CHARS,
    STOP_WORDS,
    first_sentence,
    foreign_script,
    sentences,
    stem,
    tokens,
    with_tokens,
    without_cjk,
    words,
    words_with_tokens,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserName", ["get", "user", "name"]),
        ("get_user_name", ["get", "user", "name"]),
        ("get-user-name", ["get", "user", "name"]),
        ("get.user/name", ["get", "user", "name"]),
        ("HTTPServer", ["http", "server"]),
        ("parseHTML5Page", ["parse", "html", "5", "page"]),
        ("utf8", ["utf", "8"]),
        ("URLs and PDFs", ["urls", "and", "pdfs"]),
        ("SCREAMING_CASE", ["screaming", "case"]),
        ("GitHub", ["git", "hub", "github"]),
        ("OAuth or eBay", ["o", "auth", "or", "e", "bay", "oauth", "ebay"]),
        ("don't what\u2019s", ["dont", "whats"]),
        ("Café ÀÉÎ naïve", ["cafe", "aei", "naive"]),
        ("\uff26\uff35\uff2c\uff2c width", ["full", "width"]),
        ("Привет МИР", ["привет", "мир"]),
        ("天气预报", ["天气", "气预", "预报", "天", "气", "预", "报"]),
        ("水", ["水"]),
        ("東京の天気", ["東京", "京の", "の天", "天気", "東", "京", "天", "気"]),
        ("get天气now", ["get", "天气", "天", "气", "now"]),
        ("날씨예보", ["날씨", "씨예", "예보"]),
        ("", []),
        (" \n\t!?", []),
        ("🙂 ok", ["ok"]),
    ],
)
def test_text_is_split_into_words(text: str, expected: list[str]) -> None:
    assert list(words(text)) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [("searching searches", "search"), ("queries", "query"), ("URLs", "url"), ("deleted Deleting", "delete")],
)
def test_forms_of_a_word_are_one_token(one: str, other: str) -> None:
    assert set(tokens(one)) == set(tokens(other))


def test_courtesy_and_grammar_are_left_out() -> None:
    assert tokens("Hello, could you please help me to find the weather?") == ["find", "weather"]


def test_identifiers_are_not_stop_words() -> None:
    assert not STOP_WORDS & {"id", "get", "list", "find", "search", "time", "file", "new", "it's"}


@given(st.text(max_size=200))
def test_any_text_gives_bounded_words(text: str) -> None:
    for word in words(text):
        assert 0 < len(word) <= MAX_TOKEN_CHARS
        assert stem(word)


def test_stems_are_the_same_from_every_thread() -> None:
    terms = [f"{letter}{ending}" for letter in "abcdefgh" for ending in ("ationally", "ingness", "ousness")] * 20
    expected = [stem(term) for term in terms]
    module._stem.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(stem, terms)) == expected


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("rename a file", "rename a file"),
        ("rename a file 改", "rename a file  "),
        ("東京 weather", "   weather"),
        ("天气预报", ""),
        ("天气预报 API", ""),
        ("12 天气", ""),
    ],
)
def test_cjk_is_taken_out_of_other_text_and_nothing_is_left_where_it_prevails(text: str, left: str) -> None:
    assert without_cjk(text) == left


def test_characters_that_nobody_sees_do_not_split_words() -> None:
    assert tokens("fore\u00adcast \ufeffwea\u200dther") == tokens("forecast weather")


def test_ids_do_not_fill_the_cache_of_stems() -> None:
    """A gateway that is asked for another id each time would grow for as long as it runs."""
    tokens("find the order")
    before = module._stem.cache_info().currsize
    for number in range(1000):
        tokens(f"find the order {number}0 A-{number}")
    assert module._stem.cache_info().currsize <= before + 10
    assert module._stem.cache_info().maxsize == 16_384


@pytest.mark.parametrize("text", ["покажи файлы", "ファイルを読む", "读取文件", "파일 읽기", "اقرأ الملف"])
def test_a_text_in_another_script_is_told_from_latin(text: str) -> None:
    script = foreign_script(f"{text} a")
    assert script is not None
    assert script.search(text)
    assert not script.search("read a file, naïvely")


@pytest.mark.parametrize("text", ["", "read a file", "lies die Datei für Zoë", "open GitHub の issue", "→ 42"])
def test_a_text_mostly_in_latin_is_not(text: str) -> None:
    assert foreign_script(text) is None


@given(
    st.lists(st.sampled_from(["word", " ", ".", "; ", "\n", "\t", "\u3000", "\u3002", "?! "]), max_size=9).map("".join)
)
def test_the_first_sentence_is_the_first_of_all_sentences(text: str) -> None:
    assert first_sentence(text) == next(iter(sentences(text)), "")


@given(st.text(max_size=60))
def test_words_have_the_same_tokens_alone_and_in_their_text(text: str) -> None:
    assert with_tokens(words(text)) == words_with_tokens(text)


def test_the_stemmer_is_the_one_that_its_package_gives() -> None:
    from snowballstemmer import stemmer

    theirs, ours = stemmer("english"), english()
    for word in ("running", "organisation", "skies", "dying", "generously", "a", "", "happiness", "news"):
        assert ours.stemWord(word) == theirs.stemWord(word)
