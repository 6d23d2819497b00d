"""Callers as a bundled server knows them: apart from each other, and by no name."""

from __future__ import annotations

import pytest

from pointsman.core.model import Caller
from pointsman.core.seams import Client, Era, FrontRequest
from pointsman.router.downstream.connection import Call
from pointsman.router.downstream.talk.request_meta import with_meta
from pointsman.router.gateway.caller_ids import CALLER_KEY, CallerIds

CALLERS = [Caller("laptop", None), Caller("laptop", "research"), Caller("phone", None), Caller("phone", "research")]


def test_the_same_caller_has_the_same_id_and_another_has_another() -> None:
    ids, again = CallerIds(["k" * 32, "old" * 16]), CallerIds(["k" * 32])
    assert len({ids.of(caller) for caller in CALLERS}) == len(CALLERS)
    assert [ids.of(caller) for caller in CALLERS] == [again.of(caller) for caller in CALLERS]


def test_an_id_tells_nothing_without_the_key() -> None:
    one, other = CallerIds(["k" * 32]).of(CALLERS[1]), CallerIds(["l" * 32]).of(CALLERS[1])
    assert one != other
    assert "laptop" not in one
    assert "research" not in one


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_client_cannot_say_who_it_is_in_our_place(era: Era) -> None:
    meta = {CALLER_KEY: "forged", "pointsman/other": 1, "traceparent": "00-1"}
    client = Client("c", "modern", "2026-07-28", {}, None, None)
    request = FrontRequest("r", "tools/call", {"_meta": meta}, CALLERS[0], client)
    sent = with_meta(Call("tools/call", {"name": "t"}, request), era, "2026-07-28", 1)["_meta"]
    assert (sent["traceparent"], CALLER_KEY in sent, "pointsman/other" in sent) == ("00-1", False, False)
    ours = {"name": "t", "_meta": {CALLER_KEY: "ours"}}
    sent = with_meta(Call("tools/call", ours, request), era, "2026-07-28", 1)["_meta"]
    assert (sent["traceparent"], sent[CALLER_KEY]) == ("00-1", "ours")
