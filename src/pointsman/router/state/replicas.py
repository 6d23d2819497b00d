"""The gateways that live, in a table: each gives a sign of life every 2 s, and is gone after 10 s without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from pointsman.router.state.key_values import StateAwayError
from pointsman.router.state.tables import StateTables

BEAT_S: Final = 2.0
GONE_S: Final = 10.0
_KEPT_S: Final = 86_400.0


class _HasAddress(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def address(self) -> str: ...


R = TypeVar("R", bound=_HasAddress)


class Replica(NamedTuple):
    """One running gateway."""

    id: str  # 8 hex digits, new at every start
    address: str  # such as `tcp:10.0.0.5:3282`


class ReplicaTable(Generic[R]):
    """A directory of replicas: `announce`, `withdraw`, and `living` from memory. `beat` has to be called regularly.

    While PostgreSQL is away, those that were last known are taken to live; who connects finds out.
    """

    def __init__(self, tables: StateTables, make: Callable[[str, str], R]) -> None:
        """`make`: builds a replica of its id and address."""
        self._tables = tables
        self._make = make
        self._own: R | None = None
        self._living: Sequence[R] = ()
        self.keys: frozenset[str] = frozenset()  # fingerprints of the keys that this gateway has
        self.strangers: Sequence[R] = ()  # those that live and have none of these keys
        self._beating_since: float | None = None  # without a gap
        self.earlier: Sequence[str] = ()  # ids of earlier runs whose files this gateway has
        self._heirs: Mapping[str, str] = {}

    async def announce(self, replica: R) -> None:
        """Does not wait for the database: the next beat tells it."""
        self._own = replica
        self._living = [*(other for other in self._living if other.id != replica.id), replica]

    async def withdraw(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            await asyncio.to_thread(self._delete, own.id)

    def living(self) -> Sequence[R]:
        return self._living

    def heir_of(self, replica_id: str) -> str | None:
        """The living gateway that has the files of one that has ended, from memory."""
        return self._heirs.get(replica_id)

    def beat(self) -> None:
        """Give a sign of life, and read who lives. Blocks. Raises StateAwayError."""
        own = self._own
        try:
            with self._tables.connection() as connection:
                if own is not None:
                    connection.execute(
                        "INSERT INTO replicas (id, address, seen, earlier, keys) "
                        "VALUES (%s, %s, clock_timestamp(), %s, %s) ON CONFLICT (id) "
                        "DO UPDATE SET address = excluded.address, seen = excluded.seen, earlier = excluded.earlier, "
                        "keys = excluded.keys",
                        (own.id, own.address, list(self.earlier), " ".join(sorted(self.keys))),
                    )
                rows = connection.execute(
                    "SELECT id, address, earlier, keys FROM replicas "
                    "WHERE seen > clock_timestamp() - make_interval(secs => %s) ORDER BY id",
                    (GONE_S,),
                ).fetchall()
        except StateAwayError:
            self._beating_since = None
            raise
        self._living = [self._make(replica_id, address) for replica_id, address, _, _ in rows]
        self._heirs = {ended: replica_id for replica_id, _, earlier, _ in rows for ended in earlier}
        foreign = {row[0] for row in rows if row[3] and self.keys.isdisjoint(row[3].split())}
        self.strangers = [replica for replica in self._living if self.keys and replica.id in foreign]
        if self._beating_since is None:
            self._beating_since = time.monotonic()

    def seen_within(self, seconds: float) -> tuple[str, ...] | None:
        """The ids that gave a sign of life in the last seconds. Blocks. Raises StateAwayError.

        None: that cannot be said, because the database, or this gateway, has not been there as long as that.
        """
        if self._beating_since is None or time.monotonic() - self._beating_since < seconds:
            return None
        with self._tables.connection() as connection:
            rows = connection.execute(
                "SELECT id FROM replicas WHERE seen > clock_timestamp() - make_interval(secs => %s)", (seconds,)
            ).fetchall()
        return tuple(replica_id for (replica_id,) in rows)

    def purge(self) -> None:
        with self._tables.connection() as connection:
            connection.execute(
                "DELETE FROM replicas WHERE seen < clock_timestamp() - make_interval(secs => %s)", (_KEPT_S,)
            )

    def _delete(self, replica_id: str) -> None:
        try:
            with self._tables.connection() as connection:
                connection.execute("DELETE FROM replicas WHERE id = %s", (replica_id,))
        except StateAwayError:
            pass  # it is gone after 10 s anyway
