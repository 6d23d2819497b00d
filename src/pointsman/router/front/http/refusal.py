"""Refusals by HTTP status: a JSON-RPC error as the body, a fixed sentence, and a code for programs."""

from __future__ import annotations

from typing import Any

from pointsman.core.seams import INTERNAL_ERROR, INVALID_REQUEST

Headers = tuple[tuple[bytes, bytes], ...]

# `error.data.code`. A lost session (404) and an overload (503) are told by their status alone.
_REASONS = {
    400: "bad_request",
    401: "unauthorized",
    403: "denied",
    405: "bad_request",
    406: "bad_request",
    408: "bad_request",
    413: "too_large",
    415: "bad_request",
    421: "bad_request",
    429: "rate_limited",
}


FULL = {"code": "overloaded"}


class ClientDisconnectedError(Exception):
    """The client went away before its request was whole; there is nobody to answer."""


class HttpError(Exception):
    """The request goes no further. `str(refusal)` is shown to the person."""

    def __init__(
        self, status: int, message: str, *, code: int = INVALID_REQUEST, data: Any = None, headers: Headers = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code  # of JSON-RPC
        self.headers = headers
        self._data = data

    @property
    def data(self) -> Any:
        reason = _REASONS.get(self.status)
        if reason is None:
            return self._data
        return {**(self._data or {}), "code": reason}

    @property
    def audited(self) -> bool:
        """Whether the audit has a row for it: it is about who calls, or there was no room for a call."""
        return self.status in (401, 403) or self.data == FULL


def unauthorized(message: str) -> HttpError:
    return HttpError(401, message, headers=((b"www-authenticate", b"Bearer"),))


def denied(message: str) -> HttpError:
    return HttpError(403, message)


def too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        f"The body is larger than {limit} bytes. Send less; the operator sets `limits.body_bytes`.",
    )


def wrong_verb(allowed: bytes) -> HttpError:
    return HttpError(405, f"Method not allowed. Use {allowed.decode()}.", headers=((b"allow", allowed),))


def unknown_session() -> HttpError:
    """Also for sessions of somebody else: the two must not be told apart."""
    return HttpError(404, "Session not found. Open a new one with `initialize`.")


def overloaded(message: str) -> HttpError:
    return HttpError(503, message, code=INTERNAL_ERROR, headers=((b"retry-after", b"5"),))


def too_many_streams(most: int) -> HttpError:
    return HttpError(
        429,
        f"This token has {most} streams open, which is its share: a quarter of `limits.connections`. "
        "Close some of them, then open this one again.",
        headers=((b"retry-after", b"5"),),
    )


def full(
    message: str = "The gateway has as many requests under way as it takes. Try again in a moment; "
    "the operator sets `limits.calls`.",
) -> HttpError:
    return HttpError(
        503,
        message,
        code=INTERNAL_ERROR,
        data=FULL,
        headers=((b"retry-after", b"1"),),
    )


def no_room() -> HttpError:
    """For a large body."""
    return full(
        "The gateway holds as many large messages as it takes. Try again in a moment, or send less at once; "
        "the operator sets `limits.in_flight_bytes`."
    )
