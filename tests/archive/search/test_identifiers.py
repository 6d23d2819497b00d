"""Identifiers are found as written, among others that differ in a character and in archives full of their parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pointsman.archive.embedding.passage_vectors import embed_passages
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.model.documents import Document, PreparedDocument
from pointsman.archive.search.query_parser import parse
from pointsman.archive.search.searcher import LITTLE, LOW_SCORE, Searcher
from pointsman.archive.store.sqlite.storage import SqliteStorage
from pointsman.archive.store.text_search import COMMON_IDENTIFIER
from pointsman.archive.text.chunks import chunks_of
from pointsman.archive.text.words import is_identifier
from tests.archive.engines import AnyStorage
from tests.archive.sample_documents import fill, prepared

GETTERS = ("User", "UserByName", "UserByEmail", "UserByIdAndName", "OrderById", "UsersById")


def _documents() -> Iterator[tuple[str, str, str]]:
    for number in range(1, 80):
        name = f"DEC-{number:04}"
        yield name, name, f"{name}: the team decided in the review how records are kept. See DEC-{number % 79 + 1:04}."
    yield "summary", "Decisions DEC", "DEC 0054 DEC decisions " * 3 + "every dec is listed here, DEC-0001 to DEC-0080"
    for number in range(1, 40):
        yield f"error-{number}", f"Error {number}", f"The printer reports ERR_{number} if tray {7 * number} is empty."
    yield "errors", "Errors", "err err 7 errors: an overview of what the printer reports, 7 trays, 7 errors"
    for name in (*GETTERS, "UserById"):
        yield f"get{name}", "Client", f"Call get{name} to get the record of a user by its id from the server."
    yield "prose", "Users", "Get a user by id: get the user, then get the id of the user by user name."


@pytest.fixture(scope="module", params=[True, False], ids=["with vectors", "by words"])
def searcher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searcher]:
    storage = SqliteStorage(tmp_path_factory.mktemp("store") / "archive.db")
    fill(storage, *(prepared(id_, text, title=title) for id_, title, text in _documents()))
    embeddings = StaticEmbedding() if request.param else None
    if embeddings is not None:
        embed_passages(storage, embeddings)
    yield Searcher(storage, embeddings)
    storage.close()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("ERR_7", "error-7"),
        ("err_7", "error-7"),
        ("what does ERR_7 on the printer mean", "error-7"),
        ("getUserById", "getUserById"),
        ("how is getUserById called to get the record of a user by name", "getUserById"),
        ("DEC-0077", "DEC-0077"),
        ("what did the team decide about how records are kept, according to dec-0077?", "DEC-0077"),
    ],
)
def test_the_passage_with_the_identifier_is_first(searcher: Searcher, query: str, expected: str) -> None:
    first = searcher.search(parse(query), 5).found[0]
    assert first.passage.document == expected
    assert first.relevance >= 0.4


def test_what_mentions_an_identifier_comes_before_what_resembles_it(searcher: Searcher) -> None:
    found = searcher.search(parse("DEC-0054"), 5).found
    assert {hit.passage.document for hit in found[:3]} == {"DEC-0054", "DEC-0053", "summary"}


@pytest.mark.parametrize("query", ["ERR_99", "DEC-0099", "DEC-54", "DEC-0054-9", "ERR_5000 code"])
def test_an_identifier_that_no_passage_has_is_not_found_by_its_parts(searcher: Searcher, query: str) -> None:
    answer = searcher.search(parse(query), 5)
    assert answer.found[0].relevance < LOW_SCORE
    assert answer.notices == (LITTLE,)


@pytest.mark.parametrize("query", ["getUserById", "get_user_by_id", "GetUserById", "err-7", "DEC 0054"])
def test_an_identifier_is_found_however_its_parts_are_joined(searcher: Searcher, query: str) -> None:
    answer = searcher.search(parse(query), 5)
    assert answer.found[0].relevance >= 0.6
    assert answer.notices == ()


@pytest.mark.parametrize("query", ["getuserbyid", "GETUSERBYID", "how is getuserbyid called"])
def test_an_identifier_is_found_in_another_case(searcher: Searcher, query: str) -> None:
    answer = searcher.search(parse(query), 5)
    assert answer.found[0].passage.document == "getUserById"
    assert answer.found[0].relevance >= 0.4
    assert answer.notices == ()


@pytest.mark.parametrize("query", ["ERR_8", "getUserByXyz", "parseZip7"])
def test_an_identifier_that_no_passage_has_scores_low_by_meaning(
    tmp_path_factory: pytest.TempPathFactory, query: str
) -> None:
    storage = SqliteStorage(tmp_path_factory.mktemp("store") / "archive.db")
    fill(storage, prepared("errors.md", "ERR_7: the printer has no paper. getUserById: the user with this id."))
    embeddings = StaticEmbedding()
    embed_passages(storage, embeddings)
    answer = Searcher(storage, embeddings).search(parse(query), 5)
    storage.close()
    assert all(hit.relevance < 0.2 for hit in answer.found)
    assert len(answer.notices) == 1


def test_exclusions_and_filters_hold_for_identifiers(searcher: Searcher) -> None:
    assert searcher.search(parse("ERR_7 -empty"), 5).found[0].passage.document == "errors"
    assert searcher.search(parse("ERR_7 after:2025"), 5).found == ()


def test_an_identifier_that_is_everywhere_is_a_word_like_others(tmp_path_factory: pytest.TempPathFactory) -> None:
    storage = SqliteStorage(tmp_path_factory.mktemp("store") / "archive.db")
    fill(storage, *(prepared(f"{n}.md", f"page {n} is written in utf-8", title="utf-8") for n in range(40)))
    fill(storage, prepared("csv.md", "export spreadsheets"), collection="other")
    found = Searcher(storage, None).search(parse("utf-8 export of spreadsheets"), 5).found
    storage.close()
    assert found[0].passage.document == "csv.md"


DECISIONS = """# Decisions

