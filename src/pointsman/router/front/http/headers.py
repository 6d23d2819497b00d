"""Checks a request's headers before anything else: no duplicates, a known Host and Origin, acceptable media types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pointsman.config.model import Listen
from pointsman.core.errors import UNKNOWN_HOST, UNKNOWN_ORIGIN
from pointsman.core.sdk import HEADER_MISMATCH
from pointsman.core.seams import INVALID_REQUEST
from pointsman.router.front.http.responses import HttpError

Head = dict[bytes, bytes]

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
_HTTP_PORT = 80
_ONCE = frozenset({b"host", b"origin", b"authorization", b"content-type", b"content-length", b"x-pointsman-project"})
_HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
USUAL_ACCEPT = b"application/json, text/event-stream"
_LONGEST_CACHED = 256  # characters of an Accept header whose parsed form is cached


@dataclass(frozen=True, slots=True)
class HostRules:
    """The gateway's host names, and the web origins that may call it. Both are compared exactly."""

    hosts: frozenset[bytes]
    origins: frozenset[bytes]
    trusted_proxies: tuple[str, ...] = ()  # addresses and CIDR networks

    @classmethod
    def of(cls, listen: Listen, port: int) -> HostRules:
        """`port` is the bound port; `listen.port` may be 0."""
        names: list[str] = [*_LOOPBACK]
        if listen.host not in _WILDCARDS:
            names.append(f"[{listen.host}]" if ":" in listen.host else listen.host)
        own = [f"{name}:{port}" for name in names]
        if port == _HTTP_PORT:
            own += names  # clients omit the default port
        origins = [*(f"http://{host}" for host in own), *listen.allowed_origins]
        hosts = [*own, *listen.allowed_hosts]
        if listen.public_url is not None:
            origins.append(listen.public_url)
            hosts += _hosts_of(listen.public_url)
        return cls(
            hosts=frozenset(host.lower().encode() for host in hosts),
            origins=frozenset(origin.lower().encode() for origin in origins),
            trusted_proxies=listen.trusted_proxies,
        )


def _hosts_of(public_url: str) -> list[str]:
    """Its Host headers: a proxy may write the default port, too."""
    scheme, _, host = public_url.partition("://")
    has_port = host.rpartition("]")[2].count(":") == 1
    return [host] if has_port else [host, f"{host}:{443 if scheme == 'https' else _HTTP_PORT}"]


def checked_head(headers: Sequence[tuple[bytes, bytes]], rules: HostRules, head: Head | None = None) -> Head:
    """Return the headers by name, in lower case. Raises HttpError 400, 403, 421.

    `head`: the same, if it is known, where the last one of a name counts.
    """
    if not head:
        head = dict(headers)
    if len(head) != len(headers):
        head = _join_duplicates(headers)
    host = head.get(b"host")
    if host not in rules.hosts:
        _check_host(host, rules)
    origin = head.get(b"origin")
    if origin is not None and origin.lower() not in rules.origins:
        raise HttpError(
            403,
            "This web page may not use the gateway. The operator allows pages in `listen.allowed_origins`.",
            audit_code=UNKNOWN_ORIGIN,
        )
    return head


def check_content_type(head: Head) -> None:
    """Raises HttpError 415."""
    if head.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        raise HttpError(415, "Content-Type must be application/json.")


def check_accepts_responses(head: Head) -> None:
    """Raises HttpError 406."""
    if accepted(head.get(b"accept", b"")) != (True, True):
        raise HttpError(406, "Accept must name both application/json and text/event-stream.")


def check_accepts_stream(head: Head) -> None:
    """Raises HttpError 406."""
    if not accepted(head.get(b"accept", b""))[1]:
        raise HttpError(406, "Accept must name text/event-stream.")


def accepted(value: bytes) -> tuple[bool, bool]:
    """Return whether an Accept header covers JSON, and whether it covers an event stream."""
    return _accepted(value) if len(value) <= _LONGEST_CACHED else _accepted.__wrapped__(value)


@lru_cache(maxsize=128)
def _accepted(value: bytes) -> tuple[bool, bool]:
    types = {part.partition(b";")[0].strip() for part in value.lower().split(b",")}
    return (
        not types.isdisjoint((b"application/json", b"application/*", b"*/*")),
        not types.isdisjoint((b"text/event-stream", b"text/*", b"*/*")),
    )


def _join_duplicates(lines: Sequence[tuple[bytes, bytes]]) -> Head:
    """Join repeated list headers; reject repeated single-valued ones.

    Parsers disagree on which copy of a single-valued header counts, which request smuggling exploits.
    """
    head: Head = {}
    for name, value in lines:
        if name not in head:
            head[name] = value
        elif name in _ONCE or name.startswith(b"mcp-"):
            code = HEADER_MISMATCH if name.startswith(b"mcp-") else INVALID_REQUEST
            shown = name.decode("ascii", "replace")
            raise HttpError(400, f"The header {shown} appears more than once. Send it once.", code=code)
        else:
            head[name] += b", " + value
    return head


def _check_host(host: bytes | None, rules: HostRules) -> None:
    if host is None or not _HOST.fullmatch(host):
        raise HttpError(
            400, "The Host header is missing or malformed. Send the host and port of the gateway's address."
        )
    if host.lower() not in rules.hosts:
        raise HttpError(
            421,
            "The gateway is not known by this Host. The operator allows more in `listen.allowed_hosts`.",
            audit_code=UNKNOWN_HOST,
        )
