"""SQLite's FTS5 as the reference for words, scores and excerpts, and real texts to compare on."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pointsman.archive.store.postings import PassageTexts
from pointsman.archive.text.chunks import chunks_of
from pointsman.archive.text.words import identifier_parts, spellings, split_identifier

ROOT = Path(__file__).resolve().parents[2]
UNUSUAL = (
    "naïve Ünïcode Straße ﬁne ǅ İstanbul ΣΊΣΥΦΟΣ жеребёнок Ờ ệ e\u0301clair a\u0323\u0301b \u0301x",
    "漢字かな交じり文 한국어 ภาษาไทย हिन्दी العربية \ue000 🦀emoji x🦀y",
    "½ x² Ⅷ nul\x00byte snake_case a.b.c C++ 3.14 don't",
    f"{'long' * 40} {'é' * 70}ing {'x' * 63} {'y' * 64}ing analogy possibly assembly",
    "getUserName HTTPServer maxRetryCount",
)


@cache
def passages() -> tuple[PassageTexts, ...]:
    """The project's own documentation, cut as the archive cuts it, and some unusual texts."""
    texts: list[tuple[str, str | None, str]] = [("unusual", None, text) for text in UNUSUAL]
    for path in sorted([*ROOT.glob("docs/**/*.md"), ROOT / "CHANGELOG.md", ROOT / "README.md"]):
        title = f"{path.parent.name} {path.stem}"
        texts += [(title, chunk.heading, chunk.text) for chunk in chunks_of(path.read_text("utf-8"), title)]
    return tuple(PassageTexts(number, *each, identifier_parts(*each)) for number, each in enumerate(texts, start=1))


class Fts5:
    """A full-text index of passages, configured as the archive's index of words must rank."""

    def __init__(self, passages: Sequence[PassageTexts]) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute(
            "CREATE VIRTUAL TABLE words USING fts5 (title, heading, text, parts, tokenize = 'porter unicode61')"
        )
        self.connection.execute("CREATE VIRTUAL TABLE found USING fts5vocab (words, instance)")
        self.connection.executemany(
            "INSERT INTO words (rowid, title, heading, text, parts) VALUES (?, ?, ?, ?, ?)", passages
        )

    def scores(self, expression: str) -> dict[int, float]:
        rows = self.connection.execute(
            "SELECT rowid, -bm25(words, 2.0, 1.0, 1.0, 0.5) AS score FROM words WHERE words MATCH ? "
            "ORDER BY score DESC, rowid",
            (expression,),
        )
        return dict(rows.fetchall())

    def words(self, number: int, column: str = "text") -> list[str]:
        rows = self.connection.execute(
            "SELECT term FROM found WHERE doc = ? AND col = ? ORDER BY offset", (number, column)
        )
        return [word for (word,) in rows]


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def term(text: str) -> str:
    """A word or phrase, also by the parts of an identifier; a version number with and without its `v`."""
    read = [quoted(each) for each in spellings(text)]
    if parts := split_identifier(text):
        read.append(f"parts : {quoted(parts)}")
    return f"({' OR '.join(read)})" if len(read) > 1 else read[0]
