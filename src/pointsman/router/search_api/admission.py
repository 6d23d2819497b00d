"""Who may search: a token of the configuration, for a project that it lists."""

from __future__ import annotations

from pointsman.catalog.rights import RightsIndex
from pointsman.config.model import ANY
from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.router.front.http.authentication import read_claims
from pointsman.router.front.http.headers import Head
from pointsman.router.search_api.refusals import ApiError, unauthorized

_MAKE_ONE = "Whoever runs this service makes one with `pointsman token create NAME --project P`."


def admitted(rights: RightsIndex, head: Head, now: float) -> str:
    """The id of the token. Raises HttpError 400, ApiError 401, 403."""
    claims = read_claims(head, None)
    try:
        return rights.identify(claims.token, claims.project, now).token_id
    except UnauthorizedError:
        raise unauthorized(_why_unknown(rights, claims.token)) from None
    except ForbiddenError:
        token_id = rights.token_id(claims.token or "")
        assert token_id is not None  # or it would not have come that far
        if ANY in rights.config.tokens[token_id].projects:
            return token_id  # projects are the gateways' affair: "*" means whatever they are called
        raise ApiError(403, _why_denied(claims.project)) from None


def _why_unknown(rights: RightsIndex, secret: str | None) -> str:
    if not secret:
        return f"A token is needed: send it as `Authorization: Bearer <token>`. {_MAKE_ONE}"
    if rights.token_id(secret) is None:
        return f"This token is not known here: it may be misspelt or revoked. {_MAKE_ONE}"
    return f"This token has expired. {_MAKE_ONE}"


def _why_denied(project: str | None) -> str:
    if project is None:
        return f"This token needs a project: name one with `X-Pointsman-Project: <project>`. {_MAKE_ONE}"
    return (
        "This token may not search for this project, or there is none of that name: check `X-Pointsman-Project`. "
        + _MAKE_ONE
    )
