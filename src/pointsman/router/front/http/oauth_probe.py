"""The OAuth paths that clients probe after a 401: a 404 whose `error_description` says what to do instead.

Several clients show the person only that sentence.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

_ANSWER = {
    "error": "invalid_request",
    "error_description": (
        "This gateway does not use OAuth. Create a token with "
        "`pointsman token create NAME --project '*' --server '*'` and let your client send it "
        "in the header `Authorization: Bearer TOKEN`."
    ),
}
_PATHS = ("/register", "/.well-known/oauth-{rest:path}", "/.well-known/openid-configuration{rest:path}")
_VERBS = ["GET", "POST", "OPTIONS"]


async def oauth_probe(request: Request) -> JSONResponse:
    return JSONResponse(_ANSWER, status_code=404)


def oauth_routes() -> list[Route]:
    return [Route(path, oauth_probe, methods=_VERBS) for path in _PATHS]
