"""The gateway as a protected resource (RFC 9728): its addresses, their metadata, and the challenges of 401 and 403."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from pointsman.catalog.identities import MCP_SCOPE
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.value_types import MAX_ID_CHARS
from pointsman.core.model import Json

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_PATH: Final = re.compile(rf"(?:/projects/([A-Za-z0-9_-]{{1,{MAX_ID_CHARS}}}))?/(mcp|sse|messages/)")


class Resource(Struct, frozen=True):
    """An address that tokens are issued for."""

    path: str  # `/mcp`, `/projects/demo/sse`; empty: the gateway as a whole
    project_id: str | None = None


class Resources:
    """The addresses of one configuration below its `listen.public_url`.

    A project need not exist to have one: who has no token learns nothing about projects.
    """

    def __init__(self, public_url: str, authorization_servers: Sequence[str]) -> None:
        self.public_url = public_url
        self.authorization_servers = tuple(authorization_servers)

    def document(self, path: str) -> Json | None:
        """The metadata of the resource at a path; None: there is no such resource."""
        resource = Resource("") if path == "" else resource_at(path)
        if resource is None or resource.path != path:
            return None
        return {
            "resource": f"{self.public_url}{path}",
            "authorization_servers": list(self.authorization_servers),
            "scopes_supported": [MCP_SCOPE],
            "bearer_methods_supported": ["header"],
            "resource_name": "Pointsman",
        }

    def named_by(self, audience: str) -> Resource | None:
        """The resource that an audience names; None: none of this gateway."""
        address = _canonical(audience)
        if not address.startswith(self.public_url):
            return None
        path = address.removeprefix(self.public_url)
        if path in ("", "/"):
            return Resource("")
        resource = resource_at(path)
        return resource if resource is not None and resource.path == path else None

    def challenge(self, path: str, *, token_sent: bool, scopes: Sequence[str] = ()) -> bytes:
        """The value of `WWW-Authenticate` for a request to this path.

        `scopes`: what it needs; without any, this is a 401.
        """
        resource = resource_at(path) or Resource("/mcp")
        error = "insufficient_scope" if scopes else "invalid_token" if token_sent else ""
        parts = [f'error="{error}"'] if error else []
        parts.append(f'scope="{" ".join(scopes or (MCP_SCOPE,))}"')
        parts.append(f'resource_metadata="{self.public_url}{WELL_KNOWN}{resource.path}"')
        return f"Bearer {', '.join(parts)}".encode("ascii")


def own_issuer(config: GatewayConfig) -> str | None:
    """The issuer of the gateway's own authorization server; None: it is off.

    Who has named issuers wants people to sign in there, and no second way in.
    """
    return None if config.auth else config.listen.public_url


def can_sign_in(config: GatewayConfig) -> bool:
    """Whether clients can sign in, at an issuer of `auth` or at the gateway itself."""
    return config.listen.public_url is not None  # which `auth` needs, too


def resources_of(config: GatewayConfig, own_server: str | None = None) -> Resources | None:
    """None: nobody can sign in. `own_server`: the issuer of the gateway's own authorization server, if it runs."""
    servers = [*([own_server] if own_server is not None else []), *(one.issuer for one in config.auth)]
    public_url = config.listen.public_url
    return Resources(public_url, servers) if public_url is not None and servers else None


def resource_at(path: str) -> Resource | None:
    """The resource that a request to a path belongs to: messages of SSE belong to their stream."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    project_id, kind = found.groups()
    base = f"/projects/{project_id}" if project_id is not None else ""
    return Resource(f"{base}/{'mcp' if kind == 'mcp' else 'sse'}", project_id)


def _canonical(audience: str) -> str:
    """Scheme and host in lower case: clients may write them otherwise."""
    try:
        parts = urlsplit(audience)
    except ValueError:
        return audience
    head = f"{parts.scheme}://{parts.netloc}"
    return head.lower() + audience[len(head) :] if audience.lower().startswith(head.lower()) else audience
