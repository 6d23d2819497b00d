"""Reads and authenticates an HTTP request: checked headers, a bounded body, one JSON-RPC message, the caller."""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.types import Receive, Send

from pointsman.catalog.identities import is_identity
from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.core.model import Caller, Json
from pointsman.core.sdk import CLIENT_INFO_META_KEY
from pointsman.core.seams import PARSE_ERROR, Gateway
from pointsman.core.wire import InvalidJsonError, decode
from pointsman.router.front.http.authentication import (
    Claims,
    add_meta_claims,
    authenticate,
    check_scope,
    read_claims,
    verify,
)
from pointsman.router.front.http.headers import Head, HostRules, check_content_type, checked_head
from pointsman.router.front.http.responses import (
    ClientDisconnectedError,
    HttpError,
    Respond,
    body_too_large,
    not_from_a_replica,
    overloaded,
    too_many_large_bodies,
    too_many_requests,
)
from pointsman.router.front.methods import LEGACY_METHODS, client_name
from pointsman.router.serving.in_flight import LARGE_BYTES, InFlight, Lease

if TYPE_CHECKING:
    from pointsman.router.auth.sign_in import SignIn
    from pointsman.router.peers.peers import Peers

_READ_FOR_AUDIT = 64 << 10  # bytes of a refused request's body, to record what was attempted
_LONGEST_LENGTH = 18  # digits of Content-Length; more is too large in any case
_ID_TYPES = (int, str)  # compared with `type(...)`, because True is an int
_META_TYPES = (dict, type(None))

_CARRIED_HOST = HostRules(frozenset({b"pointsman"}), frozenset())  # its first replica has checked the client's

Reserve = Callable[[int], None]
"""Reserves memory for a large body of that size before it is read. Raises HttpError 503."""


class HttpRequest(Struct, eq=False):  # a struct, because each call makes one
    """One HTTP request and what has been read of it so far."""

    verb: str
    path: str
    headers: list[tuple[bytes, bytes]]
    receive: Receive
    send: Send
    respond: Respond  # writes a whole response
    in_flight: InFlight
    connection: Any = None  # the `GuardedProtocol`; None under another server
    small_body: Callable[[int], bytes | None] | None = None  # a body up to that size, if it has arrived
    path_project: str | None = None
    query: bytes = b""
    lease: Lease | None = None  # of a large body, released when the request ends
    token_id: str = ""  # of the caller by its headers; unauthenticated requests count together
    head: Head = {}  # `headers` by name; checked by `RequestReader.read_head`
    token: str | None = None  # for the audit of a refusal
    project: str | None = None  # in header or path
    message: Json | None = None
    body_read: bool = False
    caller: Caller | None = None  # if it is known from the connection's last request
    # Only among replicas:
    carried: bytes | None = None  # the digest that the body must have, if another replica has sent this on
    body: bytes = b""  # as it was received, to send it on

    def __repr__(self) -> str:
        return f"HttpRequest({self.verb} {self.path})"  # without the token

    def reserve(self, size: int) -> None:
        """Fits `Reserve`."""
        self.lease = self.in_flight.request(self.token_id, size)
        if self.lease is None:
            raise too_many_large_bodies()


class Identity(Struct, eq=False):
    """Who sent the last request of a connection: the next one with the same header need not be authenticated again."""

    authorization: bytes
    claims: Claims  # of that header alone
    caller: Caller
    config: GatewayConfig  # that they hold for
    head: Head | None = None  # of the last request, checked by `rules`; a call with the same bytes has this very dict
    rules: HostRules | None = None


