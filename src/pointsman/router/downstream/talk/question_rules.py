"""What a server may ask a client: nothing where its entry says so, and a visit to a URL only with https. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from pointsman.core.errors import DownstreamError, QuestionRefusedError
from pointsman.core.kinds import QUESTION_CAPABILITIES
from pointsman.core.model import Json
from pointsman.core.seams import CannotAskError, FrontRequest

URL_ELICITATION_REQUIRED: Final = -32042  # an error that asks for visits to URLs before the call is repeated
_MAX_URL_CHARS: Final = 8_192
_CAPABILITIES: Final = frozenset(QUESTION_CAPABILITIES.values())

NO_QUESTIONS: Final = "The operator does not allow this server to ask anything (`questions: false`)"
HTTPS_ONLY: Final = (
    "A URL to visit must begin with https:// and name a host, without a user or password before it; "
    "http is refused, also to this machine"
)


class ForbiddenQuestionError(CannotAskError):
    """The server may not ask this. `str(error)` is the reason, for the server."""


def check_question(method: str, params: object, *, allowed: bool) -> None:
    """Raises ForbiddenQuestionError."""
    if not allowed:
        raise ForbiddenQuestionError(NO_QUESTIONS)
    if method != "elicitation/create" or not isinstance(params, dict):
        return
    if ("url" in params or params.get("mode") == "url") and not _is_https(params.get("url")):
        raise ForbiddenQuestionError(HTTPS_ONLY)


def checked_error(
    server_id: str, error: DownstreamError | ForbiddenQuestionError, *, allowed: bool
) -> DownstreamError | QuestionRefusedError:
    """A server's error as the client may get it: one that asks for visits to URLs only if each may be asked for."""
    if isinstance(error, ForbiddenQuestionError):
        return QuestionRefusedError(server_id, str(error))
    if error.code != URL_ELICITATION_REQUIRED:
        return error
    asked = error.data.get("elicitations") if isinstance(error.data, dict) else None
    try:
        for one in asked if isinstance(asked, list) else [None]:
            check_question("elicitation/create", one if isinstance(one, dict) else {"mode": "url"}, allowed=allowed)
    except ForbiddenQuestionError as reason:
        return QuestionRefusedError(server_id, str(reason))
    return error


def without_questions(request: FrontRequest) -> FrontRequest:
    """The request as a server sees it that may ask nothing: of a client that can be asked nothing.

    Then a modern server does not try, and no call takes turns.
    """
    client = request.client
    kept: Json = {name: value for name, value in client.capabilities.items() if name not in _CAPABILITIES}
    return replace(request, client=replace(client, capabilities=kept))


def _is_https(url: object) -> bool:
    if not isinstance(url, str) or len(url) > _MAX_URL_CHARS or not url.isprintable():
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc and " " not in url
