"""The one place that decides who may use what. Pure: no I/O, and the time is a parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from pointsman.catalog.confirmation import ConfirmRules
from pointsman.catalog.effects import Effect, effect_of
from pointsman.catalog.identities import Identities, is_identity
from pointsman.catalog.names import NameIndex
from pointsman.catalog.tokens import CREATE_TOKEN, TokenIndex
from pointsman.config.model import ANY, UNASSIGNED, GatewayConfig, Project, Strategy, Token, Unassigned
from pointsman.config.sections.server import Server
from pointsman.config.sections.value_types import SCOPES
from pointsman.config.tool_patterns import NamePatterns, ToolPatterns
from pointsman.core.errors import ForbiddenError, View
from pointsman.core.model import Caller


class _Claims(Protocol):
    @property
    def claimed(self) -> Effect: ...


Tool = TypeVar("Tool", bound=_Claims)
Kept = TypeVar("Kept")

NO_PROJECT = frozenset({UNASSIGNED, "UNASSIGNED_PROJECT_ID", "__unassigned__"})
MAX_NAMED_PROJECTS = 10  # in one sentence
MAX_SIGNED_IN = 10_000  # callers with an identity whose grants are kept; tokens of the YAML are bounded by their file
MAX_JUDGED = 10_000  # tools of one server that are remembered as allowed or not; it may list new names without end
_ServerDenial = Literal["token", "project", "server", "token_servers", "server_projects"]
_ToolDenial = Literal["permission", "project_tools", "token_tools", "scope"]
Denial = _ServerDenial | _ToolDenial
"""Why a caller may not use a tool: there is no such token, it does not include the project, there is no such server,
the token does not name it, it does not belong to the project, `tool_permissions` forbid the tool, `tools` of the
project or of the token leave it out, or its effect is outside of the token's `scopes`."""

OWNER_ID = "@owner"  # stands for a token id, and no token can have it: the owner's own commands act with it


