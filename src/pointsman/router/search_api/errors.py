"""The errors of the search service: an HTTP status, a code, and a message with the next step."""

from __future__ import annotations

from pointsman.core import wire
from pointsman.router.front.http.responses import Headers, HttpError
from pointsman.router.search_api.messages import API_VERSION, Code

# The codes of each status, the usual one first.
STATUSES: dict[int, tuple[Code, ...]] = {
    400: ("bad_request", "unsupported_version"),
    401: ("unauthorized",),
    403: ("denied",),
    404: ("not_found",),
    405: ("method_not_allowed",),
    408: ("timeout",),
    413: ("too_large",),
    415: ("unsupported_media_type",),
    421: ("misdirected",),
    429: ("too_many_requests",),
    431: ("too_large",),
    500: ("internal",),
    503: ("overloaded", "timeout"),
}
_SOON = ((b"retry-after", b"1"),)


class ApiError(Exception):
    """Rejects the request. `str(error)` is sent to the client."""

    def __init__(self, status: int, message: str, *, code: Code | None = None, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code: Code = code or STATUSES[status][0]
        self.headers = headers

    @property
    def body(self) -> bytes:
        return wire.encode({"error": {"code": self.code, "message": str(self)}})


def from_http_error(error: HttpError) -> ApiError:
    """Convert an error of the shared HTTP checks, with messages that name this service's settings."""
    messages = {
        403: "This origin is not allowed. The operator allows origins in `search_api.listen.allowed_origins`.",
        413: "The body is too large. Send fewer tools, or compress it (Content-Encoding: gzip); "
        "the operator sets `search_api.limits.body_bytes`.",
        421: "This Host is not allowed. The operator allows hosts in `search_api.listen.allowed_hosts`.",
    }
    return ApiError(error.status, messages.get(error.status, error.message), headers=error.headers)


def http_error_body(error: HttpError) -> bytes:
    return from_http_error(error).body


def bad_request(message: str) -> ApiError:
    return ApiError(400, message)


def unsupported_version() -> ApiError:
    return ApiError(
        400,
        f'This service supports apiVersion "{API_VERSION}". Send that, or omit `apiVersion`.',
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


def token_share_exhausted() -> ApiError:
    return ApiError(
        429,
        "Too many concurrent searches with this token. Retry in a moment, or search locally.",
        headers=_SOON,
    )


def overloaded() -> ApiError:
    return ApiError(503, "Too many concurrent searches. Retry in a moment, or search locally.", headers=_SOON)


def too_slow(limit_s: float) -> ApiError:
    return ApiError(
        503,
        f"The search took more than {limit_s:g} s. Send fewer tools or queries, or search locally.",
        code="timeout",
        headers=_SOON,
    )


def internal() -> ApiError:
    return ApiError(500, "Internal error; the service's log has the reason. Search locally meanwhile.")
