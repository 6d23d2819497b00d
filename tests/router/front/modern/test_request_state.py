"""What a client is told of a `requestState` that does not open: why, only if it was sealed for this very call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pointsman.core.model import Caller
from pointsman.core.seams import FrontRequest, ProtocolError
from pointsman.router.front.modern.request_state import Seal
from tests.router.peers.test_version_before import CLIENT, KEY

PARAMS: dict[str, Any] = {"name": "tool_execute", "arguments": {"toolKey": "a:b", "arguments": {}}}
INVALID = "Invalid or expired requestState. Make the call again without it."


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


def request(token: str = "ada", **params: Any) -> FrontRequest:
    return FrontRequest("8", "tools/call", PARAMS | params, Caller(token, None), CLIENT)


def test_an_answer_that_comes_too_late_is_told_so() -> None:
    clock = Clock()
    seal = Seal([KEY], "pointsman", clock)
    state = seal.close(request(), {"park": "x"}, 900)
    assert seal.open(request(), state) == {"park": "x"}
    clock.now += 900
    with pytest.raises(ProtocolError) as late:
        seal.open(request(), state)
    assert str(late.value.message).startswith("Nobody answered within 900 s, so this requestState has expired. Make")
    assert late.value.data == {"reason": "invalid_request_state"}
    strangers = [(request("eve"), state), (request(arguments={}), state), (request(), state[:-2]), (request(), "v1.x")]
    for other, given in strangers:
        with pytest.raises(ProtocolError) as refused:
            seal.open(other, given)
        assert refused.value.message == INVALID
    clock.now = 1_000 - 61
    with pytest.raises(ProtocolError) as early:
        seal.open(request(), state)
    assert early.value.message == INVALID
