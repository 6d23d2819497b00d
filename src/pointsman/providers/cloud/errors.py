"""The errors of a search service, each with a code, a reason for models and a fix for the operator."""

from __future__ import annotations

from pointsman.providers.base import SearchUnavailableError

TIMEOUT = "cloud_timeout"
UNREACHABLE = "cloud_unreachable"


class CloudError(SearchUnavailableError):
    """`str(error)` continues "the search service" and has no text of the service; `detail` may.

    `fix` is for the operator, if our configuration is wrong. `project_only`: the error concerns only the project of
    the request.
    """

    def __init__(self, code: str, reason: str, detail: str = "", *, fix: str = "", project_only: bool = False) -> None:
        super().__init__(reason, code)
        self.detail = detail
        self.fix = fix
        self.project_only = project_only


def timed_out(timeout_s: float) -> CloudError:
    return CloudError(TIMEOUT, f"gave no answer within {timeout_s:g} s")


def unreachable(why: str = "cannot be reached", detail: str = "") -> CloudError:
    return CloudError(UNREACHABLE, why, detail)


def disconnected(detail: str = "") -> CloudError:
    return CloudError("cloud_disconnected", "disconnected before its answer was complete", detail)


def internal() -> CloudError:
    return CloudError("cloud_internal", "could not be asked (an internal error, which the gateway's log explains)")


def left_alone() -> CloudError:
    return CloudError("cloud_open", "failed a moment ago and is not called for now")


def busy() -> CloudError:
    return CloudError("cloud_busy", "has too many requests from this gateway under way")


def unconfigured() -> CloudError:
    return CloudError("cloud_unconfigured", "is not configured (`cloud_search`)")


def malformed(detail: str) -> CloudError:
    return CloudError("cloud_malformed", "gave a malformed answer", detail)


def oversized(limit: int) -> CloudError:
    return CloudError("cloud_oversized", f"gave an answer of more than {limit:,} bytes")


def invented(count: int) -> CloudError:
    return CloudError("cloud_invented", "named only tools that it was not given", f"{count} of them")


def status(code: int) -> CloudError:
    """The error for a status other than 200; redirects are not followed."""
    match code:
        case 401:
            return CloudError(
                "cloud_unauthorized",
                "does not accept the gateway's credential (HTTP 401)",
                fix="`cloud_search.token` is wrong or revoked: set one that the service's operator issued",
            )
        case 403:
            return CloudError(
                "cloud_forbidden",
                "refuses the gateway's credential for this project (HTTP 403)",
                fix="the projects of `cloud_search.token` do not include this one: "
                "ask the service's operator to add it, or set another token",
                project_only=True,
            )
        case 404:
            return CloudError(
                "cloud_not_found",
                "is not found at its address (HTTP 404)",
                fix="`cloud_search.url` is wrong: set the address before `/catalog/search`",
            )
        case 421:
            return CloudError(
                "cloud_misdirected",
                "does not accept the host name in its address (HTTP 421)",
                fix="ask the service's operator to add the host and port of `cloud_search.url` to "
                "`search_api.listen.allowed_hosts`, or set an address that is listed there",
            )
        case 301 | 302 | 303 | 307 | 308:
            return CloudError(
                "cloud_redirected",
                f"redirects to another address (HTTP {code}), which is not followed",
                fix="`cloud_search.url` is not the service's own address (`http` instead of `https`?): correct it",
            )
        case 413:
            return CloudError(
                "cloud_too_large", "does not accept as many tools as there are here (HTTP 413)", project_only=True
            )
        case 429:
            return CloudError("cloud_rate_limited", "limits the rate of requests (HTTP 429)")
    return CloudError("cloud_http", f"answered with HTTP {code}")
