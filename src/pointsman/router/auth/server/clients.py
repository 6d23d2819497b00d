"""Who a client is: by the metadata document at its id, or by what it registered.

A registration is not stored: the client's id is the registration, sealed with the gateway's keys. So a flood of them
takes no memory. It expires after a day, unless the owner has consented to a request of it: then the store keeps it.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from pointsman.core.model import Json, WallClock
from pointsman.core.sealing import SealError, Sealing
from pointsman.providers.visible import visible_line
from pointsman.router.audit.row_rate import TokenBucket
from pointsman.router.auth.fetch import FetchError, Reach, checked_url, fetch_json
from pointsman.router.auth.server import redirects
from pointsman.router.auth.server.requests import Client, ClientError, RequestError
from pointsman.router.auth.server.store import Registration

MAX_NAME_CHARS: Final = 80
MAX_REDIRECTS: Final = 10
MAX_ID_CHARS: Final = 4096
MAX_DOCUMENTS: Final = 64
DOCUMENT_S: Final = 300.0
UNUSED_S: Final = 86_400.0
REGISTRATIONS: Final = 20, 0.1  # in all: a burst, and then so many a second
ADDRESS_REGISTRATIONS: Final = (
    10,
    1 / 60,
)  # of one address, where all clients of a machine may come from; some register twice
MAX_ADDRESSES: Final = 1000
_REGISTERED: Final = "registered."
_DOCUMENT = "The metadata document of the client cannot be used"


class Registrar:
    """Registers clients (RFC 7591), within a rate, and knows them by their ids."""

    def __init__(self, keys: Sequence[str], clock: WallClock = time.time) -> None:
        self._sealing = Sealing(keys)
        self._clock = clock
        self._all = TokenBucket(REGISTRATIONS[0], clock())
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()

    def register(self, asked: Json, address: str | None) -> Json:
        """Return the answer to a registration. `address`: None is not limited by itself. Raises ClientError."""
        registration = Registration(_name(asked), _redirect_uris(asked), self._clock())
        self._count(address)
        client_id = _REGISTERED + self._sealing.seal(msgspec.json.encode(registration))
        return {
            "client_id": client_id,
            "client_id_issued_at": int(registration.since),
            "client_name": registration.name,
            "redirect_uris": list(registration.redirect_uris),
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }

    def registration(self, client_id: str) -> Registration | None:
        """What a client registered, however long ago; None: the id is not one of ours."""
        if not client_id.startswith(_REGISTERED) or len(client_id) > MAX_ID_CHARS:
            return None
        try:
            return msgspec.json.decode(self._sealing.unseal(client_id.removeprefix(_REGISTERED)), type=Registration)
        except (SealError, msgspec.MsgspecError):
            return None

    def is_fresh(self, registration: Registration) -> bool:
        return self._clock() < registration.since + UNUSED_S

    def _count(self, address: str | None) -> None:
        """Raises ClientError: there were too many."""
        now = self._clock()
        buckets: list[tuple[TokenBucket, tuple[float, float]]] = [(self._all, REGISTRATIONS)]
        if address is not None:
            bucket = self._addresses.setdefault(address, TokenBucket(ADDRESS_REGISTRATIONS[0], now))
            self._addresses.move_to_end(address)
            if len(self._addresses) > MAX_ADDRESSES:
                self._addresses.popitem(last=False)
            buckets.append((bucket, ADDRESS_REGISTRATIONS))
        waits_s = [(1 - bucket.fill(burst, per_s, now)) / per_s for bucket, (burst, per_s) in buckets]
        if max(waits_s) > 0:
            wait_s = math.ceil(max(waits_s))
            text = (
                f"Too many clients have registered. Try again in {wait_s} s; a client that is known need not register."
            )
            raise ClientError("slow_down", text, 429, retry_s=wait_s)
        for bucket, _ in buckets:
            bucket.left -= 1


class ClientDocuments:
    """Client-id metadata documents, fetched for the signed-in owner only, and kept for minutes."""

    def __init__(self, public_url: Callable[[], str], clock: WallClock = time.time) -> None:
        self._public_url = public_url
        self._clock = clock
        self._kept: OrderedDict[str, tuple[Client, float]] = OrderedDict()

    async def client(self, client_id: str) -> Client:
        """Raises RequestError."""
        kept = self._kept.get(client_id)
        if kept is not None and self._clock() < kept[1]:
            return kept[0]
        client = await self._fetched(client_id)
        self._kept[client_id] = client, self._clock() + DOCUMENT_S
        if len(self._kept) > MAX_DOCUMENTS:
            self._kept.popitem(last=False)
        return client

    async def _fetched(self, client_id: str) -> Client:
        # A gateway that is itself reached at a loopback address is for this machine, and so are its clients.
        own = Reach.of(self._public_url())
        reach = own if own.loopback else Reach()
        try:
            url = checked_url(client_id, reach)
            if url.path in ("", "/") or "#" in client_id or str(url) != client_id:
                raise RequestError(f"{_DOCUMENT}: its address must be a plain https URL with a path.")
            answer = await fetch_json(client_id, reach)
        except FetchError as error:
            raise RequestError(f"{_DOCUMENT}: {error}.") from None
        if not answer.ok:
            raise RequestError(f"{_DOCUMENT}: its host answered HTTP {answer.status}.")
        if answer.document.get("client_id") != client_id:
            raise RequestError(f"{_DOCUMENT}: it names another `client_id` than its own address.")
        try:
            return _described(client_id, url.host or "", answer.document)
        except ClientError as error:
            raise RequestError(f"{_DOCUMENT}: {error}") from None


def is_document(client_id: str) -> bool:
    return client_id.startswith(("https://", "http://"))


def _described(client_id: str, host: str, document: Json) -> Client:
    """The client of a document. Raises ClientError."""
    if document.get("token_endpoint_auth_method", "none") != "none":
        raise ClientError("invalid_client_metadata", "Its `token_endpoint_auth_method` must be `none` here.")
    return Client(client_id, _name(document), _redirect_uris(document), host)


def _name(asked: Json) -> str:
    name = asked.get("client_name", "")
    if not isinstance(name, str):
        raise ClientError("invalid_client_metadata", "`client_name` must be a string.")
    return visible_line(name, MAX_NAME_CHARS).strip()


def _redirect_uris(asked: Json) -> tuple[str, ...]:
    """Raises ClientError. Also checks what else makes a client one that cannot sign in here."""
    if asked.get("token_endpoint_auth_method", "none") not in ("none", "client_secret_post", "client_secret_basic"):
        raise ClientError("invalid_client_metadata", "`token_endpoint_auth_method` must be `none`.")
    grants, responses = asked.get("grant_types", ["authorization_code"]), asked.get("response_types", ["code"])
    if not isinstance(grants, list) or "authorization_code" not in grants:
        raise ClientError("invalid_client_metadata", "`grant_types` must have `authorization_code`.")
    if not isinstance(responses, list) or "code" not in responses:
        raise ClientError("invalid_client_metadata", "`response_types` must have `code`.")
    uris = asked.get("redirect_uris")
    if (
        not isinstance(uris, list)
        or not 0 < len(uris) <= MAX_REDIRECTS
        or not all(isinstance(one, str) for one in uris)
    ):
        raise ClientError("invalid_redirect_uri", f"`redirect_uris` must be a list of 1 to {MAX_REDIRECTS} strings.")
    if not all(map(redirects.is_allowed, uris)) or sum(map(len, uris)) > 4 * redirects.MAX_URI_CHARS:
        raise ClientError(
            "invalid_redirect_uri",
            "A redirect URI is an https URL, an http URL of this machine (127.0.0.1, [::1] or localhost), or begins "
            f"with a scheme of the program's own, with a dot; without a fragment, and up to {redirects.MAX_URI_CHARS} "
            "characters.",
        )
    return tuple(uris)
