"""`pointsman stdio`: what a client that only starts commands gets, with a gateway beside it and without."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from pointsman.router.serving.state_folder import locked
from tests.e2e.client import Assistant
from tests.e2e.people import Person
from tests.e2e.processes import descendants, gone
from tests.e2e.test_eras import noted, stdio_asker
from tests.gateway_process import gateway_process, own_environment, write_config
from tests.router.gateway.test_changes import until
from tests.router.gateway.test_resources import library

PATIENCE_S = 60.0
VERSION = "2026-07-28"
SECRET = "ptm_" + "s" * 43
Mode = Literal["legacy", "auto"]
Json = dict[str, Any]


def arguments(folder: Path, *more: str) -> list[str]:
    return ["-P", "-m", "pointsman", "stdio", "--config", str(folder / "pointsman.yaml"), *more]


def environment(folder: Path, token: str | None) -> dict[str, str]:
    named = {"POINTSMAN_STATE_DIR": str(folder / "state"), "POINTSMAN_LOG_LEVEL": "warning"}
    return own_environment(folder) | named | ({"POINTSMAN_TOKEN": token} if token else {})


class Wire:
    """The client's end of the pipes, line by line. All that comes on stdout must be JSON-RPC."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[Json] = []
        self._number = 0

    def send(self, message: Json | bytes) -> None:
        assert self.process.stdin is not None
        data = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(data + b"\n")

    async def next(self) -> Json:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "the bridge ended"
        message: Json = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        self.said.append(message)
        return message

    async def answer(self, number: Any) -> Json:
        while True:
            for message in self.said:
                if message.get("id") == number and "method" not in message:
                    return message
            await self.next()

    def request(self, method: str, params: Json | None = None, *, modern: bool = False) -> int:
        self._number += 1
        params = dict(params or {})
        if modern:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": VERSION,
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
                "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
            }
        self.send({"id": self._number, "method": method, "params": params})
        return self._number

    def execute(self, tool_key: str, *, modern: bool = False, **given: Any) -> int:
        called = {"name": "tool_execute", "arguments": {"toolKey": tool_key, "arguments": given}}
        return self.request("tools/call", called, modern=modern)

    async def initialize(self) -> Json:
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "wire", "version": "1"},
        }
        answer = await self.answer(self.request("initialize", params))
        self.send({"method": "notifications/initialized"})
        return answer

    async def text_when_up(self, tool_key: str, **given: Any) -> str:
        """A gateway of the bridge's own opens before slow servers are there."""
        while True:
            result = (await self.answer(self.execute(tool_key, **given)))["result"]
            if not result.get("isError"):
                text: str = result["content"][0]["text"]
                return text
            assert result["structuredContent"]["error"]["code"] == "server_unavailable", result
            await asyncio.sleep(0.05)


@asynccontextmanager
async def bridge(folder: Path, token: str | None, *more: str) -> AsyncIterator[Wire]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments(folder, *more)),
        env=environment(folder, token),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield Wire(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def closed(wire: Wire) -> int:
    assert wire.process.stdin is not None
    wire.process.stdin.close()
    return await wire.process.wait()


def asker(folder: Path, **settings: Any) -> Json:
    return {"servers": {"s": stdio_asker("legacy", folder / "trace", **settings)}}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_an_sdk_client_of_either_era_works_through_it_questions_included(mode: Mode, tmp_path: Path) -> None:
    ada = Person("ada")
    async with asyncio.timeout(PATIENCE_S), gateway_process(tmp_path, asker(tmp_path)) as gateway:
        command = StdioServerParameters(
            command=sys.executable, args=arguments(tmp_path), env=environment(tmp_path, gateway.token)
        )
        client = Client(
            stdio_client(command),
            mode=mode,
            elicitation_callback=ada.elicited,
            sampling_callback=ada.sampled,
            list_roots_callback=ada.rooted,
        )
        async with client:
            model = Assistant(client)
            assert await model.tool_names() == ["tool_discovery", "tool_execute"]
            assert await model.text("s:twice", tag="t") == "ada:t/1 ada:t/2"
            assert await model.text("s:think", tag="t") == "ada:t"
            assert await model.text("s:places", tag="t") == "file:///ada"


async def test_with_no_gateway_running_it_is_one_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write_config(tmp_path / "pointsman.yaml", asker(tmp_path), SECRET)
    async with bridge(tmp_path, None) as wire:
        assert (await wire.initialize())["result"]["serverInfo"]["name"] == "pointsman"
        assert await wire.text_when_up("s:plain", tag="t") == "plain t"
        children = set(descendants(wire.process.pid))
        assert children
        assert await closed(wire) == 0
        await gone(children)


async def test_a_token_limits_what_its_own_gateway_lets_it_do(tmp_path: Path) -> None:
    """A token that was given is the one that counts, also where none would be needed."""
    weak = {"sha256": hashlib.sha256(SECRET.encode()).hexdigest(), "projects": ["*"], "servers": []}
    write_config(tmp_path / "pointsman.yaml", {**asker(tmp_path), "tokens": {"weak": weak}}, SECRET)
    async with bridge(tmp_path, SECRET) as wire:
        result = (await wire.answer(wire.execute("s:plain", modern=True, tag="t")))["result"]
        assert result["structuredContent"]["error"]["code"] == "unknown_tool"


async def test_a_running_gateway_wants_a_token_that_it_knows_and_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}):
        async with bridge(tmp_path, None) as wire:
            answer = await wire.answer(wire.request("tools/list", modern=True))
            assert "POINTSMAN_TOKEN" in answer["error"]["message"]
            assert "pointsman token create" in answer["error"]["message"]
            assert await closed(wire) == 0
        async with bridge(tmp_path, SECRET) as wire:
            answer = await wire.answer(wire.request("tools/list", modern=True))
            assert answer["error"]["data"]["code"] == "unauthorized"


