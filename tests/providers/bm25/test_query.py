"""Requests are taken apart into words, sentences and what stands for them."""

from __future__ import annotations

import pytest

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.bm25.query import MAX_PARTS, MAX_WORDS, parse, parse_all
from pointsman.providers.bm25.synonyms import synonyms_of
from pointsman.router.gateway.meta_tools import MAX_TEXT


def test_each_sentence_is_a_part_and_each_word_is_said_once() -> None:
    query = parse("Book a flight to Oslo. Then send Anna the flight number!")
    assert [sorted(part) for part in query.parts] == [["book", "flight", "oslo"], ["anna", "flight", "number", "send"]]
    assert list(query.tokens) == ["book", "flight", "oslo", "send", "anna", "number"]
    assert query.texts == ("Book a flight to Oslo.", "Then send Anna the flight number!")


@pytest.mark.parametrize("text", ["", "  ", "please", "?!", "\n\n", "Hello. Please!"])
def test_a_text_without_meaning_has_no_parts(text: str) -> None:
    query = parse(text)
    assert (query.tokens, query.parts, query.texts) == ({}, (), ())


def test_chinese_sentences_need_no_space_between_them() -> None:
    assert parse("查询天气。发送邮件。").texts == ("查询天气。", "发送邮件。")


def test_a_long_text_has_few_parts_and_loses_none_of_its_words() -> None:
    query = parse(" ".join(f"{n}." for n in range(20)))
    assert len(query.parts) == MAX_PARTS
    assert len(query.tokens) == 20


def test_a_word_is_not_its_own_synonym() -> None:
    assert "delet" in synonyms_of("remov")
    assert "remov" not in synonyms_of("remov")
    assert not synonyms_of("zebra")


async def test_a_synonym_finds_the_tool_but_the_word_itself_finds_it_first() -> None:
    tools = [ToolDocument(f"s:{name}", name, "s", "", {}) for name in ("erase_note", "remove_note", "share_note")]
    hits = await BM25SearchProvider(embeddings=False).search(SearchRequest(("remove a note",), None, tools, 5))
    assert [hit.tool_key for hit in hits] == ["s:remove_note", "s:erase_note", "s:share_note"]
    assert [hit.explanation for hit in hits] == ["remove, note in name", "~remove, note in name", "note in name"]


async def test_a_query_in_another_language_than_the_tools_is_told_apart() -> None:
    tools = [ToolDocument("s:forecast", "forecast", "s", "The weather of tomorrow, such as in Berlin", {})]
    expected = {
        "wetter in Berlin morgen": True,
        "weather": False,
        "wheather": False,
        "": False,
        "zeige Forecasts": False,
    }
    for query, foreign in expected.items():
        hits = await BM25SearchProvider(embeddings=False).search(SearchRequest((query,), None, tools, 5))
        assert (query, hits.foreign) == (query, foreign)


async def test_two_wishes_in_one_query_are_both_heard() -> None:
    names = ("book_flight", "send_mail", "flight_status_of_many_airports", "read_note")
    tools = [ToolDocument(f"s:{name}", name, "s", "", {}) for name in names]
    request = SearchRequest(("Book a flight to Oslo for me on Friday. Send a mail to Anna.",), None, tools, 2)
    for embeddings in (True, False):
        hits = await BM25SearchProvider(embeddings).search(request)
        assert {hit.tool_key for hit in hits} == {"s:book_flight", "s:send_mail"}


def test_a_query_of_the_greatest_length_is_read_to_its_end() -> None:
    filler = "x " * ((MAX_TEXT - len("forecast")) // 2)
    assert "forecast" in parse(f"{filler}forecast").tokens


def test_characters_that_become_many_are_bounded_as_what_they_become() -> None:
    assert sum(map(len, parse("\ufdfa" * MAX_TEXT).texts)) <= MAX_TEXT  # a ligature of eighteen letters


@pytest.mark.parametrize("space", ["\u3000", "\r", "\u2003", "\x0c", "\u2028", "\x85", "\t", "\r\t\u3000"])
def test_a_run_of_spaces_of_any_kind_is_one_space(space: str) -> None:
    """Else a pattern that begins with a run of spaces looks through the rest of the run from each of its places."""
    (text,) = parse(f"read{space * 2_000}the file{space}now").texts
    assert text == "read the file now"


def test_a_request_has_so_many_words_and_each_of_its_texts_a_share() -> None:
    crowd = [" ".join(f"w{number}x{word}" for word in range(1_000)) for number in range(50)]
    parsed = parse_all([*crowd, "what is the weather"])
    assert sum(len(query.tokens) for query in parsed) <= MAX_WORDS
    assert min(len(query.tokens) for query in parsed[:-1]) >= MAX_WORDS // 51
    assert list(parsed[-1].tokens) == ["weather"]


def test_what_one_text_leaves_over_the_next_may_have() -> None:
    long = " ".join(f"word{number}" for number in range(1_500))
    assert parse_all(["short", long])[1] == parse(long)
