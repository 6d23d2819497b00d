"""The YAML file as frozen models. Unknown keys are rejected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    model_validator,
)

from pointsman.config.values import (
    check_base_url,
    check_bearer_token,
    check_header_name,
    check_header_value,
    check_program,
    check_request_key,
    check_root_name,
    check_url,
    check_variable_name,
    parse_moment,
    parse_network,
    reject_boolean,
    reject_database_address,
    reject_empty_path,
    reject_null_character,
    resolve_path,
)

DEFAULT_PORT = 3282
SEARCH_API_PORT = 3283
ANY = "*"  # in a token's `projects` and `servers`: all of them
SEARCH_DB_PATH = "SEARCH_DB_PATH"  # the environment variable that names the store of a bundled archive
RESERVED_SERVER_ID = "pointsman"  # of the gateway's own tools
# Programs that may download a server before they start it, and the default of their `connect_s`.
DOWNLOADERS = frozenset({"bunx", "docker", "npm", "npx", "pipx", "pnpm", "podman", "uv", "uvx"})
DOWNLOAD_S = 120.0
UNASSIGNED = ""  # in a token's `projects`: callers that name no project

# Letters, digits, `_` and `-`, without `__`, which separates server and tool in names that clients see.
ID_PATTERN = r"^_?([A-Za-z0-9-]_?)*$"
PREFIX_PATTERN = r"^[A-Za-z0-9_.-]*$"  # characters that all clients accept
DIGEST_PATTERN = r"^[0-9A-Fa-f]{64}$"
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, min_length=1, max_length=64)]
Prefix = Annotated[str, StringConstraints(pattern=PREFIX_PATTERN, max_length=64)]
Digest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN, to_lower=True)]
Strategy = Literal["bm25", "cloud"]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False), BeforeValidator(reject_boolean)]
Count = Annotated[int, Field(ge=1)]
Moment = Annotated[datetime, BeforeValidator(parse_moment)]
LocalPath = Annotated[Path, BeforeValidator(reject_empty_path), AfterValidator(resolve_path)]
WebAddress = Annotated[str, AfterValidator(check_url)]
ServiceAddress = Annotated[str, AfterValidator(check_base_url)]
BearerToken = Annotated[SecretStr, AfterValidator(check_bearer_token)]
DatabaseAddress = Annotated[str, AfterValidator(reject_database_address)]
RequestKey = Annotated[SecretStr, AfterValidator(check_request_key)]
Program = Annotated[str, AfterValidator(check_program)]
RootName = Annotated[str, AfterValidator(check_root_name)]
VariableName = Annotated[str, AfterValidator(check_variable_name)]
Variable = Annotated[SecretStr, AfterValidator(reject_null_character)]
Network = Annotated[str, AfterValidator(parse_network)]
HeaderName = Annotated[str, AfterValidator(check_header_name)]
HeaderValue = Annotated[SecretStr, AfterValidator(check_header_value)]


class Part(BaseModel):
    """Base class of every part of the configuration: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_keys_without_value(cls, data: Any) -> Any:
        """A key without a value, such as `servers:` with every entry commented out, means the default."""
        if data is None:
            return {}
        if not isinstance(data, Mapping) or None not in data.values():
            return data
        return {key: value for key, value in data.items() if value is not None or cls._takes_null(key)}

    @classmethod
    def _takes_null(cls, key: str) -> bool:
        field = cls.model_fields.get(key)
        return field is None or type(None) in get_args(field.annotation)


class Listen(Part):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()  # in addition to loopback with our port; compared exactly
    allowed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()  # reverse proxies, whose address many clients share


class Timeouts(Part):
    connect_s: Seconds = 30
    list_s: Seconds = 5
    call_s: Seconds = 60


class ServerTimeouts(Part):
    """A server's own timeouts; those of the top level apply where one is absent."""

    connect_s: Seconds | None = None
    list_s: Seconds | None = None
    call_s: Seconds | None = None


