"""Why the search service gave no answer that can be used."""

from __future__ import annotations

from pointsman.providers.base import SearchUnavailableError

TIMEOUT = "cloud_timeout"
UNREACHABLE = "cloud_unreachable"


class CloudError(SearchUnavailableError):
    """`str(failure)` goes on from "the search service" and holds nothing that the service said; `detail` may.

    `mend` is for the operator, where our configuration is at fault. `own` is set where the failure concerns only the
    project that asked.
    """

    def __init__(self, code: str, reason: str, detail: str = "", *, mend: str = "", own: bool = False) -> None:
        super().__init__(reason, code)
        self.detail = detail
        self.mend = mend
        self.own = own


def timed_out(timeout_s: float) -> CloudError:
    return CloudError(TIMEOUT, f"gave no answer within {timeout_s:g} s")


def left_alone() -> CloudError:
    return CloudError("cloud_open", "failed a moment ago and is left alone for now")


def busy() -> CloudError:
    return CloudError("cloud_busy", "has too many requests of ours under way")


def unconfigured() -> CloudError:
    return CloudError("cloud_unconfigured", "is not configured (`cloud_search`)")


def malformed(detail: str) -> CloudError:
    return CloudError("cloud_malformed", "gave an answer that cannot be read", detail)


def oversized(limit: int) -> CloudError:
    return CloudError("cloud_oversized", f"gave an answer of more than {limit:,} bytes")


def invented(count: int) -> CloudError:
    return CloudError("cloud_invented", "named only tools that it was not given", f"{count} of them")


def status(code: int) -> CloudError:
    """Everything but 200; redirects are not followed."""
    match code:
        case 401:
            return CloudError(
                "cloud_unauthorized",
                "does not accept the gateway's credential (HTTP 401)",
                mend="`cloud_search.token` is wrong or was withdrawn: set one that the service's operator issued",
            )
        case 403:
            return CloudError(
                "cloud_forbidden",
                "refuses the gateway's credential for this project (HTTP 403)",
                mend="the projects of `cloud_search.token` do not include this one: "
                "have the service's operator add it, or set another token",
                own=True,
            )
        case 404:
            return CloudError(
                "cloud_not_found",
                "is not found at its address (HTTP 404)",
                mend="`cloud_search.url` is wrong: it is the address before `/catalog/search`",
            )
        case 421:
            return CloudError(
                "cloud_misdirected",
                "does not know itself by the name in its address (HTTP 421)",
                mend="have the service's operator add the host and port of `cloud_search.url` to "
                "`search_api.listen.allowed_hosts`, or set the address by which it knows itself",
            )
        case 301 | 302 | 303 | 307 | 308:
            return CloudError(
                "cloud_redirected",
                f"sends us to another address (HTTP {code}), where we do not follow",
                mend="`cloud_search.url` is not the service's own address (`http` for `https`?): set that",
            )
        case 413:
            return CloudError("cloud_too_large", "does not take as many tools as there are here (HTTP 413)", own=True)
        case 429:
            return CloudError("cloud_rate_limited", "asks us to come less often (HTTP 429)")
    return CloudError("cloud_http", f"answered with HTTP {code}")
