"""Authenticates searches: a configured token, for a project that it lists."""

from __future__ import annotations

from pointsman.catalog.rights import RightsIndex
from pointsman.config.model import ANY
from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.router.front.http.authentication import read_claims
from pointsman.router.front.http.headers import Head
from pointsman.router.search_api.errors import ApiError, unauthorized

_NEXT_STEP = "The operator can create one with `pointsman token create NAME --project P`."


def authenticate(rights: RightsIndex, head: Head, now: float) -> str:
    """Return the id of the token. Raises HttpError 400, ApiError 401, 403."""
    claims = read_claims(head, None)
    try:
        return rights.identify(claims.token, claims.project, now).token_id
    except UnauthorizedError:
        raise unauthorized(_why_unknown(rights, claims.token)) from None
    except ForbiddenError:
        token_id = rights.tokens.find(claims.token or "")
        assert token_id is not None  # else it would be unauthorized
        if ANY in rights.config.tokens[token_id].projects:
            return token_id  # "*" also covers projects that only a gateway configures
        raise ApiError(403, _why_denied(claims.project)) from None


def _why_unknown(rights: RightsIndex, secret: str | None) -> str:
    if not secret:
        return f"Missing token. Send `Authorization: Bearer <token>`. {_NEXT_STEP}"
    if rights.tokens.find(secret) is None:
        return f"Unknown token: misspelt, or revoked. {_NEXT_STEP}"
    return f"This token has expired. {_NEXT_STEP}"


def _why_denied(project: str | None) -> str:
    if project is None:
        return f"This token requires a project. Send `X-Pointsman-Project: <project>`. {_NEXT_STEP}"
    return (
        "This token may not search for this project, or the project does not exist. Check `X-Pointsman-Project`. "
        + _NEXT_STEP
    )
