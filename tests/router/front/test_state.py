"""Faults of ours: fixed words for the client, the details in the log, and not too many of them."""

from __future__ import annotations

import logging

import pytest

from pointsman.router.front.http.responses import INTERNAL
from pointsman.router.front.state import FailureLog
from tests.router.front.raw_http import Answer, call, initialize, modern_call
from tests.router.front.served_front import serving
from tests.router.front.small_gateway import SECRET_PATH, SmallGateway


def tells_nothing(answer: Answer) -> bool:
    return SECRET_PATH.encode() not in answer.body and b"Traceback" not in answer.body


async def test_a_failing_tool_is_told_in_fixed_words_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served:
        session = await served.open_session()
        body, headers = modern_call("fail")
        for answer in (await served.send(call("fail"), headers=session), await served.send(body, headers=headers)):
            assert answer.json["error"] == {"code": -32603, "message": INTERNAL}
    assert caplog.text.count(SECRET_PATH) == 2


async def test_a_fault_before_the_call_is_a_500_in_fixed_words(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(SmallGateway(broken=True)) as served:
        answer = await served.send(initialize())
        assert (answer.status, answer.code) == (500, -32603)
        assert tells_nothing(answer)
    assert SECRET_PATH in caplog.text


async def test_a_fault_in_the_audit_of_a_refusal_still_refuses() -> None:
    async with serving() as served:
        answer = await served.send(initialize(), token="break the audit")
        assert answer.status == 500
        assert tells_nothing(answer)
        assert served.front.sessions_open == 0


async def test_a_stream_whose_source_fails_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(SmallGateway(broken_changes=True)) as served:
        session = await served.open_session()
        answer = await served.send(verb="GET", headers=session)
        assert answer.status == 200
        assert tells_nothing(answer)
        assert (await served.send(call("echo"), headers=session)).status == 200
    assert SECRET_PATH in caplog.text


def test_a_flood_of_failures_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    failures = FailureLog(lambda: now)
    with caplog.at_level(logging.ERROR):
        for _ in range(1000):
            failures.report("tools/call", RuntimeError("boom"))
        assert len(caplog.records) == 10
        now = 61.0
        failures.report("tools/call", RuntimeError("boom"))
    assert "990 more failures" in caplog.text
    assert len(caplog.records) == 12
