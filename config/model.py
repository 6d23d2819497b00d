"""The YAML as frozen models. What is not named here is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, model_validator

DEFAULT_PORT = 3282
ANY = "*"  # in a token's `projects` and `servers`: all of them
UNASSIGNED = ""  # in a token's `projects`: callers that name no project

Id = Annotated[str, StringConstraints(pattern=r"^(?!.*__)[A-Za-z0-9_-]+$", max_length=64)]
Strategy = Literal["bm25", "cloud"]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Count = Annotated[int, Field(ge=1)]


class Part(BaseModel):
    """Every part of the configuration: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Listen(Part):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()  # besides loopback with our port, compared exactly
    allowed_origins: tuple[str, ...] = ()


class Timeouts(Part):
    connect_s: Seconds = 30
    list_s: Seconds = 5
    call_s: Seconds = 60


class ServerTimeouts(Part):
    """A server's own clocks; what is absent comes from the top level."""

    connect_s: Seconds | None = None
    list_s: Seconds | None = None
    call_s: Seconds | None = None


class Server(Part):
    """One downstream MCP server: exactly one of `bundled`, `command` and `url`."""

    name: str | None = None
    enabled: bool = True
    bundled: Literal["archive"] | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, SecretStr] = {}
    cwd: Path | None = None
    url: str | None = None
    transport: Literal["stdio", "http", "sse"] | None = None  # absent: from `command` or `url`
    headers: Mapping[str, SecretStr] = {}
    era: Literal["auto", "legacy", "modern"] = "auto"
    isolation: Literal["shared", "per-caller"] = "shared"
    prefix: str | None = None
    projects: tuple[Id, ...] = ()
    tool_permissions: Mapping[str, bool] = {}
    timeouts: ServerTimeouts = ServerTimeouts()
    db: Path | None = None
    roots: Mapping[str, Path] = {}

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> Server:
        ways = [name for name in ("bundled", "command", "url") if getattr(self, name) is not None]
        if len(ways) != 1:
            found = " and ".join(ways) or "none of them"
            raise ValueError(f"needs exactly one of `bundled`, `command` and `url`, and has {found}")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("`url` must start with http:// or https://")
        if self.url is None and self.transport in ("http", "sse"):
            raise ValueError(f"`transport: {self.transport}` needs `url`")
        if self.url is not None and self.transport == "stdio":
            raise ValueError("`transport: stdio` needs `command`")
        return self


class Project(Part):
    name: str | None = None
    optimization: Strategy | None = "bm25"
    exposure: Literal["meta", "flat"] = "meta"
    describe_catalog: bool = False


class Unassigned(Part):
    """What holds for callers that name no project."""

    optimization: Strategy | None = "bm25"
    exposure: Literal["meta", "flat"] = "meta"
    describe_catalog: bool = False


class Token(Part):
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", to_lower=True)]
    projects: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    expires: datetime | date | None = None


class CloudSearch(Part):
    url: str
    token: SecretStr
    timeout_s: Seconds = 5


class SearchApiLlm(Part):
    base_url: str
    model: str
    key: SecretStr | None = None
    timeout_s: Seconds = 20


class SearchApi(Part):
    listen: Listen = Listen(port=3283)
    llm: SearchApiLlm | None = None


class Limits(Part):
    body_bytes: Count = 4_194_304
    result_bytes: Count = 16_777_216
    sessions: Count = 1000
    session_idle_s: Seconds = 600
    connections: Count = 1000
    header_s: Seconds = 10
    body_s: Seconds = 10
    messages: Count = 1000  # of one call, from its server
    parked: Count = 1000
    parked_s: Seconds = 300
    list_max_age_s: Annotated[float, Field(ge=0, le=86_400)] = 5


class Audit(Part):
    arguments: bool = False
    max_days: Count = 90
    max_bytes: Count = 1_073_741_824


class Search(Part):
    embeddings: bool = True
    usage: bool = True


class State(Part):
    database: str | None = None
    request_keys: tuple[SecretStr, ...] = ()


class GatewayConfig(Part):
    """The whole file."""

    listen: Listen = Listen()
    servers: Mapping[Id, Server] = {}
    projects: Mapping[Id, Project] = {}
    unassigned: Unassigned = Unassigned()
    tokens: Mapping[Id, Token] = {}
    cloud_search: CloudSearch | None = None
    search_api: SearchApi | None = None
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    audit: Audit = Audit()
    search: Search = Search()
    state: State = State()

    def timeouts_of(self, server: Server) -> Timeouts:
        own: dict[str, Any] = server.timeouts.model_dump(exclude_none=True)
        return self.timeouts.model_copy(update=own)
