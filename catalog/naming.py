"""Names that lead back to their server: `<prefix><name>` for flat tools and for prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pointsman.config.model import Server


def prefix_of(server_id: str, server: Server) -> str:
    """What stands before the names of a server; empty: nothing, by the operator's wish."""
    return f"{server_id}__" if server.prefix is None else server.prefix


def holders(servers: Mapping[str, Server], name: str) -> Iterator[tuple[str, str]]:
    """The servers that `name` may belong to, each with its own word for it; on a clash the first one counts."""
    for server_id, server in servers.items():
        prefix = prefix_of(server_id, server)
        if name.startswith(prefix) and len(name) > len(prefix):
            yield server_id, name[len(prefix) :]