class Server(Part):
    """One downstream MCP server: exactly one of `bundled`, `command` and `url`."""

    name: str | None = None
    enabled: bool = True
    bundled: Literal["archive"] | None = None
    command: Program | None = None
    args: tuple[str, ...] = ()
    env: Mapping[VariableName, Variable] = {}
    inherit_env: tuple[VariableName, ...] = ()  # of the gateway's variables, in addition to the usual ones
    cwd: LocalPath | None = None
    url: WebAddress | None = None
    transport: Literal["stdio", "http", "sse"] | None = None  # absent: derived from `command` or `url`
    headers: Mapping[HeaderName, HeaderValue] = {}
    era: Literal["auto", "legacy", "modern"] = "auto"
    isolation: Literal["shared", "per-caller"] = "shared"
    prefix: Prefix | None = None  # absent: `<id>__`; empty: no prefix, and resource URIs are passed unchanged
    projects: tuple[Id, ...] = ()
    tool_permissions: Mapping[str, bool] = {}  # "*": for all tools not named here; absent: allowed
    timeouts: ServerTimeouts = ServerTimeouts()
    db: LocalPath | None = None
    roots: Mapping[RootName, LocalPath] = {}

    @model_validator(mode="after")
    def _check_kind(self) -> Server:
        kinds = [name for name in ("bundled", "command", "url") if getattr(self, name) is not None]
        if len(kinds) != 1:
            given = ", ".join(f"`{kind}`" for kind in kinds) or "none of them"
            raise ValueError(f"needs exactly one of `bundled`, `command` and `url`, but has {given}")
        if self.url is None and self.transport in ("http", "sse"):
            raise ValueError(f"`transport: {self.transport}` needs `url`")
        if self.url is not None and self.transport == "stdio":
            raise ValueError("`transport: stdio` needs `command`")
        for key, allowed in _ALLOWED_WITH.items():
            if getattr(self, key) and kinds[0] not in allowed:
                needed = " or ".join(f"`{kind}`" for kind in allowed)
                raise ValueError(f"`{key}` needs a server with {needed}, but this one has `{kinds[0]}`")
        if self.bundled and self.store_variable and not Path(self.store_variable).is_absolute():
            raise ValueError(f"`env.{SEARCH_DB_PATH}` must be absolute; use `db` for a path relative to this file")
        return self

    @property
    def downloader(self) -> str | None:
        """The name of the program if it may download the server before it starts it."""
        program = Path(self.command).name if self.command is not None else None
        return program if program in DOWNLOADERS else None

    @property
    def store_variable(self) -> str:
        """The path of the store in `env`; empty: not set."""
        variable = self.env.get(SEARCH_DB_PATH)
        return variable.get_secret_value() if variable is not None else ""

    @property
    def names_store(self) -> bool:
        """Whether the entry of a bundled archive sets the path of its store."""
        return self.db is not None or bool(self.store_variable)


# Keys that only some kinds of server have. One without effect is rejected rather than ignored.
_ALLOWED_WITH = {
    "args": ("command",),
    "cwd": ("command",),
    "env": ("command", "bundled"),
    "inherit_env": ("command", "bundled"),
    "headers": ("url",),
    "db": ("bundled",),
    "roots": ("bundled",),
}


class Project(Part):
    name: str | None = None
    optimization: Strategy | None = "bm25"
    exposure: Literal["meta", "flat"] = "meta"
    describe_catalog: bool = False
    catalog_in_instructions: bool = True


class Unassigned(Part):
    """Settings for callers that name no project."""

    optimization: Strategy | None = "bm25"
    exposure: Literal["meta", "flat"] = "meta"
    describe_catalog: bool = False
    catalog_in_instructions: bool = True


class Token(Part):
    sha256: Digest  # never the secret itself
    projects: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    expires: Moment | None = None  # always with a time zone; a bare date means the end of that day, UTC


class CloudSearch(Part):
    url: ServiceAddress
    token: BearerToken
    timeout_s: Seconds = 5


class SearchApiLlm(Part):
    base_url: ServiceAddress
    model: Annotated[str, StringConstraints(min_length=1)]
    key: BearerToken | None = None
    timeout_s: Seconds = 4  # less than the 5 s that a gateway waits for the whole search