class RightsIndex:
    """The rights of one configuration, indexed so that a request costs a few look-ups.

    A reload creates a new index, which then decides for requests under way, too.
    """

    def __init__(self, config: GatewayConfig, identities: Identities | None = None) -> None:
        """`identities`: those that have signed in; None: nobody can."""
        self.config = config
        self.tokens = TokenIndex(config.tokens, signs_in=identities is not None)
        self.identities = identities
        self.verify = self.tokens.verify if identities is None else self._verify_either
        self.confirm = ConfirmRules(config, exempt=OWNER_ID, identities=identities)
        self._projects = _projects_by_token(config)
        self._grants: dict[Caller, _Grants] = {}
        self._names: dict[Caller, NameIndex] = {}
        self._shared: dict[CallerLimits, _SharedGrants] = {}
        self._flat = _flat_projects(config)
        self.list_max_age_s = config.limits.list_max_age_s  # here, because each call needs it

    def identify(
        self, secret: str | None, project_named: str | None, now: float, *, sole_project: bool = False
    ) -> Caller:
        """The caller that a secret and a project name stand for. `now` is the wall clock.

        With `sole_project`, a token that includes exactly one project need not name it (`project_named` is None).

        Raises:
            UnauthorizedError: there is no token, or it is unknown or has expired.
            ForbiddenError: the token does not include the project, or there is none; the two are indistinguishable.
        """
        token_id = self.verify(secret, now)
        project_id = None if project_named is None or project_named in NO_PROJECT else project_named
        included = self._projects.get(token_id)
        if included is None:
            included = self._included(token_id)
        if project_id not in included:
            if not sole_project or project_named is not None or len(included) != 1:
                raise ForbiddenError(self._why_forbidden(token_id, project_id))
            [project_id] = included
        return Caller(token_id, project_id)

    def _why_forbidden(self, token_id: str, project_id: str | None) -> str:
        if not is_identity(token_id):
            return _why_forbidden(project_id, self.project_ids(token_id), _NEW_TOKEN)
        return _why_forbidden(project_id, self.project_ids(token_id), _RULES if self.config.auth else _CONSENT)

    def project_ids(self, token_id: str) -> list[str]:
        """The projects that a token includes, in the order of the configuration."""
        included = self._included(token_id)
        return [project_id for project_id in self.config.projects if project_id in included]

    def callers_of(self, token_id: str) -> list[Caller]:
        """All callers that a token may act as: without a project, and for each of its projects."""
        every = (None, *self.config.projects)
        return [Caller(token_id, project_id) for project_id in every if self.includes(token_id, project_id)]

    def includes(self, token_id: str, project_id: str | None) -> bool:
        """Whether a token may act for a project; None: without one."""
        return project_id in self._included(token_id)

    def other_projects(self, caller: Caller) -> list[str]:
        """The other projects of the caller's token in which it may use a server."""
        callers = (Caller(caller.token_id, project_id) for project_id in self.project_ids(caller.token_id))
        return [one.project_id for one in callers if one.project_id and one != caller and self.usable_servers(one)]

    def still_valid(self, caller: Caller, now: float) -> bool:
        """Whether a caller that was identified earlier would be accepted now."""
        token_id = caller.token_id
        expiry = self.tokens.expiry.get(token_id)
        if now < expiry if expiry is not None else token_id == OWNER_ID:
            return caller.project_id in self._projects[token_id]
        signed_in = self.identities is not None and self.identities.is_valid(token_id, now)
        return signed_in and caller.project_id in self._included(token_id)

    def token_of(self, token_id: str) -> Token | None:
        """The rights behind an id: of a token of the YAML, or of an identity that could sign in; None: it has none."""
        token = self.config.tokens.get(token_id)
        if token is None and self.identities is not None and is_identity(token_id):
            return self.identities.rights_of(token_id)
        return token

    def find(self, secret: str) -> str | None:
        """The id that a secret stands for, expired token or not; None: it is unknown. For the audit of a refusal."""
        token_id = self.tokens.find(secret)
        return self.identities.find(secret) if token_id is None and self.identities is not None else token_id

    def usable_servers(self, caller: Caller) -> tuple[str, ...]:
        """The enabled servers that this caller may use, in the order of the configuration."""
        return self._grants_of(caller).enabled

    def lacks_trust(self, caller: Caller) -> bool:
        """Whether a server has no tools for this caller because nobody vouches for its annotations."""
        token = self._token(caller)
        if token is None or "destructive" in token.scopes:
            return False
        return any(not self.config.servers[one].trusts_annotations for one in self.usable_servers(caller))

    def tool_servers(self, caller: Caller) -> tuple[str, ...]:
        """Those of `usable_servers` that may have a tool for this caller, by `scopes` and `tools`."""
        return self._grants_of(caller).with_tools

    def readable_servers(self, caller: Caller) -> tuple[str, ...]:
        """Those of `usable_servers` whose resources, prompts and skills the caller may read: all, or none."""
        return self._grants_of(caller).enabled if self.may_read(caller) else ()

    def may_read(self, caller: Caller) -> bool:
        """Whether the token's scopes include reads. Resources and prompts are reads, whoever is trusted."""
        token = self._token(caller)
        return token is not None and "read" in token.scopes

    def servers_of(self, caller: Caller) -> Mapping[str, Server]:
        """The servers that token and project grant, enabled or not, in the order of the configuration."""
        return self._grants_of(caller).servers

    def names_of(self, caller: Caller) -> NameIndex:
        """The index of the names that `servers_of` have for this caller."""
        names = self._names.get(caller)
        if names is None:
            servers = self.servers_of(caller)
            names = NameIndex(servers)
            if servers:  # as in `_grants_of`
                _keep(self._names, caller, names)
        return names

    def may_use_server(self, caller: Caller, server_id: str) -> bool:
        """Whether token and project grant the server, enabled and running or not."""
        return server_id in self._grants_of(caller).servers

    def tool_grant(self, caller: Caller, server_id: str) -> Grant | None:
        """The grant of a server that is enabled and may have a tool for this caller, running or not."""
        grants = self._grants.get(caller) or self._grants_of(caller)
        grant = grants.grants.get(server_id)
        return grant if grant is not None and grant.may_have_tools and grant.server.enabled else None

    def may_use(self, caller: Caller, server_id: str, tool_name: str, claimed: Effect) -> bool:
        """Whether the caller may use the tool, which need not exist; `claimed` is the effect that it claims."""
        grant = self._grants_of(caller).grants.get(server_id)
        return grant is not None and grant.why_not(tool_name, claimed) is None

    def permits(self, caller: Caller, server_id: str) -> Callable[[str, Effect], bool]:
        """`may_use` for many tools that one server lists."""
        grant = self._grants_of(caller).grants.get(server_id)
        return grant.allows if grant is not None else lambda tool_name, claimed: False

    def permitted(self, caller: Caller, server_id: str, tools: Mapping[str, Tool]) -> Iterable[Tool]:
        """Those of a server's tools, by name, that `may_use` allows."""
        grant = self._grants_of(caller).grants.get(server_id)
        if grant is None:
            return ()
        if grant.allows_all:
            return tools.values()
        return [tool for name, tool in tools.items() if grant.allows(name, tool.claimed)]

    def limits_of(self, caller: Caller) -> CallerLimits:
        """What token and project leave of the tools of all servers; equal for callers that differ in nothing of it."""
        return self._grants_of(caller).limits

    def why_not(self, caller: Caller, server_id: str, tool_name: str, claimed: Effect) -> Denial | None:
        """The first reason for which `may_use` is false; None where it is true. For the owner: a caller learns none."""
        grant = self._grants_of(caller).grants.get(server_id)
        if grant is not None:
            return grant.why_not(tool_name, claimed)
        if caller.token_id != OWNER_ID and self.token_of(caller.token_id) is None:
            return "token"
        if caller.project_id not in self._included(caller.token_id):
            return "project"
        if server_id not in self.config.servers:
            return "server"
        return "server_projects" if _names(self._token(caller), server_id) else "token_servers"

    def strategy(self, caller: Caller) -> Strategy | None:
        """The `optimization` of the caller's project; None: discovery is switched off."""
        if caller == _OWNER_CALLER:
            return "bm25"
        project = self._project(caller)
        return project.optimization if project is not None else None

    def view(self, caller: Caller) -> View:
        """How the caller learns of tools."""
        if self.is_flat(caller):
            return "flat"
        return "keys" if self.strategy(caller) is None else "search"

    def is_flat(self, caller: Caller) -> bool:
        """Whether the caller's project exposes all tools by name instead of the two meta tools."""
        return caller.project_id in self._flat and caller.token_id != OWNER_ID

    def reaches_app_tools(self, caller: Caller) -> bool:
        """Whether the caller may use tools that are for apps only. Behind the two meta tools a model would use them."""
        return caller.token_id == OWNER_ID or self.is_flat(caller)

    def describes(self, caller: Caller) -> bool:
        """Whether the description of `tool_discovery` names the servers of the caller's project."""
        project = self._project(caller)
        return project is not None and project.describe_catalog

    def instructs(self, caller: Caller) -> bool:
        """Whether the instructions of the handshake name the servers of the caller's project."""
        project = self._project(caller)
        return project is not None and project.catalog_in_instructions

    def _grants_of(self, caller: Caller) -> _Grants:
        grants = self._grants.get(caller)
        if grants is None:
            grants = self._compute_grants(caller)
            if grants.servers:  # callers without servers are not cached: their number is unbounded
                _keep(self._grants, caller, grants)
        return grants

    def _compute_grants(self, caller: Caller) -> _Grants:
        if caller == _OWNER_CALLER:  # all servers, whatever their projects
            return self._grants_for(self.config.servers, NO_LIMITS)
        token, project = self._token(caller), self._project(caller)
        if token is None or project is None or caller.project_id not in self._included(caller.token_id):
            return self._grants_for({}, NO_LIMITS)
        servers = {
            server_id: server
            for server_id, server in self.config.servers.items()
            if _names(token, server_id) and _belongs(server, caller.project_id)
        }
        return self._grants_for(servers, CallerLimits(token.scopes, project.tools or (), token.tools or ()))

    def _grants_for(self, servers: Mapping[str, Server], limits: CallerLimits) -> _Grants:
        shared = self._shared.get(limits)
        if shared is None:
            shared = self._shared[limits] = _SharedGrants(limits)
        grants = {server_id: shared.of(server_id, server) for server_id, server in servers.items()}
        enabled = tuple(server_id for server_id, server in servers.items() if server.enabled)
        with_tools = tuple(server_id for server_id in enabled if grants[server_id].may_have_tools)
        return _Grants(servers, enabled, grants, with_tools, limits)

    def _token(self, caller: Caller) -> Token | None:
        if caller.token_id == OWNER_ID:
            return _OWNER
        return self.config.tokens.get(caller.token_id) or self.token_of(caller.token_id)

    def _verify_either(self, secret: str | None, now: float) -> str:
        """The id of the token or identity with this secret. Raises UnauthorizedError."""
        if secret and self.identities is not None and self.tokens.find(secret) is None:
            identity_id = self.identities.find(secret)
            if identity_id is not None:
                return identity_id
        return self.tokens.verify(secret, now)

    def _included(self, token_id: str) -> frozenset[str | None]:
        """The existing projects that a token or identity includes; None stands for no project."""
        included = self._projects.get(token_id)
        if included is not None:
            return included
        token = self.token_of(token_id)
        return _included_projects(self.config, token) if token is not None else frozenset()

    def _project(self, caller: Caller) -> Project | Unassigned | None:
        if caller.project_id is None:
            return self.config.unassigned
        return self.config.projects.get(caller.project_id)


