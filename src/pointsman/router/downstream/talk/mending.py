"""Decodes what servers send. Half a surrogate pair is no character, but servers write it; the rest is not lost for it.

It is shown as the replacement character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pointsman.core import wire

# Every escape is matched, so that a backslash that is escaped itself is not taken for the beginning of one.
_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_RAW_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")  # as it would be in UTF-8, where it is forbidden

_SIGNS = (rb"\ud", rb"\uD", b"\xed")


def decode(data: bytes | bytearray, how: Callable[[bytes | bytearray], Any] = wire.decode) -> Any:
    """As `how`, which is asked a second time only where there was something to mend.

    Raises:
        InvalidJsonError: it is not JSON, for other reasons.
    """
    try:
        return how(data)
    except wire.InvalidJsonError:
        if not any(sign in data for sign in _SIGNS):
            raise  # nearly always, and without a second look at all of it
        mended = _RAW_HALF.sub("\ufffd".encode(), _ESCAPE.sub(_whole, data))
        if mended == data:
            raise
    return how(mended)


def _whole(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape["half"] else escape[0]
