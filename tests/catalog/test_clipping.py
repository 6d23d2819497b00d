"""A text is cut where a reader would cut it, and says so."""

from __future__ import annotations

import pytest

from pointsman.catalog.answer import clip, shorten


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("Reads a file.", 20, "Reads a file."),
        ("  Reads\n\n   a file.  ", 20, "Reads a file."),
        ("Reads a file. Gives its lines.", 20, "Reads a file.…"),
        ("Reads version 1.25 of a file", 18, "Reads version 1.25…"[:13] + "…"),
        ("Reads one or more files", 14, "Reads one or…"),
        ("Hi. This sentence begins so early that a cut there says nothing", 30, "Hi. This sentence begins so…"),
        ("ファイルを読み込みます。行を返します。", 14, "ファイルを読み込みます。…"),
        ("x" * 50, 10, "x" * 9 + "…"),
        ("", 10, ""),
    ],
)
def test_cut(text: str, room: int, shown: str) -> None:
    assert clip(text, room) == shown
    assert len(shown) <= room


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Reads a file and more.", "Reads a file and more."),
        ("Reads a file. Gives its lines. And so on.", "Reads a file.…"),
        ("Reads a whole file now. Gives lines.", "Reads a whole file now.…"),  # a little over the room
        ("Reads files (e.g. logs) of any kind at all times.", "Reads files (e.g.…"),
        ("Hi. Reads the whole of a very long file", "Hi. Reads the whole…"),
        ("x" * 50, "x" * 19 + "…"),
    ],
)
def test_a_text_is_shortened_to_the_nearest_sentence(text: str, shown: str) -> None:
    assert shorten(text, 20) == shown


def test_blank_lines_without_end_are_read_once() -> None:
    assert shorten("\n" * 1_000_000 + "Reads a file.", 20) == "Reads a file."
