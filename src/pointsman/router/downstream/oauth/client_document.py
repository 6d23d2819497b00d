"""Our own client id metadata document: with `listen.public_url`, authorization servers read there who we are."""

from __future__ import annotations

from pointsman.config.model import GatewayConfig
from pointsman.core.model import Json

PATH = "/oauth/client.json"
PAGE_CALLBACK = "/page/signed-in"  # where a browser returns that began on the page
CALLBACK = "/oauth/callback"  # where a caller's person returns
CLIENT_NAME = "Pointsman"


def client_document_url(config: GatewayConfig) -> str | None:
    """The URL of the document, which is our client id; None: no authorization server could read it."""
    public = config.listen.public_url
    return f"{public}{PATH}" if public is not None and public.startswith("https://") else None


def client_document(config: GatewayConfig) -> Json | None:
    """The document; None: there is none."""
    url, public = client_document_url(config), config.listen.public_url
    if url is None:
        return None
    ports = {server.oauth.callback_port for server in config.servers.values() if server.oauth is not None}
    named = [f"http://127.0.0.1:{port}/callback" for port in sorted(port for port in ports if port is not None)]
    return {
        "client_id": url,
        "client_name": CLIENT_NAME,
        "client_uri": public,
        # Authorization servers accept any port for a loopback address (RFC 8252), and those that do not, the named.
        "redirect_uris": [f"{public}{PAGE_CALLBACK}", f"{public}{CALLBACK}", "http://127.0.0.1/callback", *named],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    }
