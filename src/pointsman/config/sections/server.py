"""One entry of `servers` as a frozen model, and the timeouts that apply to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from pointsman.config.sections.part import Part
from pointsman.config.sections.rates import ServerRates, ToolRates
from pointsman.config.sections.value_types import (
    CallerName,
    ClientId,
    Confirm,
    Count,
    HeaderName,
    HeaderValue,
    Id,
    IssuerAddress,
    LocalPath,
    MemorySize,
    OAuthScope,
    Prefix,
    Program,
    RootName,
    Seconds,
    Store,
    Variable,
    VariableName,
    WebAddress,
)
from pointsman.config.sections.values import is_database_address, is_private_link, parse_oauth

SEARCH_DB_PATH = "SEARCH_DB_PATH"  # the environment variable that names the store of a bundled archive
# Programs that may download a server before they start it, and the default of their `connect_s`.
DOWNLOADERS = frozenset({"bunx", "docker", "npm", "npx", "pipx", "pnpm", "podman", "uv", "uvx"})
DOWNLOAD_S = 120.0


class Timeouts(Part):
    connect_s: Seconds = 30
    """Until a server has completed the handshake. If it is not set, 120 for a `command` that may download the server
    first: `uvx`, `uv`, `npx`, `npm`, `pnpm`, `bunx`, `pipx`, `docker`, `podman`."""
    list_s: Seconds = 5
    """For one list; a slow server is left out of the answer and never delays it further."""
    call_s: Seconds = 60
    """For a whole call, excluding the time a person takes to answer a question."""


class ServerTimeouts(Part):
    """A server's own timeouts; those of the top level apply where one is absent."""

    connect_s: Seconds | None = None
    list_s: Seconds | None = None
    call_s: Seconds | None = None


class Sandbox(Part):
    """What a program may reach. [The sandbox](../guide/sandbox.md) says how it is enforced."""

    read: Annotated[tuple[LocalPath, ...], Field(max_length=100)] = ()
    """Folders and files that it may read and run, besides those of the system, its own and `cwd`."""
    write: Annotated[tuple[LocalPath, ...], Field(max_length=100)] = ()
    """Folders and files that it may also change."""
    network: bool = False
    """`false`: it has a network namespace with nothing but its own loopback. Unix sockets are closed either way."""


class ServerLimits(Part):
    """What one child may use."""

    memory: MemorySize | None = None
    """Address space of each of its processes (`RLIMIT_AS`), in bytes or as `512M`, `2G`; at least 32 MiB. Node.js
    reserves much more than it uses."""
    processes: Annotated[Count, Field(le=100_000)] | None = None
    """Processes and threads of the server together. Not possible for root."""


class OAuth(Part):
    """How the gateway signs in to a server with a `url` ([guide](../guide/sign-in-to-servers.md)).

    `oauth: auto` is `{}`: everything is discovered, and a person signs in once.
    """

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """`authorization_code`: a person signs in with `pointsman server login`. `client_credentials`: the gateway signs in
    as itself, with `client_id` and `client_secret` or `private_key`."""
    client_id: ClientId | None = None
    """A client that you registered at the authorization server; it can be the URL of a client metadata document that
    you host. By default the gateway's own metadata document if `listen.public_url` is set and the server knows such
    documents, else a client that is registered on the way."""
    client_secret: HeaderValue | None = None
    """The secret of `client_id`, if it has one. Write it as `${NAME}` or `${file:PATH}`."""
    private_key: Variable | None = None
    """In place of a secret: the key with which `client_id` signs (`private_key_jwt`), as PEM without a password: RSA,
    EC or Ed25519. Write it as `${file:PATH}`."""
    key_id: ClientId | None = None
    """The id (`kid`) of `private_key` at the authorization server, if that wants one."""
    token_auth: Literal["client_secret_basic", "client_secret_post", "none"] | None = None
    """How `client_id` proves itself to the authorization server, if it has no `private_key`; by default as the
    metadata of the server say."""
    scope: OAuthScope | None = None
    """Scopes to ask for, with spaces between them; by default those that the server asks for."""
    issuer: IssuerAddress | None = None
    """The authorization server, exactly as it writes its issuer; by default the first that the server names. Its host
    may then be inside your network."""
    callback_port: Annotated[int, Field(ge=1024, le=65_535)] | None = None
    """Port of 127.0.0.1 to which `pointsman server login` lets the browser return, for a `client_id` that was
    registered with `http://127.0.0.1:PORT/callback`; by default a free one."""

    @model_validator(mode="after")
    def _check_client(self) -> OAuth:
        proves = self.client_secret is not None or self.private_key is not None
        if self.grant == "client_credentials" and (self.client_id is None or not proves):
            raise ValueError("`grant: client_credentials` needs `client_id`, and `client_secret` or `private_key`")
        if self.client_id is None and (proves or self.token_auth is not None):
            raise ValueError("`client_secret`, `private_key` and `token_auth` need `client_id`")
        if self.private_key is not None and (self.client_secret is not None or self.token_auth is not None):
            raise ValueError("`private_key` takes the place of `client_secret` and `token_auth`: remove those")
        if self.key_id is not None and self.private_key is None:
            raise ValueError("`key_id` needs `private_key`")
        return self


