"""What is known about tools is made once and does not pile up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pointsman.providers import embeddings
from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.documents import FIELDS, KEPT_CONTENTS, PreparedTools, embeddable_texts, texts_of


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


def test_all_contents_in_use_are_kept_and_as_many_that_are_not() -> None:
    library = PreparedTools(kept=2)
    alive = [document(name) for name in "abcd"]
    used = [library.prepared(each) for each in alive]
    gone = [library.prepared(document(name)) for name in "wxyz"]
    assert [library.prepared(document(each.tool_name)) for each in alive] == used  # as after a restart of its server
    assert [library.prepared(document(name)) for name in "wxyz"] == gone
    alive.clear()
    for name in "12":
        library.prepared(document(name))
    assert len(library._by_content) == 2


def test_a_server_that_keeps_renaming_its_tools_leaves_a_bounded_number_behind() -> None:
    library = PreparedTools()
    for number in range(3 * KEPT_CONTENTS):
        library.prepared(document(f"extra_{number}"))
    assert len(library._by_content) == KEPT_CONTENTS


def test_the_vector_of_a_tool_does_not_keep_those_of_others() -> None:
    library, tools = PreparedTools(), [document(name) for name in ("weather", "mail", "calendar")]
    prepared = [library.prepared(tool) for tool in tools]
    library.vectors(tools, prepared, embeddings.load())
    assert [each.vector is not None and each.vector.base is None for each in prepared] == [True] * 3


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
    purpose, whole = embeddable_texts(texts_of(tool))
    assert purpose == "get Forecast v2 Looks ahead."
    assert whole == "get Forecast v2 my weather Looks ahead. city Name"
    assert embeddable_texts(texts_of(document("天气"))) == ("", "")


def test_a_tool_that_shouts_means_the_same() -> None:
    shouted, said = ("SEND_MAIL", "MAIL", "SEND A LETTER."), ("send_mail", "mail", "send a letter.")
    loud, calm = (ToolDocument("k", *texts, {}) for texts in (shouted, said))
    assert embeddable_texts(texts_of(loud)) == embeddable_texts(texts_of(calm))


def test_threads_that_read_at_the_same_time_agree_on_the_numbers_of_words() -> None:
    library = PreparedTools()
    documents = [document(f"tool_{number}", f"word{number % 7} other{number}") for number in range(200)]
    equals = [document(each.tool_name, each.description) for each in documents]
    with ThreadPoolExecutor(4) as pool:
        first, second = pool.map(lambda tools: [library.prepared(tool) for tool in tools], (documents, equals[::-1]))
    assert all(one is other for one, other in zip(first, second[::-1], strict=True))
    words = {number for prepared in first for number in prepared.words.tolist()}
    assert len(words) == len(library.vocabulary) == max(words) + 1
