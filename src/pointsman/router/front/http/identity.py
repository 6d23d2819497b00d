"""Who calls: the token and the project, from wherever a request states them. Two that differ are refused."""

from __future__ import annotations

from typing import Final, NamedTuple

from pointsman.catalog.rights import NO_PROJECT
from pointsman.core.model import Json
from pointsman.router.front.http.headers import Head
from pointsman.router.front.http.refusal import HttpError, denied

_BEARER: Final = b"bearer"


class Claims(NamedTuple):
    """What a request says of its sender. Nothing of it is proven yet."""

    token: str | None
    project: str | None  # None: unassigned
    project_stated: bool  # False: nothing was said, and `_meta` may still name one


def claims_of(head: Head, path_project: str | None) -> Claims:
    """From the headers and the path. Raises HttpError 400, 403."""
    authorization = head.get(b"authorization")
    token = None if authorization is None else _bearer(authorization)
    header_project = head.get(b"x-pointsman-project")
    if header_project is None and path_project is None:
        return Claims(token, None, project_stated=False)
    if header_project is None:
        assert path_project is not None
        return Claims(token, _project(path_project), project_stated=True)
    project = _project(_text(header_project))
    if path_project is not None and _project(path_project) != project:
        raise denied("The path and the header X-Pointsman-Project name two different projects.")
    return Claims(token, project, project_stated=True)


def with_meta(claims: Claims, meta: Json | None) -> Claims:
    """Completed by `_meta.token` and `_meta.projectId`, which are taken out of `meta`. Raises HttpError 400, 403.

    Returns `claims` itself where `meta` says nothing.
    """
    if not meta or ("token" not in meta and "projectId" not in meta):
        return claims
    token, project, stated = claims.token, claims.project, claims.project_stated
    if "token" in meta:
        named = _string(meta.pop("token"), "token")
        if token is not None and named != token:
            raise denied("The Authorization header and `_meta.token` are two different tokens.")
        token = named
    if "projectId" in meta:
        stated_project = meta.pop("projectId")
        named_project = None if stated_project is None else _project(_string(stated_project, "projectId"))
        if stated and named_project != project:
            raise denied("`_meta.projectId` and the header or path name two different projects.")
        project, stated = named_project, True
    return Claims(token, project, stated)


def _bearer(authorization: bytes) -> str:
    """An empty string, which no token equals, where the header is of another scheme."""
    scheme, _, token = authorization.partition(b" ")
    return _text(token.strip()) if scheme.lower() == _BEARER else ""


def _project(text: str) -> str | None:
    return None if text in NO_PROJECT else text


def _string(value: object, key: str) -> str:
    if type(value) is not str:
        raise HttpError(400, f"`_meta.{key}` must be a string.")
    return value


def _text(value: bytes) -> str:
    return value.decode("latin-1")
