"""A text is cut where a reader would cut it, and says so."""

from __future__ import annotations

import pytest

from pointsman.catalog.answer import clip


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