class Server(Part):
    """One downstream MCP server: exactly one of `bundled`, `command` and `url`."""

    name: str | None = None
    """Display name for people and models; by default the id."""
    enabled: bool = True
    """`false`: the server is not started, and its tools do not exist."""
    bundled: Literal["archive"] | None = None
    """The server that ships with Pointsman."""
    command: Program | None = None
    """Program to start; it speaks MCP over stdin and stdout."""
    args: tuple[str, ...] = ()
    """Its arguments, passed literally (`8080` stays `8080`)."""
    env: Mapping[VariableName, Variable] = {}
    """Its environment variables, in addition to [those that every child inherits](#the-environment-of-a-child). For
    those of the archive see [its limits](archive-limits.md)."""
    inherit_env: tuple[VariableName, ...] = ()
    """Names of further variables of the gateway that it inherits, such as `[AWS_PROFILE]`; one that is not set is left
    out. `env` overrides them."""
    cwd: LocalPath | None = None
    """Its working directory."""
    url: WebAddress | None = None
    """Address of a remote server."""
    transport: Literal["stdio", "http", "sse"] | None = None
    """`http` is streamable HTTP. By default `stdio` for `command` and `http` for `url`."""
    headers: Mapping[HeaderName, HeaderValue] = {}
    """Headers for every request to `url`."""
    oauth: Annotated[OAuth, BeforeValidator(parse_oauth)] | None = None
    """`url` only: sign in to the server with OAuth ([keys](#oauth-of-a-server)); `auto` discovers everything
    ([guide](../guide/sign-in-to-servers.md))."""
    credentials: Literal["shared", "per-caller"] = "shared"
    """`url` only. `per-caller`: each caller uses [an account of its own](../guide/sign-in-to-servers.md#own-accounts),
    by `oauth` or `caller_headers`, over a connection of its own; lists use `headers` or the gateway's own sign-in."""
    caller_headers: Mapping[CallerName, Mapping[HeaderName, HeaderValue]] = {}
    """With `credentials: per-caller`: headers for the requests of one caller, besides and instead of `headers`, such as
    `{laptop: {Authorization: "Bearer ${LAPTOP_KEY}"}}`. A caller is the id of a token, or a person who signs in
    (`"@sso/alice"`). One that is not listed signs in with `oauth`, or cannot use the server."""
    era: Literal["auto", "legacy", "modern"] = "auto"
    """`auto` detects the protocol era; `legacy` or `modern` fixes it."""
    isolation: Literal["shared", "per-caller"] = "shared"
    """`per-caller`: each caller (token and project) gets its own connection for calls and subscriptions
    ([details](../concepts/questions.md#a-connection-for-each-caller)); lists use one shared connection."""
    placement: Literal["one", "each"] | None = None
    """`command` and `bundled` only, with [workers](../guide/replicas.md#servers-of-workers) or `state.replicas`. `one`:
    one process for all of them, which may keep something in memory; `each`: one for each. By default `one` for a
    `command` with `workers`, else `each`."""
    prefix: Prefix | None = None
    """Prefix for the names of its prompts and, with `exposure: flat`, of its tools; by default `<id>__`. `""`: no
    prefix, and its resource URIs stay unchanged, except for `ui://` ([apps](../guide/clients.md#apps)); if two
    servers clash, the first in the file wins. A name with another server's prefix belongs to that server."""
    projects: tuple[Id, ...] = ()
    """Projects that the server belongs to; empty: it is for callers without a project."""
    tool_permissions: Mapping[str, bool] = {}
    """`{tool: false}` forbids a tool; tools that are not listed are allowed. `{"*": false, tool: true}` is an allow
    list: only tools listed with `true` are allowed, even if the server adds others."""
    trust_annotations: bool | None = None
    """Whether to believe what the server says its tools do (`readOnlyHint`, `destructiveHint`). Otherwise each of its
    tools counts as destructive. By default only bundled servers are believed."""
    questions: bool = True
    """`false`: the server may not [ask](../concepts/questions.md#servers-that-may-not-ask) a client anything
    (elicitation, sampling, roots)."""
    rates: ServerRates = ServerRates()
    """[Calls and reads](#rates) of this server, all tokens together."""
    tool_rates: Mapping[str, ToolRates] = {}
    """[Calls](#rates) of single tools of this server, all tokens together, such as `{send: {calls_per_day: 100}}`."""
    confirm: Confirm = "never"
    """Which calls of its tools [a person must confirm](../concepts/confirmation.md), as in
    [projects](#projectsid-and-unassigned)."""
    sandbox: Sandbox | None = None
    """`command` only: what the program may reach ([keys](#sandbox-and-limits-of-a-server)); `{}` is its own files,
    without a network. If that cannot be enforced in full, the server is not started."""
    limits: ServerLimits | None = None
    """`command` only: memory and processes of each child ([keys](#sandbox-and-limits-of-a-server))."""
    pin: Literal["first-use", "schema", "locked", "off"] | None = None
    """When a change of its definitions has to be [approved](../concepts/pinning.md). `first-use`: what its first list
    has is approved, and what changes or is added later waits; `schema`: changes of texts do not count; `locked`: all
    waits that is not approved yet; `off`: nothing waits. By default `first-use`, and `off` for bundled servers."""
    timeouts: ServerTimeouts = ServerTimeouts()
    """Overrides `connect_s`, `list_s` and `call_s` of [`timeouts`](#timeouts) for this server."""
    db: Store | None = None
    """`bundled: archive` only: its database, by default [in `state.database`](archive.md#in-postgresql) if that is set,
    else a file in the state folder ([precedence](../guide/archive-ingest.md#which-store))."""
    roots: Mapping[RootName, LocalPath] = {}
    """`bundled: archive` only: folders it may read, each under a name of letters, digits, `_`, `-` and `.`."""

    @property
    def tools_not_configured(self) -> frozenset[str]:
        """Its tools that refuse every call, because a key that they need is not set."""
        return _NEED_ROOTS if self.bundled == "archive" and not self.roots else frozenset()

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
        if self.oauth is not None and self.url is not None:
            _check_oauth(self.url, self.headers)
        self._check_credentials()
        if self.placement == "one" and self.isolation == "per-caller":
            raise ValueError("`placement: one` needs `isolation: shared`: with `per-caller`, each worker has its own")
        named = self.store_variable if self.bundled else ""
        if named and not is_database_address(named) and not Path(named).is_absolute():
            raise ValueError(f"`env.{SEARCH_DB_PATH}` must be absolute; use `db` for a path relative to this file")
        return self

    def _check_credentials(self) -> None:
        if self.credentials == "shared":
            if self.caller_headers:
                raise ValueError("`caller_headers` needs `credentials: per-caller`")
            return
        if self.url is None:
            raise ValueError("`credentials: per-caller` needs a server with `url`")
        if self.oauth is None and not self.caller_headers:
            raise ValueError("`credentials: per-caller` needs `oauth` or `caller_headers`")
        if self.oauth is not None and self.oauth.grant != "authorization_code":
            raise ValueError(
                "`credentials: per-caller` needs `oauth` with `grant: authorization_code`: persons sign in"
            )

    @property
    def trusts_annotations(self) -> bool:
        return self.bundled is not None if self.trust_annotations is None else self.trust_annotations

    @property
    def pin_mode(self) -> Literal["first-use", "schema", "locked", "off"]:
        if self.pin is not None:
            return self.pin
        return "first-use" if self.bundled is None else "off"

    @property
    def downloader(self) -> str | None:
        """The name of the program if it may download the server before it starts it."""
        program = Path(self.command).name if self.command is not None else None
        return program if program in DOWNLOADERS else None

    @property
    def store_variable(self) -> str:
        """The path or address of the store in `env`; empty: not set."""
        variable = self.env.get(SEARCH_DB_PATH)
        return variable.get_secret_value() if variable is not None else ""

    @property
    def names_store(self) -> bool:
        """Whether the entry of a bundled archive names its store."""
        return self.db is not None or bool(self.store_variable)


def _check_oauth(url: str, headers: Mapping[str, SecretStr]) -> None:
    if any(name.lower() == "authorization" for name in headers):
        raise ValueError("`oauth` sends its own `Authorization` header: remove the one in `headers`")
    if not is_private_link(url):
        raise ValueError("`oauth` needs an https:// URL: a token on plain HTTP can be read on its way")


_NEED_ROOTS = frozenset({"grep_codebase", "read_file"})  # of the archive

# Keys that only some kinds of server have. One without effect is rejected rather than ignored.
_ALLOWED_WITH = {
    "args": ("command",),
    "cwd": ("command",),
    "sandbox": ("command",),
    "limits": ("command",),
    "env": ("command", "bundled"),
    "inherit_env": ("command", "bundled"),
    "headers": ("url",),
    "oauth": ("url",),
    "caller_headers": ("url",),
    "placement": ("command", "bundled"),
    "db": ("bundled",),
    "roots": ("bundled",),
}
