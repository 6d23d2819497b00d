"""What makes a gateway one of several: the state that they share, and the way from one to another."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.router.audit.pin_mark import PinMark
from pointsman.router.front.legacy.sessions import LIFE_S, Sessions
from pointsman.router.gateway.large_results.store import ResultStore
from pointsman.router.gateway.rates import Rates
from pointsman.router.observe.health import Health
from pointsman.router.observe.usage import UsageMemory
from pointsman.router.owner.sign_in.page_sign_ins import SignIns
from pointsman.router.serving import state_folder
from pointsman.router.serving.tasks import TaskSet
from pointsman.router.state.key_values import KeyValues
from pointsman.router.state.pin_store import PinStore, note_earlier_run
from pointsman.router.state.pins import Pins
from pointsman.router.state.sqlite_values import SqliteKeyValues, set_aside_if_broken

if TYPE_CHECKING:
    from pointsman.router.audit.log import AuditLog
    from pointsman.router.auth.server.server import AuthorizationServer
    from pointsman.router.downstream.oauth.service import ServerSignIns
    from pointsman.router.downstream.placement.placement import Placement
    from pointsman.router.downstream.server.server import DownstreamServer
    from pointsman.router.peers.peers import Peers
    from pointsman.router.shared_state import SharedState

ENDED_EVERY_S: Final = 2.0  # a replica that was not told, because it hung, reads it

logger = logging.getLogger(__name__)


@contextmanager
def held_folder(state_dir: Path, *, replicas: bool, number: int = 0) -> Iterator[Path | None]:
    """Hold the state folder, or as a replica a share of it and a folder of its own, which is returned.

    `number`: of the folder that the replica should have, if that is free.

    Raises StateFolderError.
    """
    state_folder.refuse_replica_folder(state_dir)
    with state_folder.locked(state_dir, shared=replicas):
        try:
            if not state_folder.replica_folders(state_dir):  # the first replica that runs has looked already
                note_earlier_run(state_dir)
        except OSError as error:
            raise state_folder.unwritable(state_dir, error) from error
        with state_folder.replica_folder(state_dir, number) if replicas else nullcontext() as replica_dir:
            yield replica_dir


def open_shared_state(config: GatewayConfig, state_dir: Path) -> SharedState | None:
    """Return the state in PostgreSQL, if there is one. Connects in the background: it may be away."""
    if config.state.database is None:
        return None
    from pointsman.router.shared_state import SharedState  # psycopg is an extra, and takes a tenth of a second

    return SharedState(config.state.database.get_secret_value(), state_dir, config.state.peer_address)


def open_values(shared: SharedState | None, state_dir: Path) -> KeyValues:
    """Return the key-value store: in PostgreSQL if there is one, else in a file that is created by the first value."""
    return shared.values if shared is not None else SqliteKeyValues(state_dir)


def open_server_sign_ins(
    values: KeyValues, current: CurrentConfig, keys: Sequence[str], stack: AsyncExitStack
) -> ServerSignIns:
    """Return the sign-ins to servers, which all gateways with the same store share. `stack` closes them."""
    from pointsman.router.downstream.oauth.client_document import client_document_url  # for few gateways
    from pointsman.router.downstream.oauth.service import ServerSignIns
    from pointsman.router.downstream.oauth.store import SignInStore

    sign_ins = ServerSignIns(SignInStore(values, keys), lambda: client_document_url(current.config))
    stack.push_async_callback(sign_ins.close)
    return sign_ins


def open_pins(
    shared: SharedState | None,
    current: CurrentConfig,
    state_dir: Path,
    replica_dir: Path | None,
    servers: Mapping[str, DownstreamServer],
) -> Pins:
    """Return the pins of the servers' definitions: in PostgreSQL, or in a file that replicas on the folder share."""
    values = open_values(shared, state_dir)

    def set_aside() -> None:
        if shared is None and (name := set_aside_if_broken(state_dir)):
            logger.error("the state database with the pins is damaged; renamed to %s, creating a new one", name)

    def instructions(server_id: str) -> str:
        server = servers.get(server_id)
        introduction = server.introduction if server is not None else None
        return introduction.instructions if introduction is not None else ""

    several = shared is not None or replica_dir is not None
    store = PinStore(values, state_dir, PinMark(state_dir, writes=shared is None))
    return Pins(store, current, shared=several, prepare=set_aside, instructions=instructions)


