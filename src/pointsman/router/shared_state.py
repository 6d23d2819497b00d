"""State that several gateways share in PostgreSQL: what a daemon reads and writes there in the background.

Nothing waits for it. While PostgreSQL is away, a gateway goes on with what it knows, and tells the rest later.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pointsman.core.postgres import Postgres
from pointsman.router.audit.compaction import move_program
from pointsman.router.audit.kept import AuditDatabaseError
from pointsman.router.audit.postgres.reader import PostgresRows
from pointsman.router.audit.postgres.writer import PostgresWriter
from pointsman.router.front.legacy.sessions import LIFE_S, Sessions
from pointsman.router.gateway.large_results.store import replicas_in
from pointsman.router.observe.health import Health
from pointsman.router.observe.usage import HALF_LIFE_S, UsageMemory
from pointsman.router.owner.sign_in.page_sign_ins import SignIns
from pointsman.router.peers.peers import Peers
from pointsman.router.peers.replica import Replica, new_id
from pointsman.router.peers.signing import fingerprints
from pointsman.router.serving.tasks import TaskSet
from pointsman.router.state.ended_sessions import EndedSessions
from pointsman.router.state.key_values import StateAwayError
from pointsman.router.state.postgres_values import PostgresKeyValues
from pointsman.router.state.replicas import BEAT_S, ReplicaTable
from pointsman.router.state.tables import StateTables
from pointsman.router.state.usage_table import UsageTable

CONNECTIONS: Final = 8
USAGE_EVERY_S: Final = 30.0
PURGE_EVERY_S: Final = 3600.0
_MOST_NAMED: Final = 5  # gateways in a text
_MOST_ENDED: Final = 100_000  # that wait for PostgreSQL

logger = logging.getLogger(__name__)


class SharedState:
    """One database. `run` it as a task; `close` it when nothing uses it any more."""

    TASK: Final = "shared state"

    def __init__(self, url: str, state_dir: Path, peer_address: str | None = None) -> None:
        self.replica_id = new_id()
        self._url = url
        self._peer_address = peer_address
        self._state_dir = state_dir
        self._postgres = Postgres(url, program=f"pointsman {self.replica_id}", connections=CONNECTIONS)
        tables = StateTables(self._postgres)
        self.values = PostgresKeyValues(tables)
        self.replicas = ReplicaTable(tables, Replica)
        self.audit_rows = PostgresRows(self._postgres, state_dir)
        self.audit_writer = PostgresWriter(self._postgres, self.replica_id, self._living)
        self.audit_writer.mover_environment = {move_program.DATABASE: url, move_program.REPLICA: self.replica_id}
        self._problem = ""
        self._ended_table = EndedSessions(tables)
        self._usage_table = UsageTable(tables, HALF_LIFE_S)
        self._ended: set[bytes] = set()  # sessions to tell the others of
        self._wake = asyncio.Event()
        self._tasks: TaskSet | None = None
        self._sessions: Sessions | None = None
        self._usage: UsageMemory | None = None
        self._sign_ins: SignIns | None = None

    def peers(self, keys: Sequence[str], port: int) -> Peers:
        """The gateways on this database, which reach one another at their ports."""
        self.replicas.keys = fingerprints(keys)
        address = own_address(self._url, port, self._peer_address)
        peers = Peers(Replica(self.replica_id, f"tcp:{address}"), self.replicas, keys)
        peers.heir_of = self.replicas.heir_of
        return peers

    def start(self, tasks: TaskSet, health: Health, sessions: Sessions, usage: UsageMemory, sign_ins: SignIns) -> None:
        """Share the state of these parts, in the background, until `close`."""
        self._tasks, self._sessions, self._usage, self._sign_ins = tasks, sessions, usage, sign_ins
        health.state_problem, health.keys_problem = self.state_problem, self.keys_problem
        sessions.on_end = self._session_ended
        usage.share()
        sign_ins.shared = sign_ins.used_codes = self.values
        tasks.start(self.TASK, self.run)

    async def run(self) -> None:
        """Exchange the state until it is cancelled."""
        self.replicas.earlier = await asyncio.to_thread(replicas_in, self._state_dir)
        usage_at = purged_at = float("-inf")
        while True:
            self._wake.clear()
            now = time.monotonic()
            steps: list[Callable[[], Awaitable[None]]] = [
                self._beat,
                self._exchange_ended,
                self._share_mark,
                self._look,
            ]
            if now - usage_at >= USAGE_EVERY_S:
                steps.append(self._exchange_usage)
            if now - purged_at >= PURGE_EVERY_S:
                steps.append(self._purge)
            if await self._done(steps):
                usage_at = now if now - usage_at >= USAGE_EVERY_S else usage_at
                purged_at = now if now - purged_at >= PURGE_EVERY_S else purged_at
            try:
                await asyncio.wait_for(self._wake.wait(), BEAT_S)
            except TimeoutError:
                continue

    def state_problem(self) -> str:
        """Why it cannot be used now; for `/health`."""
        return self._problem

    def keys_problem(self) -> str:
        """Which gateways on the database have none of our request keys; for `/health`."""
        if not (strangers := self.replicas.strangers):
            return ""
        named = ", ".join(f"{replica.id} at {replica.address.partition(':')[2]}" for replica in strangers[:_MOST_NAMED])
        more = f" and {len(strangers) - _MOST_NAMED} more" if len(strangers) > _MOST_NAMED else ""
        return (
            f"Gateways on the same database have none of this gateway's request keys: {named}{more}. Sessions, answers "
            "and links of one are refused by the other. Give all of them the same `state.request_keys`."
        )

    async def close(self) -> None:
        if self._tasks is not None:
            await self._tasks.cancel(self.TASK)
        await asyncio.to_thread(self._postgres.close)

    async def _done(self, steps: list[Callable[[], Awaitable[None]]]) -> bool:
        try:
            for step in steps:
                await step()
        except (StateAwayError, AuditDatabaseError, OSError) as error:
            if not self._problem:
                logger.error("the shared state cannot be used; the gateway goes on without: %s", error)  # noqa: TRY400
            self._problem = str(error)
            return False
        if self._problem:
            logger.warning("the shared state can be used again")
        self._problem = ""
        return True

    async def _beat(self) -> None:
        known = set(self.replicas.strangers)
        await asyncio.to_thread(self.replicas.beat)
        if set(self.replicas.strangers) - known:
            logger.error("%s", self.keys_problem())

    async def _exchange_ended(self) -> None:
        told, self._ended = self._ended, set()
        try:
            if told:
                await asyncio.to_thread(self._ended_table.add, told, LIFE_S)
            found = await asyncio.to_thread(self._ended_table.read)
        except StateAwayError:
            self._ended |= told
            raise
        if self._sessions is not None:
            self._sessions.end_elsewhere(dict(found))

    async def _look(self) -> None:
        """For the page, which shows the rows of others when they arrive."""
        await asyncio.to_thread(self.audit_rows.look)

    async def _share_mark(self) -> None:
        if self._sign_ins is not None:
            await self._sign_ins.share_mark()

    async def _exchange_usage(self) -> None:
        if self._usage is None:
            return
        choices = self._usage.take()
        try:
            if choices:
                await asyncio.to_thread(self._usage_table.add, choices)
        except StateAwayError:
            self._usage.give_back(choices)
            raise
        self._usage.merge(await asyncio.to_thread(self._usage_table.read))

    async def _purge(self) -> None:
        for table in (self.values, self.replicas, self._ended_table, self._usage_table):
            await asyncio.to_thread(table.purge)

    def _session_ended(self, digest: bytes) -> None:
        if len(self._ended) < _MOST_ENDED:
            self._ended.add(digest)
        self._wake.set()

    def _living(self, seconds: float) -> tuple[str, ...] | None:
        try:
            return self.replicas.seen_within(seconds)
        except StateAwayError:
            return None


def own_address(url: str, port: int, given: str | None) -> str:
    """Host and port at which the other gateways reach this one: as given, or on the way to the database."""
    host = given or own_host(url)
    return host if re.search(r":\d+\Z", host) else f"{host}:{port}"


def own_host(url: str) -> str:
    """The address of this machine on the way to the database: the other gateways are there, too."""
    parts = urlsplit(url)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname or "127.0.0.1", parts.port or 5432))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