async def test_the_project_of_the_option_is_the_one_that_is_used(tmp_path: Path) -> None:
    config = asker(tmp_path, projects=["attic"]) | {"projects": {"attic": {}}}
    async with gateway_process(tmp_path, config) as gateway:
        for project, fails in (("attic", False), (None, True)):
            option = ("--project", project) if project else ()
            async with bridge(tmp_path, gateway.token, *option) as wire:
                result = (await wire.answer(wire.execute("s:plain", modern=True, tag="t")))["result"]
                assert result.get("isError", False) is fails


async def test_lines_that_are_no_messages_are_answered_and_do_no_harm(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}) as gateway, bridge(tmp_path, gateway.token) as wire:
        for line, code in ((b"{nonsense", -32700), (b"\xff\xfe", -32700), (b"[]", -32600), (b"7", -32600)):
            wire.send(line)
            answer = await wire.next()
            assert (answer["id"], answer["error"]["code"]) == (None, code)
        wire.send(b"   ")
        assert "result" in await wire.answer(wire.request("tools/list", modern=True))


async def test_a_message_that_is_neither_request_nor_answer_is_refused_by_its_id(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}) as gateway, bridge(tmp_path, gateway.token) as wire:
        for message, number in (({"id": 1}, 1), ({"id": "x", "params": {}}, "x"), ({"id": [1]}, None), ({}, None)):
            wire.send(message)
            answer = await wire.next()
            assert (answer["id"], answer["error"]["code"]) == (number, -32600)


@pytest.mark.parametrize("source", ["null", "file"])
@pytest.mark.parametrize("sink", ["null", "file"])
async def test_files_and_the_null_device_are_as_good_as_pipes(source: str, sink: str, tmp_path: Path) -> None:
    written, answered = tmp_path / "in", tmp_path / "out"
    write_config(tmp_path / "pointsman.yaml", {}, "ptm_unused")
    written.write_text('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    with (
        (Path("/dev/null") if source == "null" else written).open("rb") as stdin,
        (Path("/dev/null") if sink == "null" else answered).open("wb") as stdout,
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *arguments(tmp_path)),
            stdin=stdin,
            stdout=stdout,
            env=environment(tmp_path, None),
            cwd=tmp_path,
        )
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
    if source == sink == "file":
        assert json.loads(answered.read_text())["id"] == 1


async def test_large_messages_pass_in_both_directions(tmp_path: Path) -> None:
    config = asker(tmp_path) | {"limits": {"result_preview_chars": 0}}
    async with gateway_process(tmp_path, config) as gateway, bridge(tmp_path, gateway.token) as wire:
        large = "x" * 3_000_000
        await wire.initialize()
        assert await wire.text_when_up("s:plain", tag=large) == f"plain {large}"


