"""Session ids that say, sealed, what they stand for: any process with the keys can take a session up by its id."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pointsman.core.model import Caller
from pointsman.core.sdk import SealError, Sealing
from pointsman.core.seams import Client
from pointsman.core.wire import decode, encode
from pointsman.router.front.modern.request_state import WallClock

LIFE_S: Final = 7 * 86_400.0  # an id older than this revives no session; one that is open stays open
INITIAL_LEVEL: Final = "info"  # of the log, until the client sets another
_MOST_BYTES: Final = 1024  # of a record; the id is a header of every request, and proxies limit those
_PURPOSE: Final = b"pointsman session id"  # so that no `requestState` can be taken for an id, nor the other way round
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Record:
    """What an id says of its session."""

    caller: Caller
    address: str | None
    client: Client


class SessionIds:
    def __init__(self, keys: Sequence[str], clock: WallClock = time.time) -> None:
        self._codec = Sealing([hmac.digest(key.encode(), _PURPOSE, "sha256") for key in keys])
        self._clock = clock

    def mint(self, caller: Caller, address: str | None, client: Client) -> str:
        """A new id. One whose client has too much to say of itself is a mere number, and dies with this process."""
        about = [_VERSION, self._clock(), caller.token_id, caller.project_id, address]
        record = encode([*about, client.version, client.name, client.capabilities])
        return self._codec.seal(record) if len(record) <= _MOST_BYTES else secrets.token_hex(20)

    def read(self, session_id: str) -> Record | None:
        """None for what we did not write, and for what is too old."""
        try:
            fields = decode(self._codec.unseal(session_id))
        except SealError:
            return None
        if fields[0] != _VERSION or self._clock() - fields[1] > LIFE_S:
            return None
        token_id, project_id, address, version, name, capabilities = fields[2:]
        client = introduced_before(name, version, capabilities)
        return Record(Caller(token_id, project_id), address, client)


def introduced_before(name: str, version: str, capabilities: dict[str, object]) -> Client:
    """A legacy client as its session begins."""
    return Client(name, "legacy", version, capabilities, progress_token=None, log_level=INITIAL_LEVEL)