_OWNER = Token(sha256="0" * 64, projects=(ANY,), servers=(ANY,))  # never looked up by its secret
_OWNER_CALLER = Caller(OWNER_ID, None)


class CallerLimits(Struct, frozen=True):
    """What a caller's token and project leave of the tools of all servers. Empty lists leave all."""

    scopes: tuple[Effect, ...]
    project_tools: tuple[str, ...]
    token_tools: tuple[str, ...]


NO_LIMITS = CallerLimits(SCOPES, (), ())


class Grant:
    """A server that token and project grant a caller, and which of its tools the caller may use."""

    __slots__ = ("_judged", "_project_tools", "_scopes", "_token_tools", "allows_all", "may_have_tools", "server")

    def __init__(
        self, server: Server, scopes: tuple[Effect, ...], project_tools: NamePatterns, token_tools: NamePatterns
    ) -> None:
        self.server = server
        self._scopes = scopes
        self._project_tools = project_tools
        self._token_tools = token_tools
        every_effect = all(effect_of(server, effect) in scopes for effect in SCOPES)
        some_effect = any(effect_of(server, effect) in scopes for effect in SCOPES)
        lists = (project_tools, token_tools)
        self._judged: dict[tuple[str, Effect], bool] = {}
        self.allows_all = every_effect and not server.tool_permissions and all(one.leaves_all for one in lists)
        self.may_have_tools = some_effect and not any(one.leaves_none for one in lists)

    def allows(self, tool_name: str, claimed: Effect) -> bool:
        """Whether the caller may use a tool that the server lists; kept, because patterns may be many."""
        if self.allows_all:
            return True
        key = (tool_name, claimed)
        allowed = self._judged.get(key)
        if allowed is None:
            if len(self._judged) >= MAX_JUDGED:
                self._judged.clear()
            allowed = self._judged[key] = self.why_not(tool_name, claimed) is None
        return allowed

    def why_not(self, tool_name: str, claimed: Effect) -> Denial | None:
        permissions = self.server.tool_permissions
        if not permissions.get(tool_name, permissions.get(ANY, True)):
            return "permission"
        if not self._project_tools.leaves(tool_name):
            return "project_tools"
        if not self._token_tools.leaves(tool_name):
            return "token_tools"
        return None if effect_of(self.server, claimed) in self._scopes else "scope"


