"""The core types: JSON object, caller, tool key, server status, and what the catalog needs of a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from pointsman.core.kinds import Family

__all__ = ["NEEDS_SIGN_IN", "Caller", "Json", "ServerState", "ServerStatus", "ToolKey", "ToolSource", "WallClock"]

Json = dict[str, Any]
ServerState = Literal["starting", "running", "failed", "stopped"]
NEEDS_SIGN_IN = "needs sign-in"  # what people see of a failed server that a person has to sign in to
WallClock = Callable[[], float]  # seconds since the epoch; injected so that tests can set it


# Structs instead of dataclasses, because each call makes and looks up several: they are made, compared and hashed in C.


class Caller(msgspec.Struct, frozen=True, gc=False):
    """A token and a project. Holds no rights: those are looked up in the current configuration each time."""

    token_id: str
    project_id: str | None  # None: unassigned


class ToolKey(msgspec.Struct, frozen=True, gc=False):
    """`serverId:toolName`. Server ids contain no colon, so the first one separates; tool names may contain more."""

    server_id: str
    tool_name: str

    @classmethod
    def parse(cls, text: str) -> ToolKey | None:
        server_id, colon, tool_name = text.partition(":")
        return cls(server_id, tool_name) if server_id and colon and tool_name else None

    def __str__(self) -> str:
        return f"{self.server_id}:{self.tool_name}"


class ServerStatus(msgspec.Struct, frozen=True):
    state: ServerState
    reason: str  # a clause for people; empty while it runs and answers
    since: float  # wall clock
    silent_since: float | None = None  # it runs, but has answered nothing since then (wall clock)
    sign_in: bool = False  # it has failed, because a person has to sign in to it

    @property
    def shown(self) -> str:
        """The state, as people see it."""
        if self.sign_in:
            return NEEDS_SIGN_IN
        return self.state if self.silent_since is None else "not answering"

    @property
    def shown_since(self) -> float:
        return self.since if self.silent_since is None else self.silent_since


class ToolSource(Protocol):
    """What the catalog needs of a downstream server."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str:
        """`serverName` in results."""
        ...

    @property
    def status(self) -> ServerStatus: ...
    @property
    def list_timeout_s(self) -> float: ...
    def generation_of(self, kind: Family, /) -> int:
        """Grows whenever a cached list becomes invalid: at each connect and at each `list_changed` of that kind."""
        ...

    def announces_changes(self, kind: Family, /) -> bool:
        """Whether a change of that list would reach us: it is connected, and notifies of changes if there are any."""
        ...

    async def first_start(self) -> None:
        """Wait until its first start has succeeded or failed. The caller limits the time."""
        ...

    @property
    def restarting(self) -> bool:
        """Whether it was running a moment ago and is being started again, with the same configuration."""
        ...

    async def restarted(self) -> None:
        """Wait until it is no longer `restarting`, because it is back or given up; no longer than a call may take."""
        ...

    @property
    def session(self) -> object:
        """The connection or session in use, to compare by identity: another one means that the server was restarted."""
        ...

    def is_current(self, generation: int, /) -> bool:
        """Whether a list of that generation was made with the server's present configuration."""
        ...

    def keeps_list_of(self, generation: int, /) -> bool:
        """Whether a list of that generation stays valid, because the server is `restarting` unchanged."""
        ...

    async def list_page(self, method: str, cursor: str | None, /) -> dict[str, Any]:
        """One page of a list, as the server sent it (`tools` or what it lists, `nextCursor`, `ttlMs`).

        Raises:
            ServerUnavailableError: it is not running, or its connection ended.
            CallTimeoutError: no answer within `list_timeout_s`.
            DownstreamError: it answered with an error.
        """
        ...