def stored_results(
    shared: SharedState | None, current: CurrentConfig, state_dir: Path, keys: Sequence[str], *, with_older: bool
) -> ResultStore:
    """Return the store of large results: files, which gateways on one database do not share.

    `with_older`: replicas of an earlier version may be on the same folder.
    """
    replica = shared.replica_id if shared is not None else ""
    return ResultStore(
        state_dir, keys, lambda: current.config.limits.result_store_bytes, replica=replica, with_older=with_older
    )


@asynccontextmanager
async def counted_rates(
    shared: SharedState | None, config: GatewayConfig, state_dir: Path, tasks: TaskSet
) -> AsyncGenerator[Rates]:
    """The rates, counted by all gateways on one database or state folder together, or by a single one."""
    if shared is not None:
        rates = Rates(shared.values, shared=True)
    else:
        rates = Rates(SqliteKeyValues(state_dir), shared=config.state.replicas)
    await rates.configure(config)
    tasks.start("rates", rates.run)
    try:
        yield rates
    finally:
        await tasks.cancel("rates")
        await rates.close()


@asynccontextmanager
async def authorization_server(
    shared: SharedState | None,
    current: CurrentConfig,
    started: GatewayConfig,
    audit: AuditLog,
    keys: Sequence[str],
    state_dir: Path,
    tasks: TaskSet,
) -> AsyncGenerator[AuthorizationServer | None]:
    """The gateway's own authorization server, whose grants all gateways know; None: it `started` without address."""
    if started.listen.public_url is None:
        yield None
        return
    from pointsman.router.auth.server.server import AuthorizationServer

    values, several = open_values(shared, state_dir), shared is not None or current.config.state.replicas
    server = AuthorizationServer(values, current, audit, keys, shared=several)
    if several:
        tasks.start("grants", server.run)
    try:
        yield server
    finally:
        await tasks.cancel("grants")
        await asyncio.to_thread(values.close)


def open_placement(config: GatewayConfig, replica_dir: Path | None) -> Placement | None:
    """Return what lets one replica on a state folder run a server for all; None: there is only one."""
    if replica_dir is None:
        return None
    from pointsman.router.downstream.placement.placement import Placement

    return Placement(replica_dir, config.workers)


def find_peers(
    shared: SharedState | None, state_dir: Path, replica_dir: Path | None, port: int, keys: Sequence[str]
) -> tuple[Peers | None, socket.socket | None]:
    """Return the other gateways, and the socket at which they reach this one, if that is not its port.

    Raises:
        StateFolderError: the socket cannot be made.
    """
    if shared is not None:
        return shared.peers(keys, port), None
    if replica_dir is None:
        return None, None
    from pointsman.router.peers.unix_sockets import peers_on_this_machine

    return peers_on_this_machine(state_dir, replica_dir, keys)


def start_sharing(
    shared: SharedState | None,
    replica_dir: Path | None,
    tasks: TaskSet,
    health: Health,
    sessions: Sessions,
    usage: UsageMemory,
    sign_ins: SignIns,
) -> None:
    """Share the state of these parts with the other gateways, if there may be any."""
    if shared is not None:
        shared.start(tasks, health, sessions, usage, sign_ins)
    elif replica_dir is not None:
        from pointsman.router.state.sqlite_values import SqliteKeyValues

        sign_ins.used_codes = SqliteKeyValues(replica_dir.parent.parent)
        _share_ended_sessions(tasks, sessions, replica_dir.parent)


def _share_ended_sessions(tasks: TaskSet, sessions: Sessions, folder: Path) -> None:
    """Know the sessions that replicas on a state folder have ended, also before this one started."""
    from pointsman.router.state.ended_file import EndedSessionsFile

    file = EndedSessionsFile(folder)

    def add(digest: bytes) -> None:
        try:
            found = file.read()
            sessions.end_elsewhere(found)
            if digest not in found:  # all replicas are told, and one has to write it
                file.add(digest, LIFE_S)
        except OSError as error:
            logger.error("could not store that a session has ended: %s", error)  # noqa: TRY400

    async def follow() -> None:
        while True:
            await asyncio.sleep(ENDED_EVERY_S)
            sessions.end_elsewhere(await asyncio.to_thread(file.read))

    try:
        sessions.end_elsewhere(file.read())
    except OSError as error:
        logger.error("could not read which sessions have ended: %s", error)  # noqa: TRY400
    sessions.on_end = add
    tasks.start("ended sessions", follow)
