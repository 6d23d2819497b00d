"""The resources of one server that are watched, and by whom: kept beside its connections, because it outlives them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pointsman.core.model import Caller

Watched = Callable[[], Collection[str]]
"""The URIs that are watched on one connection, at this moment."""

_MOST = 10_000


class SubscribedResources:
    def __init__(self) -> None:
        self._of: dict[Caller, set[str]] = {}

    @property
    def full(self) -> bool:
        return sum(map(len, self._of.values())) >= _MOST

    def add(self, caller: Caller, uri: str) -> None:
        self._of.setdefault(caller, set()).add(uri)

    def discard(self, caller: Caller, uri: str) -> None:
        uris = self._of.get(caller)
        if uris is not None:
            uris.discard(uri)
            if not uris:
                del self._of[caller]

    def callers(self) -> Collection[Caller]:
        return tuple(self._of)

    def of(self, caller: Caller) -> Collection[str]:
        return frozenset(self._of.get(caller, ()))

    def all(self) -> Collection[str]:
        return frozenset().union(*self._of.values())
