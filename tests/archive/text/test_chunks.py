"""Passages: bounded, complete, split at natural boundaries."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.archive.model.documents import Chunk
from pointsman.archive.text.chunks import MAX_CHARS, chunks_of

PARAGRAPH = "A sentence of some length that says nothing in particular. " * 8


def test_passages_are_cut_at_headings_and_know_theirs() -> None:
    chunks = chunks_of("Before.\n\n# One\nText one.\n\n## Two\nText two.\n", "Title")
    assert chunks == (
        Chunk("Before.", None, 1, 1),
        Chunk("# One\nText one.", "One", 3, 4),
        Chunk("## Two\nText two.", "Two", 6, 7),
    )


def test_a_heading_without_text_goes_with_the_next() -> None:
    assert chunks_of("# Guide\n\nPart\n----\n\n## Use\nText.\n", "Guide") == (
        Chunk("# Guide\n\nPart\n----\n\n## Use\nText.", "Use", 1, 7),
    )


def test_a_heading_at_the_end_is_not_lost() -> None:
    assert chunks_of("text\n\n# Last", "t")[-1] == Chunk("# Last", "Last", 3, 3)


def test_front_matter_is_in_no_passage() -> None:
    assert chunks_of("---\ntitle: x\n---\nText.", "x") == (Chunk("Text.", None, 4, 4),)


def test_a_document_without_text_is_found_by_its_title() -> None:
    assert chunks_of("---\ntitle: x\n---\n\n", "Only a title") == (Chunk("Only a title", None, 1, 1),)
    assert chunks_of("", "") == ()


def test_a_long_section_is_cut_between_paragraphs_into_parts_of_about_one_size() -> None:
    chunks = chunks_of("# Long\n\n" + "\n\n".join([PARAGRAPH] * 7), "Long")
    assert {chunk.heading for chunk in chunks} == {"Long"}
    sizes = [len(chunk.text) for chunk in chunks]
    assert max(sizes) <= MAX_CHARS
    assert min(sizes) > MAX_CHARS / 3
    assert all(chunk.text.endswith(".") or chunk.text.endswith(" ") for chunk in chunks)


def test_code_between_fences_stays_together() -> None:
    code = "```\n" + "\n\n".join(f"line {number}" for number in range(60)) + "\n```"
    chunks = chunks_of(f"# Code\n\n{PARAGRAPH}\n\n{PARAGRAPH}\n\n{code}\n\n{PARAGRAPH}", "Code")
    (holding,) = [chunk for chunk in chunks if "line 30" in chunk.text]
    assert code in holding.text


def test_a_line_that_is_too_long_is_cut_after_sentences_or_between_words() -> None:
    sentences = chunks_of(PARAGRAPH * 10, "t")
    assert all(chunk.text.endswith(".") for chunk in sentences)
    words = chunks_of("word " * 3000, "t")
    assert set(" ".join(chunk.text for chunk in words).split()) == {"word"}
    assert "".join(chunk.text for chunk in chunks_of("x" * 5000, "t")) == "x" * 5000


@pytest.mark.parametrize(
    "text", ["x" * 800_000, "word " * 100_000, "# h\n" * 80_000, "```\n" * 80_001, "a\n\n" * 80_000]
)
def test_long_texts_are_cut_in_one_pass(text: str) -> None:
    """Anything but one pass would take hours here."""
    assert max(len(chunk.text) for chunk in chunks_of(text, "t")) <= MAX_CHARS


@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(
    st.lists(
        st.sampled_from(["", "text", "# H", "```", "- item", "  more", "<div>", PARAGRAPH, "===", "z" * 900]),
        max_size=30,
    )
)
def test_nothing_is_lost_and_nothing_is_twice(lines: list[str]) -> None:
    chunks = chunks_of("\n".join(["start", *lines]), "t")
    assert "".join("".join(chunk.text for chunk in chunks).split()) == "start" + "".join("".join(lines).split())
    assert all(len(chunk.text) <= MAX_CHARS for chunk in chunks)
    places = [(chunk.start_line, chunk.end_line) for chunk in chunks]
    assert places == sorted(places)
