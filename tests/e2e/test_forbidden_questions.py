"""What a server may not ask: nothing with `questions: false`, and no visit to a URL without https, in any era."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult

from pointsman.core.errors import DownstreamError, QuestionRefusedError
from pointsman.core.seams import CannotAskError
from pointsman.router.downstream.talk.question_rules import URL_ELICITATION_REQUIRED, check_question, checked_error
from tests.e2e.client import BOTH_ERAS, Mode
from tests.e2e.people import person
from tests.gateway_process import GatewayProcess, gateway_process
from tests.servers import http_mcp
from tests.servers.asker_http import asker_http

ASKER = Path(__file__).parents[1] / "servers" / "asker.py"
KINDS = [f"{transport}_{era}" for transport in ("stdio", "http") for era in ("legacy", "modern")]


def text_of(answer: CallToolResult) -> str:
    (block,) = answer.content
    assert block.type == "text"
    return block.text


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """Four servers that may ask, and the same four that may not."""
    folder = tmp_path_factory.mktemp("forbidden")
    trace = folder / "trace"
    async with (
        asker_http("legacy", trace) as legacy,
        asker_http("modern", trace) as modern,
        http_mcp.serving("modern") as rude,
    ):
        rude.tools = [{"name": "confirm", "inputSchema": {"type": "object"}}]
        urls = {"legacy": legacy.url, "modern": modern.url}
        servers: dict[str, Any] = {"mute_rude": {"url": rude.url, "questions": False}}
        for kind in KINDS:
            transport, era = kind.split("_")
            command = {"command": sys.executable, "args": ["-I", "-S", str(ASKER), era, str(trace)], "era": era}
            entry = command if transport == "stdio" else {"url": urls[era], "era": era}
            servers |= {kind: entry, f"mute_{kind}": {**entry, "questions": False}}
        async with gateway_process(folder, {"servers": servers}) as running:
            yield running


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_server_without_questions_reaches_no_client_and_can_still_answer(
    mode: Mode, gateway: GatewayProcess
) -> None:
    async with person(gateway, mode) as (ada, model):
        for kind in KINDS:
            for tool in ("name", "visit", "think", "places"):
                answer = await model.execute(f"mute_{kind}:{tool}", tag=kind)
                assert answer.is_error, (kind, tool)
                assert "refused: " in text_of(answer)
            assert await model.text(f"mute_{kind}:plain", tag=kind) == f"plain {kind}"
        assert ada.asked == []


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_modern_server_that_asks_all_the_same_is_refused(mode: Mode, gateway: GatewayProcess) -> None:
    async with person(gateway, mode) as (ada, model):
        answer = await model.execute("mute_rude:confirm")
        assert answer.is_error
        assert text_of(answer).startswith("Server `mute_rude` could not go on, because it wanted to ask the user")
        assert "`questions: false`" in text_of(answer)
        assert ada.asked == []
        assert (answer.structured_content or {})["error"]["code"] == "question_refused"


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_visit_is_asked_for_only_with_https(mode: Mode, gateway: GatewayProcess) -> None:
    async with person(gateway, mode) as (ada, model):
        for kind in KINDS:
            said = text_of(await model.execute(f"{kind}:visit_http", tag=kind))
            assert "https" in said, (kind, said)
            assert ada.asked == []
            assert await model.text(f"{kind}:visit", tag=kind) == f"{kind} accept"
            ada.asked.clear()


@pytest.mark.parametrize(
    ("url", "passes"),
    [
        ("https://example.test/sign-in?x=1", True),
        ("HTTPS://example.test", True),
        ("http://example.test", False),
        ("http://127.0.0.1:8080/callback", False),
        ("http://localhost", False),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
        ("data:text/html,x", False),
        ("https://", False),
        ("https://user:pw@example.test/", False),
        ("https://bank.test@example.test/", False),
        ("https:///path", False),
        ("https:example.test", False),
        ("//example.test", False),
        (" https://example.test", False),
        ("https://example.test/\u202e", False),
        ("https://exa mple.test/", False),
        ("https://[::1", False),
        ("https://example.test/" + "a" * 10_000, False),
        ("", False),
        (None, False),
        (7, False),
    ],
)
@pytest.mark.parametrize("mode", ["url", "form", None])
def test_a_url_of_any_shape(url: object, passes: bool, mode: str | None) -> None:
    params = {"message": "m", "url": url} | ({"mode": mode} if mode else {})
    if passes:
        check_question("elicitation/create", params, allowed=True)
    else:
        with pytest.raises(CannotAskError, match="https"):
            check_question("elicitation/create", params, allowed=True)


@pytest.mark.parametrize(
    ("data", "passes"),
    [
        ({"elicitations": [{"mode": "url", "url": "https://a.test"}]}, True),
        ({"elicitations": [{"mode": "url", "url": "https://a.test"}, {"mode": "url", "url": "http://a.test"}]}, False),
        ({"elicitations": ["http://a.test"]}, False),
        ({"elicitations": "http://a.test"}, False),
        (None, False),
    ],
)
def test_an_error_that_asks_for_visits_is_held_to_the_same_rule(data: Any, passes: bool) -> None:
    error = DownstreamError(URL_ELICITATION_REQUIRED, "visit", data)
    shown = checked_error("a", error, allowed=True)
    assert (shown is error) is passes
    assert isinstance(shown, QuestionRefusedError) is not passes
    assert isinstance(checked_error("a", error, allowed=False), QuestionRefusedError)
    other = DownstreamError(-32000, "no", data)
    assert checked_error("a", other, allowed=False) is other
