"""Which calls need a person's yes. Pure: `confirm` of project, server and token together, and a tool's effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from pointsman.catalog.effects import EFFECTS, Effect, effect_of
from pointsman.catalog.identities import Identities, is_identity
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.server import Server
from pointsman.config.sections.value_types import Confirm
from pointsman.config.tool_patterns import MAX_NAME_CHARS, NamePatterns, ToolPatterns
from pointsman.core.errors import ServerUnavailableError
from pointsman.core.model import Caller

MAX_KEPT: Final = 10_000  # rules, while identities come and go; those of tokens are bounded by the YAML

_ASKED: Final[dict[str, frozenset[Effect]]] = {
    "never": frozenset(),
    "destructive": frozenset({"destructive"}),
    "writes": frozenset({"destructive", "write"}),
}


class Rule(Struct, frozen=True):
    """What the `confirm` of all that a call goes through asks for together."""

    claims: frozenset[Effect]  # tools that claim one of these effects need a yes, as far as claims are trusted
    patterns: NamePatterns | None
    server: Server

    def applies(self, tool_name: str, claimed: Effect) -> bool:
        """Whether a call of the tool needs a yes."""
        if claimed in self.claims:
            return True
        return self.patterns is not None and (len(tool_name) > MAX_NAME_CHARS or self.patterns.leaves(tool_name))


class ConfirmRules:
    """The rules of one configuration, cached by caller and server: a call without one costs a look-up."""

    def __init__(self, config: GatewayConfig, exempt: str, identities: Identities | None = None) -> None:
        """`exempt`: the token id of the owner, whose own command is the yes. `identities`: who has signed in."""
        self._config = config
        self._exempt = exempt
        self._identities = identities
        asked = {project.confirm for project in config.projects.values()} | {config.unassigned.confirm}
        asked |= {server.confirm for server in config.servers.values()}
        asked |= {token.confirm for token in config.tokens.values()}
        self.idle = asked == {"never"} and identities is None  # what an identity asks for is known when it calls
        self._rules: dict[tuple[Caller, str], Rule | None] = {}

    def of(self, caller: Caller, server_id: str) -> Rule | None:
        """The rule for a caller's calls to a server; None: none of them needs a yes. Raises ServerUnavailableError."""
        if self.idle:
            return None
        key = (caller, server_id)
        try:
            return self._rules[key]
        except KeyError:
            if is_identity(caller.token_id) and len(self._rules) >= MAX_KEPT:
                self._rules.clear()
            rule = self._rules[key] = self._combine(caller, server_id)
            return rule

    def _combine(self, caller: Caller, server_id: str) -> Rule | None:
        config = self._config
        if caller.token_id == self._exempt:
            return None
        place = config.unassigned if caller.project_id is None else config.projects.get(caller.project_id)
        server, token = config.servers.get(server_id), config.tokens.get(caller.token_id)
        if token is None and self._identities is not None:
            token = self._identities.rights_of(caller.token_id)
        if place is None or server is None or token is None:  # a reload removed it after the call was resolved
            raise ServerUnavailableError(server_id, "it was taken out of the configuration")
        return combined(server_id, server, (place.confirm, server.confirm, token.confirm))


def combined(server_id: str, server: Server, asked: Iterable[Confirm]) -> Rule | None:
    """The union of what each asks for; None: nothing."""
    asked = tuple(asked)
    effects = frozenset[Effect]().union(*(_ASKED[one] for one in asked if isinstance(one, str)))
    listed = [pattern for one in asked if not isinstance(one, str) for pattern in one]
    named = ToolPatterns(listed).of_server(server_id) if listed else None
    patterns = None if named is None or named.leaves_none else named
    claims = frozenset[Effect](claimed for claimed in EFFECTS if effect_of(server, claimed) in effects)
    return Rule(claims, patterns, server) if claims or patterns is not None else None
