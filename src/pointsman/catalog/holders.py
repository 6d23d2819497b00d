"""Whose account at a server a call uses (`credentials: per-caller`): a person or token, and the project. Pure: no I/O.

A holder is bound to what makes the name unique: the secret of a token, the address of an issuer. So a token that was
created anew under an old name, or another issuer under an old name, finds no account of its predecessor.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from msgspec import Struct

from pointsman.catalog.identities import MARK, is_identity, person_of
from pointsman.catalog.rights import OWNER_ID
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.auth import Auth
from pointsman.core.model import Caller

GATEWAY: Final = ""  # the holder that is the gateway itself; the owner's own calls use its account
_BINDING_CHARS: Final = 16


class Holder(Struct, frozen=True):
    """As text: `<project>|<binding>|<person>`. Ids of projects have no `|`."""

    person: str  # the id of a token, `@sso/alice` or `@grant/<id>`
    project_id: str | None
    binding: str

    @property
    def key(self) -> str:
        return f"{self.project_id or ''}|{self.binding}|{self.person}"

    @classmethod
    def parse(cls, key: str) -> Holder:
        project, binding, person = key.split("|", 2)
        return cls(person, project or None, binding)


def holder_of(config: GatewayConfig, caller: Caller) -> str:
    """The key of a caller's holder now."""
    if caller.token_id == OWNER_ID:
        return GATEWAY
    person = person_of(caller.token_id)
    return Holder(person, caller.project_id, _binding(config, person)).key


def is_current(config: GatewayConfig, holder: Holder) -> bool:
    """Whether the token or issuer still is the one that the holder is bound to."""
    return holder.binding == _binding(config, holder.person) and (is_identity(holder.person) or bool(holder.binding))


def issuer_of(config: GatewayConfig, person: str) -> Auth | None:
    """The issuer where a person signs in; None: a token of the YAML, or a grant of the gateway's own server."""
    if not is_identity(person):
        return None
    name = person.removeprefix(MARK).partition("/")[0]
    return next((one for one in config.auth if one.name == name), None)


def _binding(config: GatewayConfig, person: str) -> str:
    if is_identity(person):
        issuer = issuer_of(config, person)
        return sha256(issuer.issuer.encode()).hexdigest()[:_BINDING_CHARS] if issuer is not None else ""
    token = config.tokens.get(person)
    return token.sha256[:_BINDING_CHARS] if token is not None else ""
