"""Refusals of the search service: a status, a code for programs, and a sentence with the next step."""

from __future__ import annotations

from pointsman.core import wire
from pointsman.router.front.http.responses import Headers, HttpError
from pointsman.router.search_api.messages import API_VERSION, Code

_CODES: dict[int, Code] = {
    400: "bad_request",
    401: "unauthorized",
    403: "denied",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    429: "too_many_requests",
    431: "too_large",
    500: "internal",
    503: "overloaded",
}
_SOON = ((b"retry-after", b"1"),)


class ApiError(Exception):
    """The request goes no further. `str(refusal)` is for whoever sent it."""

    def __init__(self, status: int, message: str, *, code: Code | None = None, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code: Code = code or _CODES[status]
        self.headers = headers

    @property
    def body(self) -> bytes:
        return wire.encode({"error": {"code": self.code, "message": str(self)}})


def of_the_front(refusal: HttpError) -> ApiError:
    """What the checks of the gateway's front refuse, in this service's words."""
    words = {
        403: "This web page may not use the service. The operator allows pages in `search_api.listen.allowed_origins`.",
        413: "The body is larger than this service takes. Send fewer tools, or compress it (Content-Encoding: gzip); "
        "the operator sets `search_api.limits.body_bytes`.",
        421: "This service is not known by this Host. The operator allows more in `search_api.listen.allowed_hosts`.",
    }
    return ApiError(refusal.status, words.get(refusal.status, refusal.message), headers=refusal.headers)


def body_below_asgi(refusal: HttpError) -> bytes:
    return of_the_front(refusal).body


def bad(message: str) -> ApiError:
    return ApiError(400, message)


def unsupported_version() -> ApiError:
    return ApiError(
        400,
        f'This service speaks apiVersion "{API_VERSION}". Send that, or leave `apiVersion` out.',
        code="unsupported_version",
    )


def unauthorized(message: str) -> ApiError:
    return ApiError(401, message, headers=((b"www-authenticate", b"Bearer"),))


def too_large(message: str) -> ApiError:
    return ApiError(413, message)


def unsupported_encoding() -> ApiError:
    return ApiError(
        415, "Content-Encoding must be gzip, or absent.", headers=((b"accept-encoding", b"gzip, identity"),)
    )


def share_is_taken() -> ApiError:
    return ApiError(
        429,
        "Too many searches with this token are under way. Try again in a moment, or search locally.",
        headers=_SOON,
    )


def overloaded() -> ApiError:
    return ApiError(503, "Too many searches are under way. Try again in a moment, or search locally.", headers=_SOON)


def too_slow(limit_s: float) -> ApiError:
    return ApiError(
        503,
        f"The search took more than {limit_s:g} s. Send fewer tools or queries, or search locally.",
        code="timeout",
        headers=_SOON,
    )


def internal() -> ApiError:
    return ApiError(500, "The service failed at this request. Its log has the reason; search locally meanwhile.")
