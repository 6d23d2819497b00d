"""The paths for programs: metadata, tokens, registration and revocation. Hosts and origins are checked before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pointsman.catalog.identities import OAUTH_SCOPES
from pointsman.core import wire
from pointsman.core.model import Json
from pointsman.router.auth.server.requests import ClientError, RequestError, read_query
from pointsman.router.auth.server.server import REGISTER, REVOKE, TOKEN, AuthorizationServer
from pointsman.router.state.key_values import StateAwayError

AUTHORIZE_PATH: Final = "/oauth/authorize"
TOKEN_PATH: Final = "/oauth/token"  # noqa: S105 - a path
REGISTER_PATH: Final = "/oauth/register"
REVOKE_PATH: Final = "/oauth/revoke"
# Of RFC 8414 and of OpenID Connect. The issuer has no path, so that one address is right for each.
METADATA_PATHS: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
MAX_BODY_BYTES: Final = 16_384
_FORM: Final = "application/x-www-form-urlencoded"
_NO_STORE: Final = {"Cache-Control": "no-store", "Pragma": "no-cache", "X-Content-Type-Options": "nosniff"}

Endpoint = Callable[[Request], Awaitable[Response]]
Address = Callable[[Request], str | None]
"""The address that a request is counted for; None: it is one of many behind a proxy."""


def metadata(issuer: str) -> Json:
    """The authorization server's metadata (RFC 8414)."""
    return {
        "issuer": issuer,
        "authorization_endpoint": issuer + AUTHORIZE_PATH,
        "token_endpoint": issuer + TOKEN_PATH,
        "registration_endpoint": issuer + REGISTER_PATH,
        "revocation_endpoint": issuer + REVOKE_PATH,
        "scopes_supported": list(OAUTH_SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["S256"],
        "client_id_metadata_document_supported": True,
        "authorization_response_iss_parameter_supported": True,
    }


def oauth_endpoints(
    server: AuthorizationServer, address: Address, guarded: Callable[[Endpoint], Endpoint]
) -> list[Route]:
    """The routes of the endpoints, each behind `guarded`. Older clients look for `/register` without metadata."""

    async def show_metadata(request: Request) -> Response:
        return _json(metadata(server.issuer))

    async def token(request: Request) -> Response:
        fields = await _form(request)
        if fields.get("grant_type") == "authorization_code":
            return _json(await server.exchange(fields))
        if fields.get("grant_type") == "refresh_token":
            return _json(await server.refresh(fields))
        if not fields.get("grant_type"):
            raise ClientError("invalid_request", "`grant_type` is missing.")
        raise ClientError("unsupported_grant_type", "`grant_type` must be `authorization_code` or `refresh_token`.")

    async def revoke(request: Request) -> Response:
        fields = await _form(request)
        if "token" not in fields:
            raise ClientError("invalid_request", "`token` is missing.")
        await server.revoke_secret(fields["token"], fields.get("client_id"))
        return Response(headers=_NO_STORE)  # the same for a token that does not exist

    async def register(request: Request) -> Response:
        answer = server.registrar.register(await _json_body(request), address(request))
        server.registered(answer["client_name"])
        return _json(answer, 201)

    return [
        *(Route(path, guarded(show_metadata), methods=["GET"]) for path in METADATA_PATHS),
        Route(TOKEN_PATH, guarded(_answering(token, server, TOKEN)), methods=["POST"]),
        Route(REVOKE_PATH, guarded(_answering(revoke, server, REVOKE)), methods=["POST"]),
        *(
            Route(path, guarded(_answering(register, server, REGISTER)), methods=["POST"])
            for path in (REGISTER_PATH, "/register")
        ),
    ]


def _answering(endpoint: Endpoint, server: AuthorizationServer, method: str) -> Endpoint:
    """Answer errors as OAuth does. `server` has written the row of what it refused; the others are written here."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except ClientError as error:
            if method == REGISTER:
                server.refuse(REGISTER, error.code)
            answer = _json({"error": error.code, "error_description": str(error)}, error.status)
            if error.status == HTTPStatus.UNAUTHORIZED:
                answer.headers["WWW-Authenticate"] = "Basic"
            if error.retry_s is not None:
                answer.headers["Retry-After"] = str(error.retry_s)
            return answer
        except StateAwayError:
            text = "The state database cannot be used now. Try again later."
            return _json({"error": "temporarily_unavailable", "error_description": text}, 503)

    return answer


async def _form(request: Request) -> dict[str, str]:
    """Raises ClientError, ClientDisconnect."""
    if "authorization" in request.headers:
        raise ClientError("invalid_client", "Clients of this server have no secret: send `client_id` in the body.", 401)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise ClientError("invalid_request", f"The body must be {_FORM}.")
    body = await _body(request)
    try:
        return read_query(body.decode("ascii"))
    except (RequestError, ValueError) as error:
        text = str(error) if isinstance(error, RequestError) else "The body is not urlencoded."
        raise ClientError("invalid_request", text) from None


async def _json_body(request: Request) -> Json:
    """Raises ClientError, ClientDisconnect."""
    try:
        body = wire.decode(await _body(request))
    except wire.InvalidJsonError:
        raise ClientError("invalid_client_metadata", "The body is not JSON.") from None
    if not isinstance(body, dict):
        raise ClientError("invalid_client_metadata", "The body must be a JSON object.")
    return body


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ClientError("invalid_request", f"The body has more than {MAX_BODY_BYTES:,} bytes.", 413)
    return bytes(body)


def _json(content: Json, status: int = 200) -> Response:
    return Response(wire.encode(content), status, _NO_STORE, "application/json")
