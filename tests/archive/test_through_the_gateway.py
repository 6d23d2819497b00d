"""What the gateway adds to its own archive: callers told apart, calls counted and logged, arguments left alone."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from mcp.types import RequestParamsMeta
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.client import Assistant, assistant
from tests.gateway_process import GatewayProcess, gateway_process

WORKSHOP = Path(__file__).parents[1] / "servers" / "workshop.py"
LIMIT = 3
SECRETS = {"one": "ptm_" + "1" * 43, "two": "ptm_" + "2" * 43, "outsider": "ptm_" + "3" * 43}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the other server was told."""
    return tmp_path_factory.mktemp("workshop") / "trace"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, trace: Path) -> AsyncIterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    env = {"POINTSMAN_ARCHIVE_RATE_LIMITS": f'{{"search_index": {LIMIT}}}'}
    config = {
        "servers": {
            "archive": {"bundled": "archive", "env": env},
            "shop": {"command": sys.executable, "args": ["-S", str(WORKSHOP), str(trace)]},
        },
        "tokens": {
            name: {
                "sha256": hashlib.sha256(secret.encode()).hexdigest(),
                "projects": ["*"],
                "servers": [] if name == "outsider" else ["*"],
            }
            for name, secret in SECRETS.items()
        },
    }
    async with gateway_process(folder, config, token=SECRETS["one"]) as process:
        yield process


async def search(model: Assistant, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    """One call of the limited tool: what the archive said."""
    given = {"toolKey": "archive:search_index", "arguments": {"query": "anything"}}
    answer = await model.client.call_tool("tool_execute", given, meta=cast(RequestParamsMeta | None, meta))
    content = answer.structured_content or {}
    said: dict[str, Any] = content["result"]
    return said


async def samples(gateway: GatewayProcess, name: str, token: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by its labels' values."""
    async with httpx2.AsyncClient(timeout=30) as http:
        response = await http.get(f"{gateway.base_url}/metrics", headers={"Authorization": f"Bearer {token}"})
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
        if sample.name == name
    }


async def test_limits_are_counted_for_each_token_and_a_client_cannot_pass_for_another(gateway: GatewayProcess) -> None:
    async with (
        assistant(gateway, token=SECRETS["one"]) as one,
        assistant(gateway, "legacy", token=SECRETS["two"]) as two,
    ):
        said = [await search(one, {"pointsman/caller": f"forged{number}"}) for number in range(LIMIT + 2)]
        assert [entry.get("code") for entry in said] == [None] * LIMIT + ["rate_limited"] * 2
        assert said[-1]["error"] == "Rate limit exceeded for search_index"
        assert (await search(two)).get("code") is None
        seen = await samples(gateway, "pointsman_rate_limited_total", SECRETS["one"])
        assert seen == {("archive",): 2}
        calls = await samples(gateway, "pointsman_calls_total", SECRETS["one"])
        assert calls["rate_limited", "error", "archive", "search_index"] == 2
        assert calls["", "ok", "archive", "search_index"] == LIMIT + 1
        quantiles = await samples(gateway, "pointsman_call_duration_quantile_seconds", SECRETS["one"])
        assert {labels[0] for labels in quantiles if labels[1:] == ("archive", "search_index")} == {
            "0.5",
            "0.95",
            "0.99",
        }
        hidden = await samples(gateway, "pointsman_call_duration_quantile_seconds", SECRETS["outsider"])
        assert {labels[1:] for labels in hidden} == {("other", "other")}


async def test_arguments_are_left_for_the_archive_to_judge(gateway: GatewayProcess) -> None:
    async with assistant(gateway) as model:
        answer = await model.execute("archive:search_add_document", doc_id=7, content="x")
    assert answer.is_error
    said = (answer.structured_content or {})["result"]
    assert said["error"] == "Invalid parameters"
    assert "`doc_id` must be a string" in said["details"][0]["message"]


async def test_calls_are_in_the_servers_log(gateway: GatewayProcess) -> None:
    async with assistant(gateway) as model:
        await model.text("archive:search_add_document", doc_id="seen-in-the-log", content="some words")
    log = gateway.state_dir / "logs" / "archive.log"
    async with asyncio.timeout(30):
        while not log.exists() or 'search_add_document doc_id="seen-in-the-log" ok results=1' not in log.read_text():
            await asyncio.sleep(0.1)


async def test_a_stranger_server_is_told_nothing_of_the_caller(gateway: GatewayProcess, trace: Path) -> None:
    async with assistant(gateway) as model:
        await model.text("shop:colour")
    assert "tools/call" in trace.read_text()
    assert "pointsman/caller" not in trace.read_text()
