"""A large response in parts: what a server sent and nobody decoded is written as it came, without a copy."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from pointsman.core.model import Json
from pointsman.core.wire import encode
from pointsman.router.serving.in_flight import LARGE_BYTES

_PLACE = b"\0"  # of a part, in the JSON around it: no JSON has this byte


class BodyParts:
    """One body, in order. Whoever passes a body on and asks only for its length can take it for bytes."""

    __slots__ = ("_size", "parts")

    def __init__(self, parts: list[bytes | memoryview]) -> None:
        self.parts = parts
        self._size = sum(map(len, parts))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


def in_parts(request_id: Any, result: Json) -> BodyParts | None:
    """The response of a request whose content or structured content is large and undecoded; None: encode it whole."""
    large: list[memoryview] = []
    around = {key: _without_large(value, large) for key, value in result.items()}
    if not large:
        return None
    texts = encode({"jsonrpc": "2.0", "id": request_id, "result": around}).split(_PLACE)
    if len(texts) != len(large) + 1:
        return None
    parts: list[bytes | memoryview] = [texts[0]]
    for content, text in zip(large, texts[1:], strict=True):
        parts += (content, text)
    return BodyParts(parts)


def _without_large(value: Any, large: list[memoryview]) -> Any:
    """A member of a result, with marks for what is large; `tool_execute` has structured content inside an object."""
    if type(value) is Raw and len(text := memoryview(value)) > LARGE_BYTES:
        large.append(text)
        return Raw(_PLACE)
    if type(value) is dict and len(value) == 1 and type(value.get("result")) is Raw:
        return {"result": _without_large(value["result"], large)}
    return value