class RequestReader:
    """Reads requests for every endpoint of the front, with the limits that hold now."""

    def __init__(self, gateway: Gateway, current: CurrentConfig, hosts: HostRules, full: Callable[[], bool]) -> None:
        self._gateway = gateway
        self._current = current
        self._full = full
        self.hosts = hosts
        self.draining = False
        self.peers: Peers | None = None
        self.sign_in: SignIn | None = None  # None: there are only tokens of the YAML

    def read_head(self, request: HttpRequest) -> Claims:
        """Check the headers and read the claims in headers and path. Raises HttpError 400, 403, 421, 503."""
        rules = self.hosts if request.carried is None else _CARRIED_HOST
        connection = request.connection
        known: Identity | None = connection.identity if connection is not None else None
        repeated = known is not None and request.head is known.head and rules is known.rules
        if not repeated:
            request.head = checked_head(request.headers, rules, request.head)
        if self.draining:
            raise overloaded("The gateway is shutting down. Try again in a moment.")
        if known is not None and (repeated or _claims_the_same(known, request)) and self._still_holds(known):
            claims, request.caller = known.claims, known.caller
            if not repeated and connection is not None:
                # A head that the connection does not keep cannot come again, and may be large.
                known.head = request.head if connection.keeps(request.head) else None
                known.rules = rules
        else:
            claims = read_claims(request.head, request.path_project)
        request.token, request.project = claims.token, claims.project
        return claims

    def _still_holds(self, known: Identity) -> bool:
        return known.config is self._current.config and self._gateway.still_valid(known.caller)

    async def read_message(self, request: HttpRequest, claims: Claims) -> tuple[Json, Caller]:
        """Read and authenticate the message of a POST. Raises HttpError, ClientDisconnectedError."""
        caller = request.caller or self._authenticate_by_headers(claims, request)
        if request.head.get(b"content-type") != b"application/json":  # exactly that in nearly all requests
            check_content_type(request.head)
        request.body_read = True
        request.token_id = caller.token_id if caller is not None else ""
        limit = self._current.limits.body_bytes
        body = request.small_body(limit) if request.small_body is not None else None
        if body is None:
            body = await read_body(request.head, request.receive, limit, request.reserve)
        if self.peers is not None:
            _keep_body(request, body, self.peers)
        try:
            message = request.message = parse_message(body)
        except HttpError:
            self._require_caller(caller, claims)
            raise
        params = message.get("params")
        meta = params.get("_meta") if params else None
        if meta and ("token" in meta or "projectId" in meta):
            claims, caller = await self._add_meta_claims(claims, meta, request), None
        if caller is None:
            caller = authenticate(self._gateway, claims)
        if request.connection is not None:
            request.connection.token_id = caller.token_id
        if self.sign_in is not None:
            check_scope(self.sign_in, caller, message)
        if self._full() and message.get("method") in LEGACY_METHODS:
            raise too_many_requests()
        return message, caller

    async def record_refusal(self, request: HttpRequest, error: HttpError) -> None:
        """Record a refused POST in the audit. Reads the body if it was not read. Raises ClientDisconnectedError."""
        if not request.body_read:
            request.message = await _read_for_audit(request)
        message = request.message or {}
        params, method = message.get("params") or {}, message.get("method")
        info = params.get("clientInfo") or (params.get("_meta") or {}).get(CLIENT_INFO_META_KEY)
        self._gateway.refused(error.audit_code, request.token, method, params, client_name(info), error.person)

    def _require_caller(self, caller: Caller | None, claims: Claims) -> None:
        """401 comes first: without a token no details are given. Raises HttpError 401, 403."""
        if caller is None:
            authenticate(self._gateway, claims)

    async def _add_meta_claims(self, claims: Claims, meta: Json, request: HttpRequest) -> Claims:
        """Raises HttpError."""
        claims = add_meta_claims(claims, meta)
        request.token = claims.token
        if self.sign_in is not None:
            await verify(self.sign_in, claims.token)
        return claims

    def _authenticate_by_headers(self, claims: Claims, request: HttpRequest) -> Caller | None:
        """Return None if only `_meta` can complete the claims. Raises HttpError 401, 403."""
        if claims.token is None:
            return None
        try:
            caller = authenticate(self._gateway, claims)
        except HttpError as error:
            if error.status == 403 and not claims.project_stated:
                return None
            raise
        if self.sign_in is not None and is_identity(caller.token_id):
            return caller  # it may expire while another token of the same person is valid, so it is looked up each time
        if request.connection is not None and not claims.project_stated:
            header = request.head[b"authorization"]
            request.connection.identity = Identity(header, claims, caller, self._current.config)
        return caller


