"""Finds out which call a message answers that is too large or too broken to be decoded."""

from __future__ import annotations

import re

HEAD_BYTES, TAIL_BYTES = 256, 128
# Where implementations put the id: first (after the version), or last. Nothing inside a result can pass for it:
# the head is anchored at the first brace, the tail at the last.
_AT_HEAD = re.compile(rb'\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"id"\s*:\s*(\d{1,15})\s*,')
_AT_TAIL = re.compile(
    rb'[,}]\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)


def salvaged_id(head: bytes | bytearray, tail: bytes | bytearray) -> int | None:
    found = _AT_HEAD.match(head) or _AT_TAIL.search(tail)
    return int(found[1]) if found else None
