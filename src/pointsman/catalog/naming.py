"""Names that lead back to their server: `<prefix><name>` for flat tools and for prompts."""

from __future__ import annotations

from collections.abc import Mapping

from pointsman.config.model import Server
from pointsman.providers.visible import visible_line

# Why an entry is hidden, for the log; the argument is the server that has the name.
HAS_THE_NAME = "server {} has that name, too"
HAS_THE_PREFIX = "the name carries the prefix of server {}"


MAX_NAME_CHARS = 200  # of a server, as models read it


def display_name(server_id: str, server: Server) -> str:
    """What models read as the name of a server: one line of visible text, for a configuration may be pasted."""
    return visible_line(server.name or "", MAX_NAME_CHARS) or server_id


def prefix_of(server_id: str, server: Server) -> str:
    """What stands before the names of a server; empty: nothing, by the operator's wish."""
    return f"{server_id}__" if server.prefix is None else server.prefix


def holders(servers: Mapping[str, Server], name: str) -> list[tuple[str, str]]:
    """The servers that `name` may belong to, each with its own word for it; on a clash the first one counts.

    Only the servers with the longest fitting prefix: otherwise a server without a prefix could list a tool under
    another server's name and receive its calls.
    """
    fitting = [
        (prefix, server_id)
        for server_id, server in servers.items()
        if name.startswith(prefix := prefix_of(server_id, server)) and len(name) > len(prefix)
    ]
    longest = max((len(prefix) for prefix, _ in fitting), default=0)
    return [(server_id, name[longest:]) for prefix, server_id in fitting if len(prefix) == longest]