## DEC-0054 Retry with jitter

A failed call is repeated after a pause that doubles each time. A random share is added, so that clients do not
return together.

## DEC-0005 Retry three times

Superseded by DEC-0054.
"""


def markdown(id_: str, text: str, title: str) -> PreparedDocument:
    return PreparedDocument(Document("notes", id_, title, text, "research", "2024-05-31"), chunks_of(text, title))


def headings(storage: AnyStorage, query: str, *, vectors: bool = True) -> list[str | None]:
    embeddings = StaticEmbedding() if vectors else None
    if embeddings is not None:
        embed_passages(storage, embeddings)
    return [hit.passage.chunk.heading for hit in Searcher(storage, embeddings).search(parse(query), 5).found]


@pytest.mark.parametrize("vectors", [True, False], ids=["with vectors", "by words"])
@pytest.mark.parametrize(
    "query",
    [
        "DEC-0054",
        "dec-0054",
        "what does DEC-0054 say",
        "explain DEC-0054",
        "DEC 0054",
        "what is DEC 0054 about?",
        '"DEC-0054"',
        "+DEC-0054",
        '"DEC 0054"',
    ],
)
def test_the_section_that_an_identifier_heads_comes_before_what_refers_to_it(
    storage: AnyStorage, query: str, vectors: bool
) -> None:
    fill(storage, markdown("decisions.md", DECISIONS, "Decisions"))
    found = headings(storage, query, vectors=vectors)
    assert found[:2] == ["DEC-0054 Retry with jitter", "DEC-0005 Retry three times"]


def test_a_document_with_the_identifier_in_its_title_comes_before_what_refers_to_it(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "See ADR-17.", heading="Links"), prepared("b.md", "We use queues.", title="ADR-17"))
    assert headings(storage, "ADR-17") == [None, "Links"]


def test_a_section_leads_also_where_many_passages_refer_to_it(storage: AnyStorage) -> None:
    references = (prepared(f"{n}.md", f"Note {n}: see DEC-0054.") for n in range(COMMON_IDENTIFIER + 1))
    fill(storage, *references, markdown("decisions.md", DECISIONS, "Decisions"))
    assert headings(storage, "DEC-0054")[0] == "DEC-0054 Retry with jitter"


def test_a_passage_with_more_of_the_identifiers_does_not_come_before_their_sections(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "DEC-0054 DEC-0005", heading="Links"))
    fill(storage, markdown("decisions.md", DECISIONS, "Decisions"))
    assert headings(storage, "compare DEC-0054 with DEC-0005")[2] == "Links"


@pytest.mark.parametrize("query", ["DEC-0054 and what it says on clients that repeat calls", "explain getUserById"])
def test_a_heading_leads_in_a_long_query_by_a_number_and_in_a_short_one_by_any_identifier(
    storage: AnyStorage, query: str
) -> None:
    fill(storage, markdown("decisions.md", DECISIONS, "Decisions"))
    fill(storage, prepared("a.md", "Clients that repeat calls: see DEC-0054. To explain: getUserById", heading="Calls"))
    fill(storage, prepared("b.md", "Returns the record of the user.", heading="getUserById"))
    assert headings(storage, query)[0] in ("DEC-0054 Retry with jitter", "getUserById")


def test_a_long_query_with_a_code_name_finds_what_it_describes(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "Update a wrapper function to look like another.", heading="update_wrapper"))
    fill(storage, prepared("b.md", "Decorator factory to apply update_wrapper to a wrapper function.", heading="wraps"))
    assert headings(storage, "decorator factory to apply update_wrapper() to a wrapper function")[0] == "wraps"


def test_a_word_before_a_year_is_no_identifier_in_running_text(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "Sales in 2024 were low.", heading="In 2024"))
    fill(storage, prepared("b.md", "Revenue of the Berlin office in the year 2024.", heading="Revenue"))
    assert headings(storage, "revenue of the Berlin office in 2024")[0] == "Revenue"


@pytest.mark.parametrize(
    "word", ["DEC-0054", "dec-0054", "ERR_7", "e47", "sha256", "max_size", "getUserById", "HTTPServer"]
)
def test_identifiers_are_told_from_words(word: str) -> None:
    assert is_identifier(word)


@pytest.mark.parametrize("word", ["high-speed", "word", "2024", "don't", "1990-05", "and/or", "\u65e5\u672c"])
def test_words_are_told_from_identifiers(word: str) -> None:
    assert not is_identifier(word)