class _SharedGrants:
    """The grants of all callers with the same limits: patterns are compiled once, and names judged by one object."""

    def __init__(self, limits: CallerLimits) -> None:
        self._scopes = limits.scopes
        self._project_tools = ToolPatterns(limits.project_tools)
        self._token_tools = ToolPatterns(limits.token_tools)
        self._grants: dict[str, Grant] = {}

    def of(self, server_id: str, server: Server) -> Grant:
        grant = self._grants.get(server_id)
        if grant is None:
            lists = self._project_tools.of_server(server_id), self._token_tools.of_server(server_id)
            grant = self._grants[server_id] = Grant(server, self._scopes, *lists)
        return grant


class _Grants(Struct, frozen=True):
    """The servers that token and project grant a caller, and which of their tools."""

    servers: Mapping[str, Server]
    enabled: tuple[str, ...]
    grants: Mapping[str, Grant]
    with_tools: tuple[str, ...]  # those of `enabled` that may have a tool for the caller
    limits: CallerLimits


def identify(config: GatewayConfig, secret: str | None, project_named: str | None, now: float) -> Caller:
    """`RightsIndex.identify` for a single request."""
    return RightsIndex(config).identify(secret, project_named, now)


def _flat_projects(config: GatewayConfig) -> frozenset[str | None]:
    """The projects that expose all tools by name; None stands for no project."""
    flat = [project_id for project_id, project in config.projects.items() if project.exposure == "flat"]
    return frozenset([None, *flat] if config.unassigned.exposure == "flat" else flat)


