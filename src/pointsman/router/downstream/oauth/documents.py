"""What servers and their authorization servers say about sign-in: challenges, metadata and scopes. Pure: no I/O.

Issuers and resources stay the strings that they were: comparisons are exact, and nothing is normalized.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from pointsman.core.escape import escaped
from pointsman.core.model import Json
from pointsman.router.auth.fetch import AddressRefusedError, FetchError, Reach, checked_url

PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource"
AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
OFFLINE_ACCESS = "offline_access"
# Why a sign-in ended, for the audit.
FAILED = "sign_in_failed"
ADDRESS_REFUSED = "address_refused"
OTHER_ISSUER = "other_issuer"
OTHER_RESOURCE = "other_resource"
_MAX_HEADER = 8192
_MAX_SCOPES = 200
_SHOWN_CHARS = 120
_SHOWN_SCOPES = 200
_MAX_QUERY = 50  # parameters that an authorization endpoint may have of its own
# RFC 6749, 3.1: a parameter must not be sent twice, and which of two counts differs from server to server.
_OURS = frozenset(
    {
        "response_type",
        "client_id",
        "redirect_uri",
        "state",
        "code_challenge",
        "code_challenge_method",
        "resource",
        "scope",
    }
)
# A parameter (name, and a quoted or plain value), or the scheme of those that follow.
_PARAMETER = re.compile(
    r'(?<![A-Za-z0-9_-])([A-Za-z0-9_-]{1,40})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))'
    r"|(?:^|,)\s*([A-Za-z0-9_-]{1,40})(?=[\s,]|$)(?!\s*=)"
)
_SCOPE = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]{1,256}")


class DocumentError(Exception):
    """A document cannot be used. `str(error)` says why, for people; `code` is in the audit."""

    def __init__(self, message: str, code: str = FAILED) -> None:
        super().__init__(message)
        self.code = code


class Challenge(Struct, frozen=True):
    """The `Bearer` challenge of a 401 or 403."""

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None


class ProtectedResource(Struct, frozen=True):
    """RFC 9728."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes: tuple[str, ...] | None


class AuthorizationServer(Struct, frozen=True):
    """RFC 8414 or OpenID Connect Discovery, as far as it is used."""

    issuer: str
    authorization_endpoint: str | None
    token_endpoint: str
    registration_endpoint: str | None
    revocation_endpoint: str | None
    scopes: tuple[str, ...] | None
    pkce: tuple[str, ...]
    token_auth: tuple[str, ...] | None
    names_issuer: bool  # its answers to authorization requests have `iss`
    client_documents: bool
    signatures: tuple[str, ...] = ()  # by which clients may prove themselves; none: it does not say


def read_challenge(header: str | None) -> Challenge:
    """Read `WWW-Authenticate`, of several lines joined by commas. Challenges that are not `Bearer` say nothing, nor do
    those that are too long; of several `Bearer` ones the first that says something counts."""
    if header is None or len(header) > _MAX_HEADER:
        return Challenge()
    scheme, given = "", dict[str, str]()
    for name, quoted, plain, named in _PARAMETER.findall(header):
        if named:
            scheme = named.lower()
        elif scheme == "bearer":
            given.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
    scope = given.get("scope")
    return Challenge(
        given.get("resource_metadata"), scope if scope and scopes_in(scope) else None, given.get("error") or None
    )


def scopes_in(text: str) -> tuple[str, ...]:
    """The scopes in a text with spaces between them, without what is none and without repetitions."""
    return tuple(dict.fromkeys(part for part in text.split(" ") if _SCOPE.fullmatch(part)))[:_MAX_SCOPES]


def lacking(wanted: str, granted: str) -> str:
    """The scopes of the first text that the second does not have."""
    known = scopes_in(granted)
    return " ".join(one for one in scopes_in(wanted) if one not in known)


def shown_scopes(text: str) -> str:
    """Scopes that a server has named, for people and models: short, and without what could end a quotation."""
    return escaped(text[:_SHOWN_SCOPES]).replace("`", "'")


def union(*scopes: str | None) -> str:
    """All scopes, those of the first text first."""
    return " ".join(scopes_in(" ".join(scope for scope in scopes if scope)))


def select_scope(
    configured: str | None,
    challenged: str | None,
    resource: ProtectedResource | None,
    server: AuthorizationServer,
    *,
    refreshes: bool,
) -> str | None:
    """What to ask for: as configured, as challenged, or all that the resource lists. None: send no `scope`.

    `refreshes`: the grant may have refresh tokens, for which some servers want `offline_access`.
    """
    selected = configured or challenged
    if selected is None and resource is not None and resource.scopes is not None:
        selected = " ".join(resource.scopes)
    if not selected:
        return None
    offered = refreshes and server.scopes is not None and OFFLINE_ACCESS in server.scopes
    return union(selected, OFFLINE_ACCESS) if offered and configured is None else union(selected)


# ---------------------------------------------------------------------- URLs


def canonical_resource(url: str) -> str:
    """The resource that a server's URL stands for: without fragment, scheme and host in lower case."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path, parts.query, ""))


def covers(resource: str, url: str) -> bool:
    """Whether `resource` is the server's URL or a parent of it: the same origin, and the path begins with its path."""
    named, own = urlsplit(resource), urlsplit(canonical_resource(url))
    if (named.scheme.lower(), named.netloc.lower()) != (own.scheme, own.netloc) or named.fragment:
        return False
    if named.query and named.query != own.query:
        return False
    return f"{own.path.rstrip('/')}/".startswith(f"{named.path.rstrip('/')}/")


