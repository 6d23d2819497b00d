"""Parts of texts with `<mark>` round what was looked for. The text itself is escaped: the marks are the only tags."""

from __future__ import annotations

import html
import re
import secrets
import sqlite3
from collections.abc import Sequence

from pointsman.archive.store.sqlite.matching import term

_OPEN, _CLOSE = (f"\x01{secrets.token_hex(4)}{sign}" for sign in "()")  # in no text, since nobody can know them
_TITLE, _TEXT = 0, 2  # columns of `words`
_TOKENS = 32
_LEAD, _LONGEST = 200, 300  # characters that are shown before the first mark and from there on
_TAGS = {_OPEN: "<mark>", _CLOSE: "</mark>"}
_SIGN = re.compile(f"({re.escape(_OPEN)}|{re.escape(_CLOSE)})")


def title(connection: sqlite3.Connection, document: int, texts: Sequence[str]) -> str | None:
    found = connection.execute(
        "SELECT highlight(words, ?, ?, ?) FROM words WHERE words MATCH ? "
        "AND rowid = (SELECT min(id) FROM passages WHERE document = ?)",
        (_TITLE, _OPEN, _CLOSE, f"title : ({_any(texts)})", document),
    ).fetchone()
    return _shown(found[0]) if found else None


def passage(connection: sqlite3.Connection, number: int, texts: Sequence[str]) -> str | None:
    found = connection.execute(
        "SELECT snippet(words, ?, ?, ?, '…', ?) FROM words WHERE words MATCH ? AND rowid = ?",
        (_TEXT, _OPEN, _CLOSE, _TOKENS, _any(texts), number),
    ).fetchone()
    return _shown(found[0]) if found else None


def _any(texts: Sequence[str]) -> str:
    return " OR ".join(map(term, texts))


def _shown(marked: str) -> str | None:
    """From a little before the first mark on; nothing where there is no mark."""
    before, *pieces = _SIGN.split(" ".join(marked.split()))
    if not pieces:
        return None
    if len(before) > _LEAD:
        before = f"…{before[-_LEAD:]}"
    shown, room = [html.escape(before, quote=False)], _LONGEST
    for sign, text in zip(pieces[::2], pieces[1::2], strict=True):
        shown += (_TAGS[sign], html.escape(text[:room], quote=False))
        room -= len(text)
        if room < 0:
            shown.append("…" if sign == _CLOSE else f"…{_TAGS[_CLOSE]}")
            break
    return "".join(shown)
