from __future__ import annotations

import asyncio

import pytest

from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.core.sdk import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pointsman.router.downstream.connection import Call, CallNotSentError, ConnectionLostError
from pointsman.router.downstream.talk.handshake import negotiate

NS = "io.modelcontextprotocol/"
MODERN: Json = {
    "supportedVersions": ["2030-01-01", LATEST_MODERN_VERSION],
    "capabilities": {"tools": {}},
    "_meta": {NS + "serverInfo": {"name": "new"}},
}
LEGACY: Json = {"protocolVersion": "2024-11-05", "capabilities": {"prompts": {}}, "serverInfo": {"name": "old"}}
NOT_FOUND = DownstreamError(-32601, "Method not found")


class Scripted:
    """A wire whose other end answers as written. A future is answered when the test says so; None never."""

    def __init__(self, **answers: Json | Exception | asyncio.Future[Json] | None) -> None:
        self.answers = answers
        self.sent: list[tuple[str, Json]] = []
        self.initializing = asyncio.Event()

    async def request(self, call: Call) -> Json:
        method = call.method
        self.sent.append((method, call.params))
        if method == "initialize":
            self.initializing.set()
        answer = self.answers["discover" if method == "server/discover" else method]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, asyncio.Future):
            return await answer
        return answer if answer is not None else await asyncio.get_running_loop().create_future()

    async def notify(self, method: str, params: Json) -> None:
        self.sent.append((method, params))

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.sent]


async def test_a_modern_server_is_found_out_by_its_answer_to_discover() -> None:
    wire = Scripted(discover=MODERN)
    introduction = await negotiate(wire, "auto", 5)
    assert (introduction.era, introduction.version) == ("modern", LATEST_MODERN_VERSION)
    assert introduction.server_info == {"name": "new"}
    assert wire.methods == ["server/discover"]
    meta = wire.sent[0][1]["_meta"]
    assert meta[NS + "protocolVersion"] == LATEST_MODERN_VERSION
    assert meta[NS + "clientCapabilities"] == {}


async def test_a_server_that_does_not_listen_is_not_asked_for_its_other_era() -> None:
    """It may begin to listen in between, and the transport has given it up by then."""
    wire = Scripted(discover=CallNotSentError("it refused the connection"), initialize=LEGACY)
    with pytest.raises(CallNotSentError, match="it refused the connection"):
        await negotiate(wire, "auto", 5)
    assert wire.methods == ["server/discover"]


@pytest.mark.parametrize(
    "discover",
    [
        NOT_FOUND,
        ConnectionLostError("HTTP 400"),
        {},
        {"supportedVersions": "all"},
        {"supportedVersions": ["2030-01-01", 7, None]},
        {"protocolVersion": "2025-11-25"},
    ],
)
async def test_any_other_answer_leads_to_initialize(discover: Json | Exception) -> None:
    wire = Scripted(discover=discover, initialize=LEGACY)
    introduction = await negotiate(wire, "auto", 5)
    assert (introduction.era, introduction.version) == ("legacy", "2024-11-05")
    assert introduction.capabilities == {"prompts": {}}
    assert wire.methods == ["server/discover", "initialize", "notifications/initialized"]
    assert wire.sent[1][1]["protocolVersion"] == LATEST_HANDSHAKE_VERSION


async def test_a_server_that_is_silent_about_discover_is_asked_to_initialize() -> None:
    introduction = await negotiate(Scripted(discover=None, initialize=LEGACY), "auto", 0.01)
    assert introduction.era == "legacy"


async def test_a_modern_server_that_starts_slowly_is_still_known_for_modern() -> None:
    discover: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
    wire = Scripted(discover=discover, initialize=DownstreamError(-32022, "Unsupported protocol version"))
    shaking = asyncio.create_task(negotiate(wire, "auto", 0.01))
    await wire.initializing.wait()
    discover.set_result(MODERN)
    assert (await shaking).era == "modern"


async def test_an_era_that_is_wanted_is_the_only_one_tried() -> None:
    wire = Scripted(initialize=LEGACY)
    assert (await negotiate(wire, "legacy", 5)).era == "legacy"
    assert "server/discover" not in wire.methods
    wire = Scripted(discover=NOT_FOUND)
    with pytest.raises(ConnectionLostError, match=r"refused server/discover: Method not found \(-32601\)"):
        await negotiate(wire, "modern", 5)
    assert wire.methods == ["server/discover"]


@pytest.mark.parametrize("version", ["1999-01-01", None, 7, ["2025-11-25"]])
async def test_a_version_that_nobody_knows_is_named_in_the_reason(version: object) -> None:
    wire = Scripted(discover=NOT_FOUND, initialize={"protocolVersion": version})
    with pytest.raises(ConnectionLostError, match="protocol version"):
        await negotiate(wire, "auto", 5)
    assert "notifications/initialized" not in wire.methods


async def test_what_a_server_says_in_its_refusal_cannot_forge_lines() -> None:
    wire = Scripted(initialize=DownstreamError(-1, "bad\n2026 INFO all fine\x1b[2J" + "x" * 1000))
    with pytest.raises(ConnectionLostError) as caught:
        await negotiate(wire, "legacy", 5)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 300


async def test_giving_up_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    wire = Scripted(discover=None, initialize=None)
    shaking = asyncio.create_task(negotiate(wire, "auto", 0.01))
    await wire.initializing.wait()
    shaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await shaking
    assert asyncio.all_tasks() == before


async def test_a_server_that_refuses_our_version_and_names_one_that_we_speak_is_asked_again_in_that() -> None:
    class Reluctant(Scripted):
        async def request(self, call: Call) -> Json:
            answer = await super().request(call)
            if len(self.sent) == 1:
                raise DownstreamError(-32022, "Unsupported", {"supported": ["2030-01-01", LATEST_MODERN_VERSION]})
            return answer

    wire = Reluctant(discover=MODERN)
    introduction = await negotiate(wire, "auto", 5)
    assert (introduction.era, introduction.version) == ("modern", LATEST_MODERN_VERSION)
    assert wire.methods == ["server/discover", "server/discover"]


@pytest.mark.parametrize("data", [None, {}, {"supported": "2026-07-28"}, {"supported": ["2030-01-01", 7]}])
async def test_a_server_that_names_no_version_that_we_speak_is_not_asked_again(data: object) -> None:
    wire = Scripted(discover=DownstreamError(-32022, "Unsupported", data))
    with pytest.raises(ConnectionLostError, match="refused server/discover"):
        await negotiate(wire, "modern", 5)
    assert wire.methods == ["server/discover"]