def _projects_by_token(config: GatewayConfig) -> dict[str, frozenset[str | None]]:
    """The existing projects that each token includes; None stands for no project."""
    tokens = {**config.tokens, OWNER_ID: _OWNER}
    return {token_id: _included_projects(config, token) for token_id, token in tokens.items()}


def _included_projects(config: GatewayConfig, token: Token) -> frozenset[str | None]:
    if ANY in token.projects:
        return frozenset((None, *config.projects))
    named = (None if project_id == UNASSIGNED else project_id for project_id in token.projects)
    return frozenset(one for one in named if one is None or one in config.projects)


def _keep(kept: dict[Caller, Kept], caller: Caller, value: Kept) -> None:
    """Keep what was computed for a caller. Identities come and go without end, so at a bound all begin anew."""
    if is_identity(caller.token_id) and len(kept) >= MAX_SIGNED_IN:
        kept.clear()
    kept[caller] = value


def _names(token: Token | None, server_id: str) -> bool:
    return token is not None and (ANY in token.servers or server_id in token.servers)


def _belongs(server: Server, project_id: str | None) -> bool:
    return not server.projects if project_id is None else project_id in server.projects


_NEW_TOKEN = f"The operator can create a token for a project with `{CREATE_TOKEN}`."
_RULES = (
    "The operator's rule in `auth` gives your account its projects, and a token for a project's address has that one "
    "only: sign in for this address, or ask the operator to add the project to the rule."
)
_CONSENT = "The owner chose its project when the client signed in: sign in again to choose another."


def _why_forbidden(project_id: str | None, included: list[str], step: str) -> str:
    """`included` are the projects of the token, which its owner may know."""
    if project_id is None and not included:
        if step == _NEW_TOKEN:
            step = (
                "The operator must give it one, in `projects` of the token, or create another token with "
                f"`{CREATE_TOKEN}`."
            )
        return f"This token includes no project, so it can be used for nothing. {step}"
    own = f"This token may use {_name_projects(included)}." if included else "This token includes no project."
    if project_id is None:
        use = "connect to `/projects/<project>/mcp`, or send `X-Pointsman-Project: <project>`"
        return f"This token needs a project: {use}. {own} {step}"
    shown = project_id if len(project_id) <= 64 and project_id.isprintable() else "of that name"
    wrong = f"This token may not use project `{shown}`, or there is none of that name: check its spelling."
    return f"{wrong} {own} {step}"


def _name_projects(project_ids: list[str]) -> str:
    named = ", ".join(f"`{project_id}`" for project_id in project_ids[:MAX_NAMED_PROJECTS])
    more = len(project_ids) - MAX_NAMED_PROJECTS
    return named if more <= 0 else f"{named} and {more} more"
