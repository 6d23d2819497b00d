"""Sign-in as the front uses it: verifies access tokens, and says which scopes a request lacks."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pointsman.catalog.effects import effect_of
from pointsman.catalog.identities import Identities, IdentitySource, is_identity
from pointsman.catalog.service import ToolCatalogService
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.value_types import SCOPES, Scope
from pointsman.core.errors import ScopeError
from pointsman.core.model import Caller, Json, ToolKey
from pointsman.router.auth.claims import oauth_scopes
from pointsman.router.auth.metadata import Resources, own_issuer, resources_of

if TYPE_CHECKING:
    from pointsman.router.auth.issuers import Issuers

_EXECUTE: Final = "tool_execute"
_READS: Final = ("resources/", "prompts/", "skills/")  # the beginnings of methods that need `read`

logger = logging.getLogger(__name__)


class Access:
    """Who can sign in, across reloads: the identities, and what verifies them."""

    def __init__(self, config: GatewayConfig) -> None:
        self.identities = Identities()
        self._issuers: Issuers | None = None
        self._rules: tuple[object, ...] = ()
        self._resources: Resources | None = None
        self._own: IdentitySource | None = None
        self._issuer = own_issuer(config)
        self._apply(config)

    def add_own_server(self, source: IdentitySource, config: GatewayConfig) -> None:
        """Let callers sign in at the gateway's own authorization server, too."""
        self._own = source
        self._apply(config)

    def configure(self, config: GatewayConfig) -> None:
        """Apply a configuration, before the catalog does. What was verified by other rules has to be verified again."""
        before, self._issuer = self._issuer, own_issuer(config)
        if before != self._issuer:
            logger.warning("%s", _own_server_change(before, self._issuer, runs=self._own is not None))
        self._apply(config)

    def _apply(self, config: GatewayConfig) -> None:
        own_server = own_issuer(config) if self._own is not None else None
        resources = self._resources = resources_of(config, own_server)
        rules = (config.auth, config.listen.public_url)
        if rules != self._rules:
            self.identities.forget_all()
        self._rules = rules
        # Without rules there is nothing to verify: what fetches keys stays unloaded.
        self._issuers = _issuers(config, resources, self._issuers) if resources is not None and config.auth else None
        sources: list[IdentitySource] = [self._issuers] if self._issuers is not None else []
        self.identities.sources = [*sources, *([self._own] if self._own is not None and own_server is not None else [])]

    def sign_in(self, catalog: ToolCatalogService) -> SignIn | None:
        """None: nobody can sign in."""
        return SignIn(catalog, self._resources) if self._resources is not None else None

    async def close(self) -> None:
        if self._issuers is not None:
            await self._issuers.close()


def _own_server_change(old: str | None, new: str | None, *, runs: bool) -> str:
    """What a reload means for clients that sign in at the gateway itself. `runs`: it could do that since its start."""
    if new is None:
        why = "they cannot, and grants are not accepted, while `auth` is set or `listen.public_url` is not"
        return f"clients no longer sign in at this gateway: {why}"
    if not runs:
        return f"clients can sign in at {new} after the next start; other uses of `listen.public_url` begin now"
    if old is None:
        return f"clients can sign in at {new} from now on, and grants for this address are accepted again"
    return f"clients sign in at {new} from now on; those that signed in at {old} have to sign in again"


def _issuers(config: GatewayConfig, resources: Resources, before: Issuers | None) -> Issuers:
    from pointsman.router.auth.issuers import Issuers  # on demand: it loads what fetches keys

    return Issuers(config.auth, resources, before)


class SignIn:
    """Exists only where somebody can sign in. A reload replaces it."""

    def __init__(self, catalog: ToolCatalogService, resources: Resources) -> None:
        self._catalog = catalog
        self.resources = resources

    async def verify(self, token: str | None) -> None:
        """Verify an access token that is not known yet.

        Raises UnauthorizedError, ForbiddenError, ScopeError, SignInUnavailableError.
        """
        await self._catalog.sign_in(token)

    def check_scope(self, caller: Caller, message: Json) -> None:
        """Refuse a request that only the scope of the caller's access token does not allow. Raises ScopeError.

        What the rights themselves do not allow is left to the gateway, where it does not exist; so is what the owner
        has refused when the client asked for it, and a tool whose server has not listed it yet.
        """
        if not is_identity(caller.token_id):
            return
        wider = Caller(self._catalog.identities.widest(caller.token_id), caller.project_id)
        if wider == caller:
            return
        missing = self._missing(caller, wider, message)
        token = self._catalog.rights.token_of(caller.token_id)
        if missing is None or token is None:
            return
        needed = oauth_scopes(scope for scope in SCOPES if scope == missing or scope in token.scopes)
        raise ScopeError(
            "The scope of this access token does not cover this request. "
            f"Sign in again and ask for `{' '.join(needed)}`.",
            needed,
        )

    def _missing(self, caller: Caller, wider: Caller, message: Json) -> Scope | None:
        method, params = message.get("method"), message.get("params") or {}
        rights = self._catalog.rights
        if method == "tools/call":
            return self._call_missing(caller, wider, params)
        if isinstance(method, str) and method.startswith(_READS) and rights.may_read(wider):
            return None if rights.may_read(caller) else "read"
        return None

    def _call_missing(self, caller: Caller, wider: Caller, params: Json) -> Scope | None:
        for key in self._keys(wider, params):
            effect = self._effect_missing(caller, wider, key)
            if effect is not None:
                return effect
        return None

    def _effect_missing(self, caller: Caller, wider: Caller, key: ToolKey) -> Scope | None:
        """The effect of a tool, if the scope alone keeps the caller from using it."""
        rights, listed = self._catalog.rights, self._catalog.last_list(key.server_id)
        tool = listed.items.get(key.tool_name) if listed is not None else None
        if tool is None or rights.may_use(caller, key.server_id, key.tool_name, tool.claimed):
            return None
        if not rights.may_use(wider, key.server_id, key.tool_name, tool.claimed):
            return None
        return effect_of(rights.config.servers[key.server_id], tool.claimed)

    def _keys(self, wider: Caller, params: Json) -> Iterable[ToolKey]:
        """The tools that a call may mean: by its key, or under its own name where tools are flat."""
        name, given = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            return ()
        rights = self._catalog.rights
        if rights.is_flat(wider):
            return [ToolKey(*owner) for owner in rights.names_of(wider).owners(name)]
        text = given.get("toolKey") if name == _EXECUTE and isinstance(given, dict) else None
        key = ToolKey.parse(text) if isinstance(text, str) else None
        return () if key is None else (key,)
