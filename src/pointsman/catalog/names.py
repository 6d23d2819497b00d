"""Names and URIs that lead back to their server.

Flat tools and prompts are called `<prefix><name>`. A resource URI carries its server's id in the scheme: `notes://today`
of server `diary` is `pointsman+diary+notes://today` to clients. What follows the scheme is not changed, so it needs no
escaping, a template stays a template whose expansion is the wrapped form of the server's own expansion, and no state is
needed: the URI alone says where it leads, even after a restart.

Clients recognise the page of an app (extension SEP-1865) by the scheme `ui`, so its URI gets the id as its first part:
`ui://chart` of server `sales` is `ui://sales/chart`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pointsman.config.sections.server import Server
from pointsman.providers.visible import visible_line

MAX_NAME_CHARS = 200  # of a server, as models read it

# Why an entry is hidden, for the log; the argument is the server that has the name.
HAS_THE_NAME = "server {} has that name, too"
HAS_THE_PREFIX = "the name has the prefix of server {}"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_WRAPPED = re.compile(r"pointsman\+([a-z0-9.-]+)([+:])", re.IGNORECASE)
_APP = re.compile(r"ui://", re.IGNORECASE)
_WRAPPED_APP = re.compile(r"(ui://)([A-Za-z0-9_-]+)/", re.IGNORECASE)
_UNSAFE = re.compile(r"[^a-z0-9-]")  # schemes are case-insensitive and have no `_`
_ESCAPED = re.compile(r"\.([0-9a-f]{2})")


def display_name(server_id: str, server: Server) -> str:
    """The server's name for models: one line of visible text, because the configuration may have been pasted."""
    return visible_line(server.name or "", MAX_NAME_CHARS) or server_id


def prefix_of(server_id: str, server: Server) -> str:
    """The prefix of a server's names; empty if the operator chose none."""
    return f"{server_id}__" if server.prefix is None else server.prefix


class NameIndex:
    """Leads the names of flat tools and prompts back to their servers, without a walk over all of them."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._by_prefix: dict[str, list[str]] = {}
        for server_id, server in servers.items():
            self._by_prefix.setdefault(prefix_of(server_id, server), []).append(server_id)
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix}, reverse=True)

    def owners(self, name: str) -> list[tuple[str, str]]:
        """The servers that `name` may belong to, each with its own name for it; on a clash the first one counts.

        Only the servers with the longest matching prefix: otherwise a server without a prefix could list a tool under
        another server's name and receive its calls.
        """
        for length in self._lengths:
            found = self._by_prefix.get(name[:length]) if length < len(name) else None
            if found is not None:
                return [(server_id, name[length:]) for server_id in found]
        return []


def wrap_uri(server_id: str, uri: str) -> str:
    """The URI, or URI template, as clients see it."""
    app = _APP.match(uri)
    if app is not None:
        return f"{app[0]}{server_id}/{uri[app.end() :]}"
    joint = "+" if _SCHEME.match(uri) else ":"  # a URI without a scheme gets this one
    return f"pointsman+{_UNSAFE.sub(_escape, server_id)}{joint}{uri}"


def unwrap_uri(uri: str) -> tuple[str, str] | None:
    """The server's id and its own URI; None: not wrapped by us."""
    app = _WRAPPED_APP.match(uri)
    if app is not None:
        return app[2], app[1] + uri[app.end() :]
    match = _WRAPPED.match(uri)
    if match is None:
        return None
    server_id = _ESCAPED.sub(_unescape, match[1].lower())
    return server_id, uri[match.end() :]


def is_app_uri(uri: str) -> bool:
    """Whether it is the URI of an app's page, which is wrapped for every server, whatever its prefix."""
    return _APP.match(uri) is not None


def may_expand_to(template: str, uri: str) -> bool:
    """Whether a URI may be an expansion of a template: beginning and end agree. The server decides."""
    begin, brace, rest = template.partition("{")
    if not brace:
        return template == uri
    end = rest.rpartition("}")[2]
    return bool(begin) and len(uri) >= len(begin) + len(end) and uri.startswith(begin) and uri.endswith(end)


def _escape(match: re.Match[str]) -> str:
    return f".{ord(match[0]):02x}"


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))