def resource_metadata_urls(challenge: Challenge, url: str) -> list[str]:
    """Where the metadata of the resource may be, in the order to try."""
    parts = urlsplit(url)
    origin, path = f"{parts.scheme}://{_without_user(parts.netloc)}", parts.path.rstrip("/")
    urls = [challenge.resource_metadata] if challenge.resource_metadata else []
    if path:
        urls.append(f"{origin}{PROTECTED_RESOURCE}{parts.path}")
    urls.append(f"{origin}{PROTECTED_RESOURCE}")
    return list(dict.fromkeys(urls))


def server_metadata_urls(issuer: str) -> list[str]:
    """Where the metadata of an authorization server may be, in the order to try."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return [origin + AUTHORIZATION_SERVER, origin + OPENID]
    return [origin + AUTHORIZATION_SERVER + path, origin + OPENID + path, origin + path + OPENID]


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{_without_user(parts.netloc)}"


def _without_user(netloc: str) -> str:
    return netloc.rpartition("@")[2]


# ---------------------------------------------------------------------- documents


def read_resource(document: Json, url: str) -> ProtectedResource:
    """Raises DocumentError: it is not the metadata of this server, or has no authorization server."""
    resource = document.get("resource")
    if not isinstance(resource, str) or not covers(resource, url):
        raise DocumentError(
            f"its metadata names another resource than its URL ({shown(resource)}); set `url` to that address if it "
            "is the server's own, or ask its operator",
            OTHER_RESOURCE,
        )
    servers = _texts(document.get("authorization_servers"))
    if not servers:
        raise DocumentError("its metadata names no authorization server; set `oauth.issuer` if you know it")
    return ProtectedResource(resource, servers, _scopes(document.get("scopes_supported")))


def read_server(document: Json, issuer: str, reach: Reach) -> AuthorizationServer:
    """Raises DocumentError: it is the metadata of another issuer, or an address in it may not be used."""
    if document.get("issuer") != issuer:
        raise DocumentError(
            f"the metadata of its authorization server names another issuer ({shown(document.get('issuer'))}, not "
            f"{shown(issuer)}); if that is the right one, set `oauth.issuer` to it, or ask the server's operator",
            OTHER_ISSUER,
        )
    token_endpoint = _endpoint(document, "token_endpoint", reach)
    if token_endpoint is None:
        raise DocumentError("the metadata of its authorization server has no `token_endpoint`")
    methods = document.get("token_endpoint_auth_methods_supported")
    return AuthorizationServer(
        issuer,
        _authorization_endpoint(document, reach),
        token_endpoint,
        _endpoint(document, "registration_endpoint", reach),
        _endpoint(document, "revocation_endpoint", reach),
        _scopes(document.get("scopes_supported")),
        _texts(document.get("code_challenge_methods_supported")),
        _texts(methods) if isinstance(methods, list) else None,
        document.get("authorization_response_iss_parameter_supported") is True,
        document.get("client_id_metadata_document_supported") is True,
        _texts(document.get("token_endpoint_auth_signing_alg_values_supported")),
    )


def fetch_code(error: FetchError) -> str:
    """The code of a fetch that failed, for the audit."""
    return ADDRESS_REFUSED if isinstance(error, AddressRefusedError) else FAILED


def shown(value: object) -> str:
    """What a stranger named, short and without characters that a terminal obeys."""
    if not isinstance(value, str):
        return "none"
    text = escaped(value[:_SHOWN_CHARS]).replace("`", "'")
    return f"`{text}...`" if len(value) > _SHOWN_CHARS else f"`{text}`"


def _endpoint(document: Json, name: str, reach: Reach) -> str | None:
    given = document.get(name)
    if given is None:
        return None
    try:
        url = checked_url(given if isinstance(given, str) else "", reach)
    except FetchError as error:
        raise DocumentError(
            f"the `{name}` of its authorization server ({shown(given)}) cannot be used: {error}; ask its operator",
            fetch_code(error),
        ) from None
    if url.fragment:
        raise DocumentError(f"the `{name}` of its authorization server has a fragment")
    return str(given)


def _authorization_endpoint(document: Json, reach: Reach) -> str | None:
    name = "authorization_endpoint"
    endpoint = _endpoint(document, name, reach)
    if endpoint is None:
        return None
    names = _query_names(endpoint)
    if names is None:
        raise DocumentError(f"the `{name}` of its authorization server has more than {_MAX_QUERY} parameters")
    if repeated := sorted(names & _OURS):
        listed = ", ".join(f"`{one}`" for one in repeated)
        raise DocumentError(
            f"the `{name}` of its authorization server sets what the gateway itself must set ({listed}), so that it "
            "would be sent twice; ask its operator"
        )
    return endpoint


def _query_names(url: str) -> set[str] | None:
    """The names of the parameters in a URL; None: there are too many."""
    try:
        given = parse_qsl(urlsplit(url).query, keep_blank_values=True, max_num_fields=_MAX_QUERY)
    except ValueError:
        return None
    return {name for name, _ in given}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str))[:_MAX_SCOPES] if isinstance(value, list) else ()


def _scopes(value: object) -> tuple[str, ...] | None:
    return scopes_in(" ".join(_texts(value))) if isinstance(value, list) else None


def authorization_url(endpoint: str, parameters: Sequence[tuple[str, str]]) -> str:
    """The URL to show to a person: the endpoint as it is, with our parameters after its own.

    A parameter that the endpoint has itself, such as `prompt`, is not repeated.
    """
    own = _query_names(endpoint) or set()
    joint = "&" if urlsplit(endpoint).query else "?"
    return f"{endpoint}{joint}{urlencode([one for one in parameters if one[0] not in own])}"