@pytest.mark.parametrize("modern", [False, True])
async def test_a_cancelled_call_is_cancelled_at_the_server(modern: bool, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    async with gateway_process(tmp_path, asker(tmp_path)) as gateway, bridge(tmp_path, gateway.token) as wire:
        if not modern:
            await wire.initialize()
        number = wire.execute("s:stay", modern=modern, tag="t")
        while not trace.exists() or not noted(trace, "began"):
            await asyncio.sleep(0.02)
        wire.send({"method": "notifications/cancelled", "params": {"requestId": number}})
        while not noted(trace, "cancelled"):
            await asyncio.sleep(0.02)
        assert "result" in await wire.answer(wire.execute("s:plain", modern=modern, tag="t"))
        assert all(message.get("id") != number for message in wire.said)


@pytest.mark.parametrize("modern", [False, True])
async def test_when_the_gateway_is_restarted_a_call_under_way_fails_clearly_and_the_next_one_works(
    modern: bool, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    async with gateway_process(tmp_path, asker(tmp_path)) as gateway:
        token = gateway.token
        async with bridge(tmp_path, token) as wire:
            if not modern:
                await wire.initialize()
            number = wire.execute("s:stay", modern=modern, tag="t")
            while not trace.exists() or not noted(trace, "began"):
                await asyncio.sleep(0.02)
            await gateway.stop(signal.SIGKILL)
            assert "connection to the gateway was lost" in (await wire.answer(number))["error"]["message"]
            async with gateway_process(tmp_path, asker(tmp_path), token=token):
                result = (await wire.answer(wire.execute("s:plain", modern=modern, tag="t")))["result"]
                assert result["content"][0]["text"] == "plain t"
                assert await closed(wire) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_when_the_gateway_is_restarted_subscriptions_and_the_log_level_hold_on(
    how: signal.Signals, tmp_path: Path
) -> None:
    books = library("the library", "legacy", "--trace", str(tmp_path / "trace"))
    config = {"servers": {"s": books, "a": stdio_asker("legacy", tmp_path / "asked")}}
    watched = {"uri": "pointsman+s+book://shelf/1"}
    async with gateway_process(tmp_path, config) as gateway, bridge(tmp_path, gateway.token) as wire:
        await wire.initialize()
        assert "result" in await wire.answer(wire.request("resources/subscribe", watched))
        assert "result" in await wire.answer(wire.request("logging/setLevel", {"level": "debug"}))
        await gateway.stop(how)
        async with gateway_process(tmp_path, config, token=gateway.token):
            await wire.text_when_up("a:report", tag="t")
            logged = [said["params"]["level"] for said in wire.said if said.get("method") == "notifications/message"]
            assert logged == ["debug", "warning"]
            await until(tmp_path, 2, "resources/subscribe")
            await wire.text_when_up("s:touch", uri="book://shelf/1")
            while not any(said.get("method") == "notifications/resources/updated" for said in wire.said):
                await wire.next()
            assert all(said.get("id") != "pointsman-stdio" for said in wire.said)
            assert await closed(wire) == 0


async def test_when_the_client_leaves_in_the_middle_of_a_call_the_server_is_told(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    async with gateway_process(tmp_path, asker(tmp_path)) as gateway, bridge(tmp_path, gateway.token) as wire:
        await wire.initialize()
        wire.execute("s:stay", tag="t")
        while not trace.exists() or not noted(trace, "began"):
            await asyncio.sleep(0.02)
        assert await closed(wire) == 0
        while not noted(trace, "cancelled"):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("gateway", ["none yet", "its own", "another's"])
async def test_a_signal_ends_it(gateway: str, tmp_path: Path) -> None:
    write_config(tmp_path / "pointsman.yaml", {}, SECRET)
    async with AsyncExitStack() as stack:
        if gateway == "another's":
            await stack.enter_async_context(gateway_process(tmp_path, {}, token=SECRET))
        wire = await stack.enter_async_context(bridge(tmp_path, SECRET))
        if gateway == "none yet":
            wire.send(b"{nonsense")  # answered when it listens, to signals too
            await wire.next()
        else:
            await wire.initialize()
        wire.process.send_signal(signal.SIGTERM)
        assert await wire.process.wait() == 0


async def test_requests_that_come_while_its_gateway_starts_wait_for_it(tmp_path: Path) -> None:
    write_config(tmp_path / "pointsman.yaml", {}, SECRET)
    async with bridge(tmp_path, None) as wire:
        for number in [wire.request("tools/list", modern=True) for _ in range(3)]:
            assert "result" in await wire.answer(number)
        assert await closed(wire) == 0


async def test_a_gateway_of_its_own_that_could_not_start_is_tried_again_with_the_next_request(tmp_path: Path) -> None:
    write_config(tmp_path / "pointsman.yaml", {}, SECRET)
    async with bridge(tmp_path, None) as wire:
        with locked(tmp_path / "state"):
            answer = await wire.answer(wire.request("tools/list", modern=True))
            assert "already uses the state folder" in answer["error"]["message"]
        assert "result" in await wire.answer(wire.request("tools/list", modern=True))
        wire.process.send_signal(signal.SIGTERM)
        assert await wire.process.wait() == 0


async def test_a_configuration_that_does_not_hold_is_told_to_the_client_and_may_be_mended(tmp_path: Path) -> None:
    write_config(tmp_path / "pointsman.yaml", {"servres": {}}, SECRET)
    async with bridge(tmp_path, None) as wire:
        answer = await wire.answer(wire.request("tools/list", modern=True))
        assert "servres" in answer["error"]["message"]
        write_config(tmp_path / "pointsman.yaml", {}, SECRET)
        assert "result" in await wire.answer(wire.request("tools/list", modern=True))
        assert await closed(wire) == 0


@pytest.mark.parametrize("by_signal", [True, False])
async def test_it_ends_with_all_that_it_started_also_in_the_middle_of_its_start(
    by_signal: bool, tmp_path: Path
) -> None:
    """Its own gateway opens only when its servers are there, or a second later; this one never is."""
    write_config(tmp_path / "pointsman.yaml", {"servers": {"asleep": {"command": "sleep", "args": ["600"]}}}, SECRET)
    async with bridge(tmp_path, None) as wire:
        wire.request("tools/list", modern=True)
        while not any("sleep" in command for command in descendants(wire.process.pid).values()):
            await asyncio.sleep(0.01)
        children = set(descendants(wire.process.pid))
        if by_signal:
            wire.process.send_signal(signal.SIGTERM)
            assert await wire.process.wait() == 0
        else:
            assert await closed(wire) == 0
        await gone(children)
