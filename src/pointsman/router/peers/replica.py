"""A replica, and the directory of those that live."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol

_ID_BYTES: Final = 4
_MARKED: Final = re.compile(r"([0-9a-f]{8})\.[0-9a-f]")  # how an id begins that refers to something on one replica


@dataclass(frozen=True, slots=True)
class Replica:
    """One running gateway. The address comes from the directory, never from a client."""

    id: str  # 8 hex digits, new at every start
    address: str  # `unix:/path/to/socket` or `tcp:host:port`


class Directory(Protocol):
    """Lists the replicas that live. `living` is asked for each message that is carried, so it answers from memory or
    from the local disk and never waits for the network."""

    async def announce(self, replica: Replica) -> None:
        """Let the others find this replica, from now on and until `withdraw`. Raises OSError."""
        ...

    async def withdraw(self) -> None:
        """Let the others no longer find this replica. Does nothing if it was never announced."""
        ...

    def living(self) -> Sequence[Replica]:
        """Return the replicas that live as far as it is known, with this one. One that has just died may be among
        them."""
        ...


def new_id() -> str:
    return secrets.token_hex(_ID_BYTES)


def replica_in(text: object) -> str | None:
    """Return the replica that an id such as `5f3a9c21.7` names, or None if it names none. It may not exist."""
    found = _MARKED.match(text) if type(text) is str else None
    return found[1] if found else None


def rendezvous(key: str, replicas: Iterable[Replica]) -> list[Replica]:
    """Order the replicas for `key`: all who know the same replicas agree, and one that goes changes no other's key."""
    return sorted(replicas, key=lambda replica: sha256(f"{replica.id} {key}".encode()).digest())
