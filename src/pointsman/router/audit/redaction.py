"""Truncates what callers send and masks its secrets before it is recorded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pointsman.config.secrets import MASK, SECRET

CUT = "…"
MAX_QUERIES = 20
MAX_QUERY_CHARS = 500
SHORTER_QUERY_CHARS = (200, 80, 30, 10)  # in a row that is too large otherwise
MAX_ARGUMENT_CHARS = 2000  # of one call, names and values together
MAX_ARGUMENT_PARTS = 200
MAX_ARGUMENT_DEPTH = 16

_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase|code)|^pass$|^pwd$|secret|token(?!s)|(?:api|access|private)[-_]?key|authorization|^auth$"
    r"|cookie|credential|signature|^sig$|^pin$|^otp$",
    re.IGNORECASE,
)
_LONGEST_SECRET = 600  # searched beyond the limit, so that truncation does not hide half a secret
_KEY_BLOCK = "PRIVATE KEY-----"
_GAP = re.compile(r"\s")
_BEGINNINGS = (  # of secrets without a gap, in lower case: found at once in a text of any size
    *("ptm_", "earer", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox", "akia", "eyj", "://"),
    *("password=", "passwd=", "secret=", "apikey=", "api_key=", "api-key=", "token="),
)


def free_text(text: str, limit: int) -> str:
    """Truncate free text to `limit` and mask everything that looks like a secret."""
    masked = SECRET.sub(MASK, text[: limit + _LONGEST_SECRET])
    return masked if len(masked) <= limit else masked[: limit - 1] + CUT


def free_tail(text: str, limit: int) -> str:
    """The last `limit` characters of a longer text, masked if they look like a secret or may be the end of one."""
    window, before = text[-limit - _LONGEST_SECRET :], text[: -limit - _LONGEST_SECRET].lower()
    if _KEY_BLOCK in text[:-limit]:
        return MASK
    if not _GAP.search(window[:_LONGEST_SECRET]) and any(begin in before for begin in _BEGINNINGS):
        return MASK
    masked = SECRET.sub(MASK, window)
    kept = min(limit, len(masked) - max(len(window) - limit, 0))  # what stood before the tail never becomes part of it
    return masked[-kept:] if kept > 0 else MASK


def is_secret_name(name: str) -> bool:
    """Whether a member of this name holds a secret, as far as its name says."""
    return _SECRET_NAME.search(name[:100]) is not None


def clean_queries(queries: Sequence[str], limit: int = MAX_QUERY_CHARS) -> list[str]:
    return [free_text(query, limit) for query in queries[:MAX_QUERIES]]


def is_cut(queries: Sequence[str]) -> bool:
    """Whether recorded queries are probably only a part of those that were sent. Of 20 queries, more may be missing."""
    limits = (MAX_QUERY_CHARS, *SHORTER_QUERY_CHARS)
    return len(queries) >= MAX_QUERIES or any(query.endswith(CUT) and len(query) in limits for query in queries)


def clean_arguments(arguments: Any) -> Any:
    """Bound the arguments of a call and mask secrets, by their name and by their shape."""
    return _Arguments().clean(arguments, 0)


class _Arguments:
    """Walks the arguments of one call up to a budget, so that huge ones cost no more than small ones."""

    def __init__(self) -> None:
        self._chars = MAX_ARGUMENT_CHARS
        self._parts = MAX_ARGUMENT_PARTS

    def clean(self, value: Any, depth: int) -> Any:
        self._parts -= 1
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= 256 else CUT
        if self._spent() or depth >= MAX_ARGUMENT_DEPTH:
            return CUT
        if isinstance(value, dict):
            return self._object(value, depth)
        return self._array(value, depth)

    def _object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        for name, item in value.items():
            if self._spent():
                cleaned[CUT] = CUT
                break
            secret = item is not None and is_secret_name(name)
            cleaned[self._text(name)] = MASK if secret else self.clean(item, depth + 1)
        return cleaned

    def _array(self, value: list[Any], depth: int) -> list[Any]:
        cleaned: list[Any] = []
        for item in value:
            if self._spent():
                cleaned.append(CUT)
                break
            cleaned.append(self.clean(item, depth + 1))
        return cleaned

    def _text(self, text: str) -> str:
        cleaned = free_text(text, max(self._chars, 1))
        self._chars -= len(cleaned)
        return cleaned

    def _spent(self) -> bool:
        return self._chars <= 0 or self._parts <= 0
