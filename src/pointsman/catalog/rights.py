"""The one place that decides who may use what. Pure: no I/O, and the time is a parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeVar

from msgspec import Struct

from pointsman.catalog.confirmation import ConfirmRules
from pointsman.catalog.names import NameIndex
from pointsman.catalog.tokens import CREATE_TOKEN, TokenIndex
from pointsman.config.model import ANY, UNASSIGNED, GatewayConfig, Strategy, Token
from pointsman.config.server_model import Server
from pointsman.core.errors import ForbiddenError, View
from pointsman.core.model import Caller

Tool = TypeVar("Tool")

NO_PROJECT = frozenset({UNASSIGNED, "UNASSIGNED_PROJECT_ID", "__unassigned__"})
MAX_NAMED_PROJECTS = 10  # in one sentence
Denial = Literal["token", "project", "server", "token_servers", "server_projects", "permission"]
"""Why a caller may not use a tool: there is no such token, it does not include the project, there is no such server,
the token does not name it, it does not belong to the project, or `tool_permissions` forbid the tool."""

OWNER_ID = "@owner"  # stands for a token id, and no token can have it: the owner's own commands act with it


class RightsIndex:
    """The rights of one configuration, indexed so that a request costs a few look-ups.

    A reload creates a new index, which then decides for requests under way, too.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.tokens = TokenIndex(config.tokens)
        self.confirm = ConfirmRules(config, exempt=OWNER_ID)
        self._projects = _projects_by_token(config)
        self._grants: dict[Caller, _Grants] = {}
        self._names: dict[Caller, NameIndex] = {}

    def identify(
        self, secret: str | None, project_named: str | None, now: float, *, sole_project: bool = False
    ) -> Caller:
        """The caller that a secret and a project name stand for. `now` is the wall clock.

        With `sole_project`, a token that includes exactly one project need not name it (`project_named` is None).

        Raises:
            UnauthorizedError: there is no token, or it is unknown or has expired.
            ForbiddenError: the token does not include the project, or there is none; the two are indistinguishable.
        """
        token_id = self.tokens.verify(secret, now)
        project_id = None if project_named is None or project_named in NO_PROJECT else project_named
        if project_id not in self._projects[token_id]:
            included = self._projects[token_id]
            if not sole_project or project_named is not None or len(included) != 1:
                raise ForbiddenError(_why_forbidden(project_id, self.project_ids(token_id)))
            [project_id] = included
        return Caller(token_id, project_id)

    def project_ids(self, token_id: str) -> list[str]:
        """The projects that a token includes, in the order of the configuration."""
        included = self._projects.get(token_id, ())
        return [project_id for project_id in self.config.projects if project_id in included]

    def includes(self, token_id: str, project_id: str | None) -> bool:
        """Whether a token may act for a project; None: without one."""
        return project_id in self._projects.get(token_id, ())

    def other_projects(self, caller: Caller) -> list[str]:
        """The other projects of the caller's token in which it may use a server."""
        callers = (Caller(caller.token_id, project_id) for project_id in self.project_ids(caller.token_id))
        return [one.project_id for one in callers if one.project_id and one != caller and self.usable_servers(one)]

    def still_valid(self, caller: Caller, now: float) -> bool:
        """Whether a caller that was identified earlier would be accepted now."""
        valid = self.tokens.is_valid(caller.token_id, now) or caller.token_id == OWNER_ID
        return valid and caller.project_id in self._projects[caller.token_id]

    def usable_servers(self, caller: Caller) -> tuple[str, ...]:
        """The enabled servers that this caller may use, in the order of the configuration."""
        return self._grants_of(caller).enabled

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
                self._names[caller] = names
        return names

    def may_use_server(self, caller: Caller, server_id: str) -> bool:
        """Whether token and project grant the server, enabled and running or not."""
        return server_id in self._grants_of(caller).servers

    def enabled_server(self, caller: Caller, server_id: str) -> Server | None:
        """The server, if token and project grant it and it is enabled, running or not."""
        grants = self._grants.get(caller) or self._grants_of(caller)
        server = grants.servers.get(server_id)
        return server if server is not None and server.enabled else None

    def may_use(self, caller: Caller, server_id: str, tool_name: str) -> bool:
        """Whether token, project and `tool_permissions` allow the tool, which need not exist."""
        server = self._grants_of(caller).servers.get(server_id)
        return server is not None and permits(server, tool_name)

    def permits(self, caller: Caller, server_id: str) -> Callable[[str], bool]:
        """`may_use` for many tools of one server."""
        server = self._grants_of(caller).servers.get(server_id)
        if server is None:
            return lambda tool_name: False
        permissions = server.tool_permissions
        others = permissions.get(ANY, True)
        return lambda tool_name: permissions.get(tool_name, others)

    def permitted(self, caller: Caller, server_id: str, tools: Mapping[str, Tool]) -> Iterable[Tool]:
        """Those of a server's tools, by name, that `may_use` allows."""
        server = self._grants_of(caller).servers.get(server_id)
        if server is not None and not server.tool_permissions:
            return tools.values()
        permits = self.permits(caller, server_id)
        return [tool for name, tool in tools.items() if permits(name)]

    def why_not(self, caller: Caller, server_id: str, tool_name: str) -> Denial | None:
        """The first reason for which `may_use` is false; None where it is true. For the owner: a caller learns none."""
        if self.may_use(caller, server_id, tool_name):
            return None
        if self.may_use_server(caller, server_id):
            return "permission"
        if caller.token_id not in self._projects:
            return "token"
        if caller.project_id not in self._projects[caller.token_id]:
            return "project"
        if server_id not in self.config.servers:
            return "server"
        return "server_projects" if _names(self._token(caller), server_id) else "token_servers"

    def strategy(self, caller: Caller) -> Strategy | None:
        """The `optimization` of the caller's project; None: discovery is switched off."""
        if caller.project_id is None:
            return "bm25" if caller.token_id == OWNER_ID else self.config.unassigned.optimization
        project = self.config.projects.get(caller.project_id)
        return project.optimization if project is not None else None

    def view(self, caller: Caller) -> View:
        """How the caller learns of tools."""
        if self.is_flat(caller):
            return "flat"
        return "keys" if self.strategy(caller) is None else "search"

    def is_flat(self, caller: Caller) -> bool:
        """Whether the caller's project exposes all tools by name instead of the two meta tools."""
        if caller.token_id == OWNER_ID:
            return False
        if caller.project_id is None:
            return self.config.unassigned.exposure == "flat"
        project = self.config.projects.get(caller.project_id)
        return project is not None and project.exposure == "flat"

    def reaches_app_tools(self, caller: Caller) -> bool:
        """Whether the caller may use tools that are for apps only. Behind the two meta tools a model would use them."""
        return caller.token_id == OWNER_ID or self.is_flat(caller)

    def describes(self, caller: Caller) -> bool:
        """Whether the description of `tool_discovery` names the servers of the caller's project."""
        if caller.project_id is None:
            return self.config.unassigned.describe_catalog
        project = self.config.projects.get(caller.project_id)
        return project is not None and project.describe_catalog

    def instructs(self, caller: Caller) -> bool:
        """Whether the instructions of the handshake name the servers of the caller's project."""
        if caller.project_id is None:
            return self.config.unassigned.catalog_in_instructions
        project = self.config.projects.get(caller.project_id)
        return project is not None and project.catalog_in_instructions

    def _grants_of(self, caller: Caller) -> _Grants:
        grants = self._grants.get(caller)
        if grants is None:
            grants = self._compute_grants(caller)
            if grants.servers:  # callers without servers are not cached: their number is unbounded
                self._grants[caller] = grants
        return grants

    def _compute_grants(self, caller: Caller) -> _Grants:
        if caller == Caller(OWNER_ID, None):  # all servers, whatever their projects
            return _grants(self.config.servers)
        token = self._token(caller)
        if token is None or caller.project_id not in self._projects[caller.token_id]:
            return _grants({})
        servers = {
            server_id: server
            for server_id, server in self.config.servers.items()
            if _names(token, server_id) and _belongs(server, caller.project_id)
        }
        return _grants(servers)

    def _token(self, caller: Caller) -> Token | None:
        return _OWNER if caller.token_id == OWNER_ID else self.config.tokens.get(caller.token_id)


