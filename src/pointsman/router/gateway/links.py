"""Remembers which server gave a caller a link to a resource, so that the caller can follow it."""

from __future__ import annotations

from collections import OrderedDict

from pointsman.core.model import Caller, Json

MOST = 10_000  # links of all callers; the longest unused are forgotten
MAX_URI_CHARS = 8_192
_HOLDING = frozenset({"resource_link", "resource"})


class Links:
    """Content passes unchanged, so the URIs in it are the server's own, and two servers may use the same."""

    def __init__(self) -> None:
        self._servers: OrderedDict[tuple[Caller, str], str] = OrderedDict()

    def note(self, caller: Caller, server_id: str, blocks: object) -> None:
        """`blocks`: the content of a result, whatever the server put there."""
        if not isinstance(blocks, list):
            return
        for block in blocks:
            if isinstance(block, dict) and block.get("type") in _HOLDING:
                self._add(caller, server_id, block)

    def server_of(self, caller: Caller, uri: str) -> str | None:
        """The server that gave this caller this URI last."""
        key = (caller, uri)
        if key not in self._servers:
            return None
        self._servers.move_to_end(key)
        return self._servers[key]

    def _add(self, caller: Caller, server_id: str, block: Json) -> None:
        embedded = block.get("resource")
        uri = embedded.get("uri") if isinstance(embedded, dict) else block.get("uri")
        if not isinstance(uri, str) or len(uri) > MAX_URI_CHARS:
            return
        self._servers[caller, uri] = server_id
        self._servers.move_to_end((caller, uri))
        if len(self._servers) > MOST:
            self._servers.popitem(last=False)
