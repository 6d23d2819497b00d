"""The client's requests whose effect lasts as long as the session, and which of them the gateway has to hear again."""

from __future__ import annotations

from pointsman.core.model import Json

_Key = tuple[str, str]  # method and, where it has one, URI


class SessionReplay:
    def __init__(self) -> None:
        self._holding: dict[_Key, Json] = {}
        self._owed: dict[_Key, Json] = {}
        self.in_doubt = False  # the gateway may be another one, and has not been asked since

    def remember(self, message: Json) -> None:
        method, params = message["method"], message.get("params")
        uri = params.get("uri") if isinstance(params, dict) else None
        if method == "logging/setLevel":
            self._hold((method, ""), message)
        elif method == "resources/subscribe" and isinstance(uri, str):
            self._hold((method, uri), message)
        elif method == "resources/unsubscribe" and isinstance(uri, str):
            self._holding.pop(("resources/subscribe", uri), None)
            self._owed.pop(("resources/subscribe", uri), None)

    def _hold(self, key: _Key, message: Json) -> None:
        self._holding[key] = message
        self._owed.pop(key, None)  # the client says it itself, just now

    def doubt(self) -> None:
        """The gateway was out of sight: all has to be said again."""
        self._owed = dict(self._holding)
        self.in_doubt = bool(self._owed)

    def owed(self) -> list[Json]:
        return list(self._owed.values())

    def settle(self, message: Json) -> None:
        for key, owed in list(self._owed.items()):
            if owed is message:
                del self._owed[key]
