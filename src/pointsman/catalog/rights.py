"""The one place that decides who sees what. Pure: no I/O, and the time is handed in."""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from pointsman.config.model import ANY, UNASSIGNED, GatewayConfig, Server, Strategy, Token
from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.core.model import Caller

NO_PROJECT = frozenset({UNASSIGNED, "UNASSIGNED_PROJECT_ID", "__unassigned__"})
LEEWAY_S = 60.0  # clocks of two machines differ; a token is not refused for that
CREATE_TOKEN = "pointsman token create NAME --project P --server S"  # noqa: S105 - a command, no secret


class RightsIndex:
    """The rights that one configuration gives, prepared so that a request costs a few look-ups.

    Belongs to its configuration: after a reload there is a new one, and every question is asked of that.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self._by_digest: dict[str, str] = {}
        for token_id, token in config.tokens.items():
            self._by_digest.setdefault(token.sha256, token_id)
        self._ends = {
            token_id: token.expires.timestamp() + LEEWAY_S if token.expires is not None else math.inf
            for token_id, token in config.tokens.items()
        }
        self._grants: dict[Caller, _Grants] = {}

    def identify(self, secret: str | None, project_named: str | None, now: float) -> Caller:
        """Who is this? `now` is the wall clock.

        Raises:
            UnauthorizedError: no token, or one that is not known or has expired.
            ForbiddenError: the token does not list the project, or there is no such project; the two look the same.
        """
        if not secret:
            raise UnauthorizedError(
                "A token is needed: send it as `Authorization: Bearer <token>`. "
                f"Whoever runs this gateway makes one with `{CREATE_TOKEN}`."
            )
        token_id = self.token_id(secret)
        if token_id is None:
            raise UnauthorizedError(
                "This token is not known here: it may be misspelt or revoked. "
                f"Whoever runs this gateway makes a new one with `{CREATE_TOKEN}`."
            )
        if now >= self._ends[token_id]:
            raise UnauthorizedError(
                f"This token has expired. Whoever runs this gateway makes a new one with `{CREATE_TOKEN}`."
            )
        project_id = None if project_named is None or project_named in NO_PROJECT else project_named
        if not self._lists_project(self.config.tokens[token_id], project_id):
            raise ForbiddenError(_why_denied(project_id))
        return Caller(token_id, project_id)

    def token_id(self, secret: str) -> str | None:
        """The token that has this secret, expired or not; None: nobody's."""
        # Found by the hash, which nobody can steer towards a stored one; compared in constant time all the same.
        digest = sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        token_id = self._by_digest.get(digest)
        if token_id is None or not hmac.compare_digest(digest, self.config.tokens[token_id].sha256):
            return None
        return token_id

    def still_valid(self, caller: Caller, now: float) -> bool:
        """Whether a caller that was let in earlier would be let in now."""
        token = self.config.tokens.get(caller.token_id)
        if token is None or now >= self._ends[caller.token_id]:
            return False
        return self._lists_project(token, caller.project_id)

    def usable_servers(self, caller: Caller) -> tuple[str, ...]:
        """The servers that this caller may use and that are switched on, in the order of the configuration."""
        return self._grants_of(caller).switched_on

    def servers_of(self, caller: Caller) -> Mapping[str, Server]:
        """The servers that token and project give, in the order of the configuration, switched on or not."""
        return self._grants_of(caller).servers

    def may_use_server(self, caller: Caller, server_id: str) -> bool:
        """Token and project say yes, whether or not the server is switched on or running."""
        return server_id in self._grants_of(caller).servers

    def may_use(self, caller: Caller, server_id: str, tool_name: str) -> bool:
        """Token, project and `tool_permissions` say yes. Whether there is such a tool is another question."""
        return self.permits(caller, server_id)(tool_name)

    def permits(self, caller: Caller, server_id: str) -> Callable[[str], bool]:
        """`may_use` for many tools of one server."""
        server = self._grants_of(caller).servers.get(server_id)
        if server is None:
            return _nothing
        permissions = server.tool_permissions
        others = permissions.get(ANY, True)
        return lambda tool_name: permissions.get(tool_name, others)

    def strategy(self, caller: Caller) -> Strategy | None:
        """How this caller's project searches; None: its discovery is switched off."""
        if caller.project_id is None:
            return self.config.unassigned.optimization
        project = self.config.projects.get(caller.project_id)
        return project.optimization if project is not None else None

    def is_flat(self, caller: Caller) -> bool:
        """Whether this caller's project shows all tools instead of the two."""
        if caller.project_id is None:
            return self.config.unassigned.exposure == "flat"
        project = self.config.projects.get(caller.project_id)
        return project is not None and project.exposure == "flat"

    def describes(self, caller: Caller) -> bool:
        """Whether this caller's project wants its servers named in the description of `tool_discovery`."""
        if caller.project_id is None:
            return self.config.unassigned.describe_catalog
        project = self.config.projects.get(caller.project_id)
        return project is not None and project.describe_catalog

    def _lists_project(self, token: Token, project_id: str | None) -> bool:
        if project_id is None:
            return ANY in token.projects or UNASSIGNED in token.projects
        if project_id not in self.config.projects:
            return False
        return ANY in token.projects or project_id in token.projects

    def _grants_of(self, caller: Caller) -> _Grants:
        grants = self._grants.get(caller)
        if grants is None:
            grants = self._work_out(caller)
            if grants.servers:  # callers that have nothing are not kept: there is no end to them
                self._grants[caller] = grants
        return grants

    def _work_out(self, caller: Caller) -> _Grants:
        token = self.config.tokens.get(caller.token_id)
        if token is None or not self._lists_project(token, caller.project_id):
            return _Grants({}, ())
        servers = {
            server_id: server
            for server_id, server in self.config.servers.items()
            if (ANY in token.servers or server_id in token.servers) and _belongs(server, caller.project_id)
        }
        return _Grants(servers, tuple(server_id for server_id, server in servers.items() if server.enabled))


@dataclass(frozen=True, slots=True)
class _Grants:
    """What token and project give a caller."""

    servers: dict[str, Server]
    switched_on: tuple[str, ...]


def identify(config: GatewayConfig, secret: str | None, project_named: str | None, now: float) -> Caller:
    """`RightsIndex.identify` for a single question."""
    return RightsIndex(config).identify(secret, project_named, now)


def _nothing(tool_name: str) -> bool:
    return False


def _belongs(server: Server, project_id: str | None) -> bool:
    return not server.projects if project_id is None else project_id in server.projects


def _why_denied(project_id: str | None) -> str:
    command = f"Whoever runs this gateway makes a token for a project with `{CREATE_TOKEN}`."
    if project_id is None:
        return f"This token needs a project: name one with `X-Pointsman-Project: <project>`. {command}"
    shown = project_id if len(project_id) <= 64 and project_id.isprintable() else "of that name"
    return f"This token may not use a project `{shown}`, or there is none of that name: check its spelling. {command}"
