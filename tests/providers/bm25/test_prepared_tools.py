"""What is known about tools is made once and does not pile up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.documents import FIELDS, PreparedTools, embeddable_text, texts_of


def document(name: str, description: str = "") -> ToolDocument:
    return ToolDocument(f"s:{name}", name, "s", description, {})


def test_equal_content_is_prepared_once() -> None:
    library = PreparedTools()
    assert library.prepared(document("a", "text")) is library.prepared(document("a", "text"))
    assert library.prepared(document("a", "text")) is not library.prepared(document("a", "other"))


def test_content_that_was_not_seen_for_long_is_forgotten() -> None:
    library = PreparedTools(kept=2)
    first = library.prepared(document("a"))
    for name in ("b", "c"):
        library.prepared(document(name))
    assert library.prepared(document("a")) is not first


def test_a_document_that_lives_is_known_however_many_come_after_it() -> None:
    library = PreparedTools(kept=1)
    alive = document("a")
    first = library.prepared(alive)
    for name in ("b", "c"):
        library.prepared(document(name))
    assert library.prepared(alive) is first


def test_text_that_is_not_text_does_no_harm() -> None:
    library = PreparedTools()
    assert len(library.prepared(document("a", "half a pair: \ud83d and weather")).words) > 1


def test_a_word_is_counted_in_every_field_that_has_it() -> None:
    library = PreparedTools()
    prepared = library.prepared(ToolDocument("k", "get_weather", "weather", "the weather", {}))
    number = library.vocabulary.get("weather")
    assert number is not None
    places = prepared.fields_by_word()[number]
    assert [field for bit, field in enumerate(FIELDS) if places >> bit & 1] == ["name", "server", "description"]
    assert prepared.counts[prepared.words.tolist().index(number)] == 6 + 4 + 2


def test_identifiers_are_taken_apart_before_their_meaning_is_looked_up() -> None:
    tool = ToolDocument("k", "getForecast_v2", "my-weather", "Looks ahead.", {"properties": {"cityName": {}}})
    assert embeddable_text(texts_of(tool)) == "get Forecast v2 my weather Looks ahead. city Name"
    assert embeddable_text(texts_of(document("天气"))) == ""


def test_a_tool_that_shouts_means_the_same() -> None:
    shouted, said = ("SEND_MAIL", "MAIL", "SEND A LETTER."), ("send_mail", "mail", "send a letter.")
    loud, calm = (ToolDocument("k", *texts, {}) for texts in (shouted, said))
    assert embeddable_text(texts_of(loud)) == embeddable_text(texts_of(calm))


def test_threads_that_read_at_the_same_time_agree_on_the_numbers_of_words() -> None:
    library = PreparedTools()
    documents = [document(f"tool_{number}", f"word{number % 7} other{number}") for number in range(200)]
    equals = [document(each.tool_name, each.description) for each in documents]
    with ThreadPoolExecutor(4) as pool:
        first, second = pool.map(lambda tools: [library.prepared(tool) for tool in tools], (documents, equals[::-1]))
    assert all(one is other for one, other in zip(first, second[::-1], strict=True))
    words = {number for prepared in first for number in prepared.words.tolist()}
    assert len(words) == len(library.vocabulary) == max(words) + 1