class SearchApiLimits(Part):
    """Limits of one request to the search service; those of its HTTP connection are in the top level's `limits`."""

    body_bytes: Count = 4_194_304  # as sent
    unpacked_bytes: Count = 16_777_216  # of a compressed body
    tools: Count = 5000
    queries: Count = 50
    searches: Annotated[int, Field(ge=2)] = 8  # concurrent; one token may use at most half of the slots
    wait_s: Seconds = 2  # for a slot
    search_s: Seconds = 30


class SearchApi(Part):
    listen: Listen = Listen(port=SEARCH_API_PORT)
    provider: Literal["hybrid", "bm25", "llm"] = "hybrid"
    llm: SearchApiLlm | None = None
    limits: SearchApiLimits = SearchApiLimits()

    @model_validator(mode="before")
    @classmethod
    def _default_port(cls, data: Any) -> Any:
        """Without a port, `listen` means the port of this service, not that of the gateway."""
        listen = data.get("listen") if isinstance(data, Mapping) else None
        if not isinstance(listen, Mapping) or listen.get("port") is not None:
            return data
        return {**data, "listen": {**listen, "port": SEARCH_API_PORT}}

    @model_validator(mode="after")
    def _check_llm(self) -> SearchApi:
        if self.provider == "llm" and self.llm is None:
            raise ValueError("`provider: llm` needs `llm` with `base_url` and `model`")
        return self


class Limits(Part):
    body_bytes: Count = 4_194_304
    result_bytes: Count = 16_777_216
    result_preview_chars: Annotated[int, Field(ge=0)] = 40_000  # larger results are stored; 0: never
    result_store_bytes: Count = 268_435_456  # of stored results, on disk; one token may use at most half of it
    sessions: Count = 1000
    session_idle_s: Seconds = 600
    connections: Count = 1000  # one address may use at most half of them
    calls: Count = 1000  # concurrent requests in the whole daemon
    token_calls: Count = 64  # concurrent requests of one token
    server_calls: Count = 128  # concurrent calls at one server; more are queued, round robin between tokens
    queue_s: Seconds = 10  # for a slot of a server
    in_flight_bytes: Count = 134_217_728  # of large requests and answers while they are read and decoded
    unread_bytes: Count = 134_217_728  # of answers that clients have not read yet, in the whole daemon
    audit_bytes_per_s: Count = 1_048_576  # of one token's audit rows
    header_s: Seconds = 10
    body_s: Seconds = 10
    messages: Count = 1000  # from the server during one call
    parked: Count = 1000
    parked_s: Seconds = 300
    list_max_age_s: Annotated[float, Field(ge=0, le=86_400)] = 5
    first_list_s: Annotated[float, Field(ge=0, le=3600)] = 2  # for servers that start for the first time


class Audit(Part):
    arguments: bool = False
    max_days: Count = 90
    max_bytes: Count = 1_073_741_824


class Search(Part):
    embeddings: bool = True
    usage: bool = True


class State(Part):
    database: DatabaseAddress | None = None  # reserved: rejected for now
    request_keys: tuple[RequestKey, ...] = ()  # the first one seals, any of them opens


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
    _notes: tuple[str, ...] = PrivateAttr(())

    @property
    def notes(self) -> tuple[str, ...]:
        """What the file says in a client's words and is read in ours, or ignored: each with its position."""
        return self._notes

    def with_notes(self, notes: Iterable[str]) -> GatewayConfig:
        copy = self.model_copy()
        copy._notes = tuple(notes)
        return copy

    def is_flat(self, server: Server) -> bool:
        """Whether a project of the server exposes its tools by name."""
        if not server.projects:
            return self.unassigned.exposure == "flat"
        projects = (self.projects.get(project_id) for project_id in server.projects)
        return any(project.exposure == "flat" for project in projects if project is not None)

    def timeouts_of(self, server: Server) -> Timeouts:
        own: dict[str, Any] = server.timeouts.model_dump(exclude_none=True)
        if server.downloader and "connect_s" not in self.timeouts.model_fields_set:
            own.setdefault("connect_s", DOWNLOAD_S)
        return self.timeouts.model_copy(update=own)


@dataclass(slots=True)
class CurrentConfig:
    """Holds the configuration in effect; a reload replaces it."""

    config: GatewayConfig