def _claims_the_same(known: Identity, request: HttpRequest) -> bool:
    """Whether the headers claim the same as those of the connection's last request."""
    return (
        request.path_project is None
        and b"x-pointsman-project" not in request.head
        and compare_digest(request.head.get(b"authorization", b""), known.authorization)
    )


def _keep_body(request: HttpRequest, body: bytes, peers: Peers) -> None:
    """Keep the body to send it on; check one that was sent on by another replica. Raises HttpError 403."""
    request.body = body
    if request.carried is not None and not peers.is_body(body, request.carried):
        raise not_from_a_replica()


async def read_body(head: Head, receive: Receive, limit: int, reserve: Reserve | None = None) -> bytes:
    """Read a body of at most `limit` bytes; `protocol.py` limits its time.

    Raises HttpError 413, ClientDisconnectedError, and what `reserve` raises.
    """
    length = head.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > _LONGEST_LENGTH or (expected := int(length)) > limit:
        raise body_too_large(limit)
    if expected > LARGE_BYTES and reserve is not None:
        reserve(expected)
        reserve = None
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise body_too_large(limit)
        return body
    pieces: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise body_too_large(limit)
        if size > LARGE_BYTES and reserve is not None:
            reserve(limit)  # a chunked body does not state its length
            reserve = None
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()
    raise ClientDisconnectedError


def parse_message(body: bytes) -> Json:
    """Parse one JSON-RPC request, notification or response. Raises HttpError 400.

    Checked by hand, so that no library's error text reaches the client.
    """
    try:
        message = decode(body)
    except InvalidJsonError:
        raise HttpError(
            400, "Parse error: the body is not JSON. Send one JSON-RPC message.", code=PARSE_ERROR
        ) from None
    if type(message) is not dict or message.get("jsonrpc") != "2.0":
        raise HttpError(400, 'The body must be one JSON-RPC message, an object with "jsonrpc": "2.0".')
    method = message.get("method")
    if type(method) is not str or not method:
        _check_response(message)
        return message
    if "id" in message and type(message["id"]) not in _ID_TYPES:
        raise HttpError(400, "`id` must be a string or an integer.")
    if "result" in message or "error" in message:
        raise HttpError(400, "A message with `method` must not have `result` or `error`.")
    params = message.get("params")
    if params is None:
        return message
    if type(params) is not dict:
        raise HttpError(400, "`params` must be an object.")
    if type(params.get("_meta")) not in _META_TYPES:
        raise HttpError(400, "`params._meta` must be an object.")
    return message


def echoed_id(message: Any) -> Any:
    """Return the id to answer under, or None if the message has no valid one."""
    request_id = message.get("id") if type(message) is dict else None
    return request_id if type(request_id) in _ID_TYPES else None


async def _read_for_audit(request: HttpRequest) -> Json | None:
    try:
        # As in `read_message`; the length in the head is that of an earlier call, if this one repeats its head.
        body = request.small_body(_READ_FOR_AUDIT) if request.small_body is not None else None
        if body is None:
            body = await read_body(request.head, request.receive, _READ_FOR_AUDIT)
        message = parse_message(body)
        meta = (message.get("params") or {}).get("_meta")
        add_meta_claims(Claims(None, None, project_stated=False), meta or {})  # removes the secrets
    except HttpError:
        return None
    return message


def _check_response(message: Json) -> None:
    if "method" in message:
        raise HttpError(400, "`method` must be a string.")
    if ("result" in message) == ("error" in message):
        raise HttpError(400, "The message must be a request (`method`) or a response (`result` or `error`).")
    if type(message.get("id")) not in _ID_TYPES:
        raise HttpError(400, "`id` must be a string or an integer.")
