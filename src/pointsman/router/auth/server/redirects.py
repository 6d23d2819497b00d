"""Redirect URIs: which a client may have, and whether one that it names is one of them. Pure."""

from __future__ import annotations

import re
from typing import Final

MAX_URI_CHARS: Final = 512
_TAIL = r"(?:[/?][A-Za-z0-9._~!$&'()*+,;=:@/?%-]*)?"  # path and query, without a fragment
_HTTPS = re.compile(rf"https://(?P<host>(?i:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?))(?P<port>:[0-9]{{1,5}})?{_TAIL}")
_LOOPBACK = re.compile(rf"http://(?P<host>127\.0\.0\.1|\[::1\]|localhost)(?P<port>:[0-9]{{1,5}})?(?P<tail>{_TAIL})")
_LOOPBACK_IP = re.compile(r"127(?:\.[0-9]{1,3}){3}")
# Programs without a web server have a scheme of their own: one with a dot, as RFC 8252 asks, or that of a known editor.
_EDITORS = "cursor|vscode|vscode-insiders|vscodium|windsurf|zed|claude|warp|raycast"
_PRIVATE = re.compile(rf"(?P<scheme>[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)+|{_EDITORS}):{_TAIL}")


def is_allowed(uri: str) -> bool:
    """Whether a client may have this redirect URI: https, http to this machine, or a private-use scheme."""
    return len(uri) <= MAX_URI_CHARS and any(form.fullmatch(uri) for form in (_HTTPS, _LOOPBACK, _PRIVATE))


def matches(registered: str, given: str) -> bool:
    """Compare character by character. Only the port of a loopback redirect may differ (RFC 8252, section 7.3)."""
    if not is_allowed(given):
        return False
    if registered == given:
        return True
    one, other = _LOOPBACK.fullmatch(registered), _LOOPBACK.fullmatch(given)
    return bool(one and other and one["host"] == other["host"] and one["tail"] == other["tail"])


def is_loopback(uri: str) -> bool:
    return _LOOPBACK.fullmatch(uri) is not None


def is_local(uri: str) -> bool:
    """Whether the answer goes to a program on the machine of the browser, where any program could take it."""
    https = _HTTPS.fullmatch(uri)
    if https is None:
        return is_loopback(uri) or _PRIVATE.fullmatch(uri) is not None
    host = https["host"].lower()
    return host == "localhost" or host.endswith(".localhost") or _LOOPBACK_IP.fullmatch(host) is not None


def target_of(uri: str) -> str:
    """Who receives the answer, for a person: the host with its port, or the scheme of a program."""
    for form in (_HTTPS, _LOOPBACK):
        if found := form.fullmatch(uri):
            return f"{found['host']}{found['port'] or ''}".lower()
    found = _PRIVATE.fullmatch(uri)
    return f"{found['scheme']}:" if found else ""


def form_source(uri: str) -> str:
    """The same as a source of the CSP's `form-action`, which browsers also apply to the redirect after a form."""
    if uri.startswith(("https://", "http://")):
        return f"{uri.partition(':')[0]}://{target_of(uri)}"
    return target_of(uri)
