"""How a connection begins: which era the server speaks is found out here, whatever the transport."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.core.sdk import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from pointsman.router.downstream.connection import BudgetExceededError, Call, ConnectionLostError, Introduction
from pointsman.router.downstream.stderr_log import harmless
from pointsman.router.downstream.talk.envelope import CLIENT_INFO, LEGACY_CAPABILITIES, NAMESPACE, with_envelope

WantedEra = Literal["auto", "legacy", "modern"]
# The two requests that a server must never be told to cancel: it would not know yet what that means.
UNCANCELLABLE = frozenset({"initialize", "server/discover"})


class RefusedError(ConnectionLostError):
    """The server answered, and said no."""

    def __init__(self, method: str, refusal: DownstreamError) -> None:
        super().__init__(f"it refused {method}: {harmless(refusal.message, 200)} ({refusal.code})")
        self.refusal = refusal


class Wire(Protocol):
    """As much of a transport as a handshake needs. `params` go out as they are."""

    async def request(self, method: str, params: Json) -> Json:
        """Raises DownstreamError, ConnectionLostError, BudgetExceededError."""
        ...

    async def notify(self, method: str, params: Json) -> None:
        """Raises ConnectionLostError."""
        ...


async def shake_hands(wire: Wire, wanted: WantedEra, probe_s: float) -> Introduction:
    """Learn who the server is. With `auto` a modern server is recognised by its answer to `server/discover`.

    The total time is the caller's to limit; `probe_s` is how long to wait before `initialize` is tried as well.

    Raises:
        ConnectionLostError: no era that we speak, or the connection ended.
    """
    if wanted == "legacy":
        return await _initialize(wire)
    if wanted == "modern":
        return await _discover(wire)
    return await _find_out(wire, probe_s)


async def _find_out(wire: Wire, probe_s: float) -> Introduction:
    probe = asyncio.create_task(_discover(wire))
    tried = [probe]
    try:
        await asyncio.wait(tried, timeout=probe_s)
        if probe.done() and probe.exception() is None:
            return probe.result()
        tried.append(asyncio.create_task(_initialize(wire)))
        return await _first_success(tried)
    finally:
        for attempt in tried:
            attempt.cancel()
        await asyncio.gather(*tried, return_exceptions=True)


async def _first_success(attempts: list[asyncio.Task[Introduction]]) -> Introduction:
    """The first that holds; the last one's error when none does.

    Both stay open, because a modern server that is slow to start (one that is being downloaded, say) answers the probe
    late, has settled on its era by then, and refuses `initialize`.
    """
    pending = set(attempts)
    while pending:
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for attempt in attempts:
            if attempt.done() and attempt.exception() is None:
                return attempt.result()
    return attempts[-1].result()


async def _discover(wire: Wire) -> Introduction:
    try:
        result = await _ask(wire, "server/discover", _introducing(LATEST_MODERN_VERSION))
    except RefusedError as refused:
        version = _named_instead(refused.refusal)
        if version is None:
            raise
        result = await _ask(wire, "server/discover", _introducing(version))
    offered = result.get("supportedVersions")
    if not isinstance(offered, list):
        raise ConnectionLostError("it answered server/discover without supportedVersions")
    version = _newest_of(offered)
    if version is None:
        raise ConnectionLostError(
            f"it speaks none of the modern protocol versions {', '.join(MODERN_PROTOCOL_VERSIONS)}"
        )
    meta = _object(result.get("_meta"))
    info = _object(meta.get(NAMESPACE + "serverInfo"))
    return Introduction("modern", version, _object(result.get("capabilities")), info)


def _introducing(version: str) -> Json:
    return with_envelope(Call("server/discover", {}), "modern", version, 0)


def _named_instead(refusal: DownstreamError) -> str | None:
    """The version that a modern server wants to hear, where it refused ours and named those that it has."""
    named = _object(refusal.data).get("supported") if refusal.code == UNSUPPORTED_PROTOCOL_VERSION else None
    return _newest_of(named) if isinstance(named, list) else None


def _newest_of(offered: list[object]) -> str | None:
    return next((known for known in reversed(MODERN_PROTOCOL_VERSIONS) if known in offered), None)


async def _initialize(wire: Wire) -> Introduction:
    params: Json = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": LEGACY_CAPABILITIES,
        "clientInfo": CLIENT_INFO,
    }
    result = await _ask(wire, "initialize", params)
    version = result.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise ConnectionLostError(f"it answered initialize with protocol version {harmless(repr(version), 40)}")
    await wire.notify("notifications/initialized", {})
    return Introduction("legacy", version, _object(result.get("capabilities")), _object(result.get("serverInfo")))


async def _ask(wire: Wire, method: str, params: Json) -> Json:
    try:
        return await wire.request(method, params)
    except DownstreamError as refusal:
        raise RefusedError(method, refusal) from None
    except BudgetExceededError as broken:
        raise ConnectionLostError(str(broken)) from None


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
