"""A gateway that is killed and started again on the same state folder: its clients' sessions go on."""

from __future__ import annotations

import signal
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.front.raw_http import Answer, Connection, Json, call, initialize, request

DISCOVER = call("tool_discovery", {"query": ["anything"]})


async def send(gateway: GatewayProcess, body: Json | None, **how: object) -> Answer:
    port = urlsplit(gateway.url).port
    assert port is not None
    connection = await Connection.open(port)
    try:
        connection.send(request(port, body, token=gateway.token, **how))  # type: ignore[arg-type]
        return await connection.answer()
    finally:
        await connection.close()


async def opened(gateway: GatewayProcess) -> list[tuple[str, str]]:
    answer = await send(gateway, initialize())
    assert answer.status == 200
    return [("Mcp-Session-Id", answer.headers["mcp-session-id"])]


@pytest.mark.parametrize("keys", [[], ["a key of the operator's that is long enough"]], ids=["kept", "configured"])
async def test_a_session_outlives_a_killed_gateway(tmp_path: Path, keys: list[str]) -> None:
    config = {"state": {"request_keys": keys}} if keys else {}
    secret = "ptm_" + "s" * 43
    async with gateway_process(tmp_path, config, token=secret) as before:
        session = await opened(before)
        before.send_signal(signal.SIGKILL)
        await before.process.wait()
    async with gateway_process(tmp_path, config, token=secret) as after:
        answer = await send(after, DISCOVER, headers=session)
        assert (answer.status, "result" in answer.json) == (200, True)
    kept = tmp_path / "state" / "request.key"
    assert kept.exists() == (not keys)
    if not keys:
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert kept.read_text() not in after.stderr


async def test_a_gateway_with_another_state_folder_knows_no_session_of_ours(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    secret = "ptm_" + "s" * 43
    async with (
        gateway_process(folders[0], {}, token=secret) as one,
        gateway_process(folders[1], {}, token=secret) as other,
    ):
        assert (await send(other, DISCOVER, headers=await opened(one))).status == 404
