"""Resource URIs that lead back to their server: its id goes into the scheme, the rest stays the server's own.

`notes://today` of server `diary` is `pointsman+diary+notes://today` outside. What follows the scheme is not touched,
so it needs no escaping, a template stays a template whose expansion is the wrapped form of the server's own
expansion, and nothing is kept anywhere: the URI alone says where it leads, also after a restart.
"""

from __future__ import annotations

import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_WRAPPED = re.compile(r"pointsman\+([a-z0-9.-]+)([+:])", re.IGNORECASE)
_UNSAFE = re.compile(r"[^a-z0-9-]")  # schemes have no case, and no `_`
_ESCAPED = re.compile(r"\.([0-9a-f]{2})")


def wrapped(server_id: str, uri: str) -> str:
    """The URI, or URI template, as clients see it."""
    joint = "+" if _SCHEME.match(uri) else ":"  # what has no scheme of its own gets this one
    return f"pointsman+{_UNSAFE.sub(_escape, server_id)}{joint}{uri}"


def unwrapped(uri: str) -> tuple[str, str] | None:
    """The server's id and its own URI; None: not wrapped by us."""
    found = _WRAPPED.match(uri)
    if found is None:
        return None
    server_id = _ESCAPED.sub(_unescape, found[1].lower())
    return server_id, uri[found.end() :]


def fits(template: str, uri: str) -> bool:
    """Whether a URI may be an expansion of a template: begin and end agree. The server has the last word."""
    begin, brace, rest = template.partition("{")
    if not brace:
        return template == uri
    end = rest.rpartition("}")[2]
    return bool(begin) and len(uri) >= len(begin) + len(end) and uri.startswith(begin) and uri.endswith(end)


def _escape(found: re.Match[str]) -> str:
    return f".{ord(found[0]):02x}"


def _unescape(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))
