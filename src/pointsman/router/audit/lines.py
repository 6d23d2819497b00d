"""Makes a journal line of an entry, bounded in length whatever it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pointsman.router.audit.redaction import CUT, clean_queries
from pointsman.router.audit.rows import Intent, Outcome

MAX_LINE_BYTES = 8192
_encode = msgspec.json.Encoder().encode


def encode_line(entry: Intent | Outcome) -> bytes:
    line = _encode_any(entry)
    if len(line) <= MAX_LINE_BYTES or isinstance(entry, Outcome):  # an outcome holds only short names and numbers
        return line
    return next(line for line in map(_encode_any, _smaller(entry)) if len(line) <= MAX_LINE_BYTES)


def _encode_any(entry: Intent | Outcome) -> bytes:
    try:
        return _encode(entry) + b"\n"
    except UnicodeEncodeError:
        return _encode(_without_surrogates(msgspec.to_builtins(entry))) + b"\n"


def _smaller(intent: Intent) -> Iterator[Intent]:
    """Text grows sixfold when it is escaped. The arguments go first, then the queries; the names alone always fit."""
    if intent.arguments is not msgspec.UNSET:
        intent = msgspec.structs.replace(intent, arguments=CUT)
        yield intent
    queries = intent.queries or []
    for limit in (200, 80, 30, 10):
        yield msgspec.structs.replace(intent, queries=clean_queries(queries, limit))
    yield msgspec.structs.replace(intent, queries=None)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value
