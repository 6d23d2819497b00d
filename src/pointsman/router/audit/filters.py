"""Which rows are wanted. Each engine makes a statement of a filter; rows of the journal are compared here."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pointsman.router.audit.rows import Intent

BY_VALUE = ("token", "project", "tool_key", "server_id", "kind", "request_id")
IN_TEXT = ("queries", "tool_key", "client", "method", "request_id")


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects rows. None matches all; the empty string matches rows without a token, project or outcome."""

    since_ms: int | None = None
    until_ms: int | None = None
    token: str | None = None
    project: str | None = None
    tool_key: str | None = None
    server_id: str | None = None
    kind: str | None = None
    outcome: str | None = None
    code: str | None = None
    request_id: str | None = None
    text: str | None = None  # anywhere in the queries, the tool's key, the client, the method or the request id
    before_seq: int | None = None
    after_seq: int = 0
    also: frozenset[int] = frozenset()  # matched although not after `after_seq`

    def matches_intent(self, intent: Intent) -> bool:
        if intent.seq <= self.after_seq and intent.seq not in self.also:
            return False
        if self.since_ms is not None and intent.time_ms < self.since_ms:
            return False
        if self.until_ms is not None and intent.time_ms >= self.until_ms:
            return False
        if self.before_seq is not None and intent.seq >= self.before_seq:
            return False
        if self.text and not _has_text(intent, self.text):
            return False
        return all(getattr(intent, name) == value for name, value in self.values())

    def matches_outcome(self, outcome: str | None, code: str | None) -> bool:
        if self.outcome is not None and self.outcome != (outcome or ""):
            return False
        return self.code is None or code == self.code

    def values(self) -> list[tuple[str, str | None]]:
        """The columns that must have a value, and the value; None: they must have none."""
        given = ((name, getattr(self, name)) for name in BY_VALUE)
        return [(name, value or None) for name, value in given if value is not None]


def like(text: str) -> str:
    r"""The pattern of `LIKE ... ESCAPE '\'` for rows with this text."""
    escaped = _in_json(text).replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"


def _has_text(intent: Intent, text: str) -> bool:
    """As `LIKE` compares: only ASCII letters match in either case."""
    values = (getattr(intent, name) for name in IN_TEXT)
    whole = " ".join(value if isinstance(value, str) else _encode(value).decode() if value else "" for value in values)
    return lower(_in_json(text)) in lower(whole)


def _in_json(text: str) -> str:
    """The queries are stored as JSON, where quotes and control characters have escapes."""
    return _encode(text).decode()[1:-1]


def lower(text: str) -> str:
    """Of ASCII letters only."""
    return text.translate(_ASCII_LOWER)


_ASCII_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_encode = msgspec.json.Encoder().encode