_OWNER = Token(sha256="0" * 64, projects=(ANY,), servers=(ANY,))  # never looked up by its secret


def permits(server: Server, tool_name: str) -> bool:
    """Whether `tool_permissions` allow the tool, which need not exist."""
    permissions = server.tool_permissions
    return permissions.get(tool_name, permissions.get(ANY, True))


class _Grants(Struct, frozen=True):
    """The servers that token and project grant a caller."""

    servers: Mapping[str, Server]
    enabled: tuple[str, ...]


def _grants(servers: Mapping[str, Server]) -> _Grants:
    return _Grants(servers, tuple(server_id for server_id, server in servers.items() if server.enabled))


def identify(config: GatewayConfig, secret: str | None, project_named: str | None, now: float) -> Caller:
    """`RightsIndex.identify` for a single request."""
    return RightsIndex(config).identify(secret, project_named, now)


def _projects_by_token(config: GatewayConfig) -> dict[str, frozenset[str | None]]:
    """The existing projects that each token includes; None stands for no project."""
    every: frozenset[str | None] = frozenset((None, *config.projects))
    named = {UNASSIGNED: None, **{project_id: project_id for project_id in config.projects}}
    return {
        token_id: every
        if ANY in token.projects
        else frozenset(named[project_id] for project_id in token.projects if project_id in named)
        for token_id, token in {**config.tokens, OWNER_ID: _OWNER}.items()
    }


def _names(token: Token | None, server_id: str) -> bool:
    return token is not None and (ANY in token.servers or server_id in token.servers)


def _belongs(server: Server, project_id: str | None) -> bool:
    return not server.projects if project_id is None else project_id in server.projects


def _why_forbidden(project_id: str | None, included: list[str]) -> str:
    """`included` are the projects of the token, which its owner may know."""
    command = f"The operator can create a token for a project with `{CREATE_TOKEN}`."
    if project_id is None and not included:
        give = "The operator must give it one, in `projects` of the token, or create another token with"
        return f"This token includes no project, so it can be used for nothing. {give} `{CREATE_TOKEN}`."
    own = f"This token may use {_name_projects(included)}." if included else "This token includes no project."
    if project_id is None:
        use = "connect to `/projects/<project>/mcp`, or send `X-Pointsman-Project: <project>`"
        return f"This token needs a project: {use}. {own} {command}"
    shown = project_id if len(project_id) <= 64 and project_id.isprintable() else "of that name"
    wrong = f"This token may not use project `{shown}`, or there is none of that name: check its spelling."
    return f"{wrong} {own} {command}"


def _name_projects(project_ids: list[str]) -> str:
    named = ", ".join(f"`{project_id}`" for project_id in project_ids[:MAX_NAMED_PROJECTS])
    more = len(project_ids) - MAX_NAMED_PROJECTS
    return named if more <= 0 else f"{named} and {more} more"
