"""What the configuration says about the sign-in to one server."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from pointsman.config.sections.server import Server
from pointsman.router.auth.fetch import Reach
from pointsman.router.downstream.oauth.documents import AuthorizationServer
from pointsman.router.downstream.oauth.store import Credential
from pointsman.router.downstream.oauth.tokens import KEY, Client, configured_auth


class OAuthSettings(Struct, frozen=True):
    url: str
    headers: Mapping[str, str]  # the operator's, for every request to `url`
    unattended: bool  # client credentials: no person signs in
    reach: Reach  # of documents and endpoints
    client_id: str | None = None
    client_secret: str = ""
    token_auth: str | None = None
    scope: str | None = None
    issuer: str | None = None
    callback_port: int | None = None
    private_key: str = ""
    key_id: str = ""

    @classmethod
    def of(cls, server: Server) -> OAuthSettings:
        assert server.url is not None
        assert server.oauth is not None
        given = server.oauth
        return cls(
            server.url,
            {name: value.get_secret_value() for name, value in server.headers.items()},
            given.grant == "client_credentials",
            Reach.of(server.url, given.issuer),
            given.client_id,
            given.client_secret.get_secret_value() if given.client_secret is not None else "",
            given.token_auth,
            given.scope,
            given.issuer,
            given.callback_port,
            given.private_key.get_secret_value() if given.private_key is not None else "",
            given.key_id or "",
        )

    def client_at(self, server: AuthorizationServer) -> Client | None:
        """The client that the operator registered there; None: the configuration names none."""
        if self.client_id is None:
            return None
        if self.private_key:
            return Client(self.client_id, server.issuer, auth=KEY, key_id=self.key_id, algorithms=server.signatures)
        auth = configured_auth(server, self.client_secret, self.token_auth)
        return Client(self.client_id, server.issuer, self.client_secret, auth)

    def current(self, client: Client) -> Client:
        """A client that was stored, with the secret or key that the configuration has now."""
        if self.client_id is None:
            return client
        return replace(client, secret=self.private_key or self.client_secret, key_id=self.key_id)

    def fits(self, credential: Credential) -> bool:
        """Whether a stored sign-in is for this URL, this client and this authorization server."""
        if credential.url != self.url or (self.issuer is not None and credential.client.issuer != self.issuer):
            return False
        return self.client_id is None or credential.client.id == self.client_id
