"""The HTTP routes of the search service."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pointsman import __version__
from pointsman.core import wire
from pointsman.core.model import Json
from pointsman.router.front.http.headers import Head, HostRules, check_content_type, checked_head
from pointsman.router.front.http.http_request import read_body
from pointsman.router.front.http.responses import ClientDisconnectedError, HttpError, sorted_allow
from pointsman.router.observe.metrics import CONTENT_TYPE
from pointsman.router.search_api import openapi
from pointsman.router.search_api.auth import authenticate
from pointsman.router.search_api.errors import ApiError, from_http_error, internal, unsupported_encoding
from pointsman.router.search_api.service import SearchService, answer
from pointsman.router.serving.first_token import FirstToken

logger = logging.getLogger(__name__)

Handler = Callable[[Request, Head], Awaitable[Response]]

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class SearchApp:
    """The ASGI app. Set `open` while it accepts requests, and `hosts` when the configuration changes."""

    def __init__(
        self,
        service: SearchService,
        hosts: HostRules,
        faults: Callable[[], dict[str, str]],
        first_token: FirstToken | None = None,
    ) -> None:
        self.open = False
        self.hosts = hosts
        self._service = service
        self._faults = faults
        self._first_token = first_token
        routes = [
            Route("/catalog/search", self._endpoint(self._search), methods=["POST"]),
            Route("/health", self._endpoint(self._health), methods=["GET"]),
            Route("/metrics", self._endpoint(self._metrics), methods=["GET"]),
            Route("/openapi.json", self._endpoint(self._openapi), methods=["GET"]),
        ]
        self.asgi = Starlette(routes=routes, exception_handlers={HTTPException: _not_found})
        self.asgi.router.redirect_slashes = False  # a redirect would reflect the Host of the request

    async def _search(self, request: Request, head: Head) -> Response:
        token_id = self._authenticate(head)
        check_content_type(head)
        gzipped = _is_gzipped(head)
        # Take a slot before reading the body, which bounds the memory of bodies.
        await self._service.slots.take(token_id)
        try:
            body = await read_body(head, request.receive, self._service.settings.limits.body_bytes)
            self._authenticate(head)  # again: the token may have been revoked meanwhile
        except BaseException:
            self._service.slots.give_back(token_id)
            raise
        ranking = await self._service.search(token_id, body, gzipped=gzipped)
        return _json(answer(ranking))

    async def _health(self, request: Request, head: Head) -> Response:
        """Without a token, report only whether the service is ready."""
        report: Json = {"ready": self.open}
        if b"authorization" in head:
            self._authenticate(head)
            report |= {"version": __version__, "provider": self._service.settings.provider}
            report |= self._faults()
        return _json(report, 200 if self.open else 503)

    def _authenticate(self, head: Head) -> str:
        """Return the id of the token. Raises HttpError 400, ApiError 401, 403."""
        rights = self._service.rights
        token_id = authenticate(rights, head, time.time())
        if self._first_token is not None and self._first_token.used(rights.config.tokens[token_id].sha256):
            self._first_token = None
        return token_id

    async def _metrics(self, request: Request, head: Head) -> Response:
        text = await asyncio.to_thread(self._service.metrics.render)
        return Response(text, media_type=CONTENT_TYPE)

    async def _openapi(self, request: Request, head: Head) -> Response:
        return _json(openapi.document(self._service.settings.limits))

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            response = await self._handle(handler, request)
            response.headers["X-Request-Id"] = request_id_of(request)
            if request.method == "POST":
                self._service.metrics.answered(response.status_code)
            return response

        return endpoint

    async def _handle(self, handler: Handler, request: Request) -> Response:
        try:
            return await handler(request, checked_head(request.headers.raw, self.hosts))
        except ApiError as refusal:
            return _error_response(refusal)
        except HttpError as refusal:
            return _error_response(from_http_error(refusal))
        except ClientDisconnectedError:
            return Response(status_code=400)  # not delivered
        except Exception:
            logger.exception("request %s failed", request_id_of(request))
            return _error_response(internal())


def request_id_of(request: Request) -> str:
    """Return the sender's X-Request-Id if it is valid, else a new one; used in headers and logs."""
    if "request_id" not in request.scope:
        given = request.headers.get("x-request-id", "")
        request.scope["request_id"] = given if _REQUEST_ID.fullmatch(given) else uuid4().hex
    request_id: str = request.scope["request_id"]
    return request_id


def _is_gzipped(head: Head) -> bool:
    encoding = head.get(b"content-encoding", b"identity").strip().lower()
    if encoding not in (b"gzip", b"identity", b""):
        raise unsupported_encoding()
    return encoding == b"gzip"


def _json(content: Json, status: int = 200) -> Response:
    return Response(wire.encode(content), status, media_type="application/json")


def _error_response(refusal: ApiError) -> Response:
    headers = {name.decode(): value.decode() for name, value in refusal.headers}
    return Response(refusal.body, refusal.status, headers, media_type="application/json")


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allow = tuple((name.lower().encode(), value.encode()) for name, value in sorted_allow(error.headers or {}).items())
    if error.status_code == 405:
        refusal = ApiError(405, "Method not allowed. The Allow header names the allowed one.", headers=allow)
    else:
        refusal = ApiError(404, "Not found. Search with POST /catalog/search; see /openapi.json.")
    response = _error_response(refusal)
    response.headers["X-Request-Id"] = request_id_of(request)
    return response
