"""Authenticates a request: reads its token and project from headers, path or `_meta`, and maps a failure to 401 or 403.

The token itself is checked in `catalog/tokens.py`, what it may use in `catalog/rights.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pointsman.catalog.rights import NO_PROJECT
from pointsman.config.model import UNASSIGNED
from pointsman.core.errors import ForbiddenError, RefusedError, ScopeError, SignInUnavailableError, UnauthorizedError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import Gateway
from pointsman.router.front.http.headers import Head
from pointsman.router.front.http.responses import (
    HttpError,
    forbidden,
    insufficient_scope,
    sign_in_unavailable,
    unauthorized,
)

if TYPE_CHECKING:
    from pointsman.router.auth.sign_in import SignIn

_BEARER: Final = b"bearer"


class Claims(NamedTuple):
    """The identity that a request claims, not verified yet."""

    token: str | None
    project: str | None  # None: unassigned
    project_stated: bool  # False: neither header nor path names one, and `_meta` still may


def authenticate(gateway: Gateway, claims: Claims) -> Caller:
    """Raises HttpError 401, 403."""
    project = claims.project
    if project is None and claims.project_stated:
        project = UNASSIGNED  # stated, so that no other is chosen for the token
    try:
        return gateway.identify(claims.token, project)
    except UnauthorizedError as error:
        raise unauthorized(str(error)) from None
    except ForbiddenError as error:
        raise forbidden(str(error)) from None


async def verify(sign_in: SignIn, token: str | None) -> None:
    """Verify an access token that is not known yet, so that `authenticate` knows it. Raises HttpError 401, 403, 503."""
    try:
        await sign_in.verify(token)
    except RefusedError as error:
        refusal = _refusal(error)
        refusal.person = error.person
        raise refusal from None


def _refusal(error: RefusedError) -> HttpError:
    match error:
        case ScopeError():
            return insufficient_scope(error)
        case ForbiddenError():
            return forbidden(str(error))
        case SignInUnavailableError():
            return sign_in_unavailable(error)
    return unauthorized(str(error), error.audit_code)


def check_scope(sign_in: SignIn, caller: Caller, message: Json) -> None:
    """Raises HttpError 403: the scope of the caller's access token does not cover the request."""
    try:
        sign_in.check_scope(caller, message)
    except ScopeError as error:
        raise insufficient_scope(error) from None


def read_claims(head: Head, path_project: str | None) -> Claims:
    """Read the claims in headers and path. Raises HttpError 400, 403."""
    token: str | None = None
    if b"authorization" in head:
        scheme, _, secret = head[b"authorization"].partition(b" ")
        token = secret.strip().decode("latin-1") if scheme.lower() == _BEARER else ""  # which matches no token
    header_project = head.get(b"x-pointsman-project")
    if header_project is None and path_project is None:
        return Claims(token, None, project_stated=False)
    if header_project is None:
        assert path_project is not None
        return Claims(token, _project(path_project), project_stated=True)
    project = _project(header_project.decode("latin-1"))
    if path_project is not None and _project(path_project) != project:
        raise forbidden("The path and the header X-Pointsman-Project name two different projects. Name one.")
    return Claims(token, project, project_stated=True)


def add_meta_claims(claims: Claims, meta: Json) -> Claims:
    """Add `_meta.token` and `_meta.projectId`, and remove them from `meta`. Raises HttpError 400, 403."""
    token, project, stated = claims.token, claims.project, claims.project_stated
    if "token" in meta:
        named = _string(meta.pop("token"), "token")
        if token is not None and named != token:
            raise forbidden("The Authorization header and `_meta.token` are two different tokens. Send one.")
        token = named
    if "projectId" in meta:
        stated_project = meta.pop("projectId")
        named_project = None if stated_project is None else _project(_string(stated_project, "projectId"))
        if stated and named_project != project:
            raise forbidden("`_meta.projectId` and the header or path name two different projects. Name one.")
        project, stated = named_project, True
    return Claims(token, project, stated)


def _project(text: str) -> str | None:
    return None if text in NO_PROJECT else text


def _string(value: object, key: str) -> str:
    if type(value) is not str:
        raise HttpError(400, f"`_meta.{key}` must be a string.")
    return value
