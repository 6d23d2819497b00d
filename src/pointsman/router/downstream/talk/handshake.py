"""The handshake with a server, whatever the transport: detects its era and negotiates the protocol version."""

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
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    Call,
    CallNotSentError,
    ConnectionLostError,
    Introduction,
)
from pointsman.router.downstream.stderr_log import sanitize
from pointsman.router.downstream.talk.request_meta import (
    APPS_CLIENT,
    CLIENT_INFO,
    LEGACY_CAPABILITIES,
    NAMESPACE,
    with_meta,
)

WantedEra = Literal["auto", "legacy", "modern"]
# The two requests that must not be cancelled: before the handshake a server need not understand cancellation.
UNCANCELLABLE = frozenset({"initialize", "server/discover"})


class HandshakeRefusedError(ConnectionLostError):
    """The server answered with an error."""

    def __init__(self, method: str, refusal: DownstreamError) -> None:
        super().__init__(f"it refused {method}: {sanitize(refusal.message, 200)} ({refusal.code})")
        self.refusal = refusal


class Wire(Protocol):
    """What the handshake needs of a transport. `params` go out as they are."""

    async def request(self, call: Call) -> Json:
        """Raises DownstreamError, ConnectionLostError, BudgetExceededError."""
        ...

    async def notify(self, method: str, params: Json) -> None:
        """Raises ConnectionLostError."""
        ...


async def negotiate(wire: Wire, wanted: WantedEra, probe_s: float, *, apps: bool = False) -> Introduction:
    """Negotiate era and version. With `auto` a modern server is recognised by its answer to `server/discover`.

    The caller limits the total time; `probe_s` is how long to wait before `initialize` is tried as well. With `apps`,
    support for apps is declared.

    Raises:
        ConnectionLostError: the server speaks no version that we do, or the connection ended.
    """
    if wanted == "legacy":
        return await _initialize(wire, apps)
    if wanted == "modern":
        return await _discover(wire, apps)
    return await _detect_era(wire, probe_s, apps)


async def _detect_era(wire: Wire, probe_s: float, apps: bool) -> Introduction:
    probe = asyncio.create_task(_discover(wire, apps))
    tried = [probe]
    try:
        await asyncio.wait(tried, timeout=probe_s)
        if probe.done() and not _calls_for_initialize(probe.exception()):
            return probe.result()
        tried.append(asyncio.create_task(_initialize(wire, apps)))
        return await _first_success(tried)
    finally:
        for attempt in tried:
            attempt.cancel()
        await asyncio.gather(*tried, return_exceptions=True)


def _calls_for_initialize(failure: BaseException | None) -> bool:
    """Whether the server may be a legacy one. If nothing was sent, it does not listen, and the whole attempt fails: one
    that begins to listen now would have a connection that counts as lost."""
    return failure is not None and not isinstance(failure, CallNotSentError)


async def _first_success(attempts: list[asyncio.Task[Introduction]]) -> Introduction:
    """The first result; the last attempt's error where all fail.

    Both stay open, because a modern server that starts slowly (while it is downloaded, for example) answers the probe
    late, has committed to its era by then, and refuses `initialize`.
    """
    pending = set(attempts)
    while pending:
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for attempt in attempts:
            if attempt.done() and attempt.exception() is None:
                return attempt.result()
    return attempts[-1].result()


async def _discover(wire: Wire, apps: bool) -> Introduction:
    try:
        result = await _request(wire, "server/discover", _discover_params(LATEST_MODERN_VERSION, apps))
    except HandshakeRefusedError as refused:
        version = _offered_instead(refused.refusal)
        if version is None:
            raise
        result = await _request(wire, "server/discover", _discover_params(version, apps))
    offered = result.get("supportedVersions")
    if not isinstance(offered, list):
        raise ConnectionLostError("it answered server/discover without supportedVersions")
    version = _newest_common(offered)
    if version is None:
        raise ConnectionLostError(
            f"it speaks none of the modern protocol versions {', '.join(MODERN_PROTOCOL_VERSIONS)}"
        )
    meta = _object(result.get("_meta"))
    info = _object(meta.get(NAMESPACE + "serverInfo"))
    return Introduction("modern", version, _object(result.get("capabilities")), info, _instructions(result))


def _discover_params(version: str, apps: bool) -> Json:
    own: Json = {"_meta": {NAMESPACE + "clientCapabilities": APPS_CLIENT}} if apps else {}
    return with_meta(Call("server/discover", own), "modern", version, 0)


def _offered_instead(refusal: DownstreamError) -> str | None:
    """The version to retry with, where a modern server refused ours and listed those that it supports."""
    named = _object(refusal.data).get("supported") if refusal.code == UNSUPPORTED_PROTOCOL_VERSION else None
    return _newest_common(named) if isinstance(named, list) else None


def _newest_common(offered: list[object]) -> str | None:
    return next((known for known in reversed(MODERN_PROTOCOL_VERSIONS) if known in offered), None)


async def _initialize(wire: Wire, apps: bool) -> Introduction:
    params: Json = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": LEGACY_CAPABILITIES | APPS_CLIENT if apps else LEGACY_CAPABILITIES,
        "clientInfo": CLIENT_INFO,
    }
    result = await _request(wire, "initialize", params)
    version = result.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise ConnectionLostError(f"it answered initialize with protocol version {sanitize(repr(version), 40)}")
    await wire.notify("notifications/initialized", {})
    info = _object(result.get("serverInfo"))
    return Introduction("legacy", version, _object(result.get("capabilities")), info, _instructions(result))


async def _request(wire: Wire, method: str, params: Json) -> Json:
    try:
        return await wire.request(Call(method, params))
    except DownstreamError as refusal:
        raise HandshakeRefusedError(method, refusal) from None
    except BudgetExceededError as broken:
        raise ConnectionLostError(str(broken)) from None


def _instructions(result: Json) -> str:
    text = result.get("instructions")
    return text if isinstance(text, str) else ""


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
