"""Starts one server outside a gateway, for `pointsman server test`, and ends it again."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path

from pointsman.catalog.lists.pages import MalformedListError, walk
from pointsman.catalog.names import display_name
from pointsman.config.model import GatewayConfig
from pointsman.config.secrets import mask_secrets
from pointsman.core.errors import DownstreamError, GatewayError
from pointsman.core.model import Json
from pointsman.router.downstream.server.connectors import Connectors
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.downstream.server.server import DownstreamServer
from pointsman.router.downstream.stderr_log import ServerLogs
from pointsman.router.downstream.stdio.child import SystemProcesses
from pointsman.router.downstream.stdio.guard import Guard
from pointsman.router.downstream.stdio.launch import protected_paths
from pointsman.router.owner.description import kind_of, target_of, with_path

LOG_LINES = 20


def try_server(config: GatewayConfig, server_id: str, config_path: Path, state_dir: Path) -> Json:
    """Return the description that `operations.test_server` returns, with the last lines of its stderr in `log`."""
    logging.getLogger("pointsman").addHandler(logging.NullHandler())  # the answer replaces the log
    return asyncio.run(_try(config, server_id, config_path, state_dir))


async def _try(config: GatewayConfig, server_id: str, config_path: Path, state_dir: Path) -> Json:
    entry = config.servers[server_id]
    alone = config.model_copy(update={"servers": {server_id: entry.model_copy(update={"enabled": True})}})
    guard, logs = Guard(), ServerLogs(state_dir)
    await guard.start()
    starter = SystemProcesses(guard, protected=protected_paths(state_dir, config_path))
    connectors = Connectors(starter, state_dir, logs, state_database=config.state.database)
    fleet = Fleet(connectors, clock=time.time, on_change=lambda *_: None)
    try:
        await fleet.apply(alone)
        with suppress(TimeoutError):
            async with asyncio.timeout(config.timeouts_of(entry).connect_s + 1):
                await fleet.settled()
        server = fleet.servers[server_id]
        tools, failure = await _count_tools(server)
        introduction, log = server.introduction, logs.of(server_id)
        why = ": ".join(filter(None, (with_path(server.status.reason, entry), mask_secrets(log.last_cause))))
        return {
            "id": server_id,
            "name": display_name(server_id, entry),
            "kind": kind_of(entry),
            "target": target_of(entry),
            "enabled": True,
            "state": server.status.state,
            "reason": failure or why,
            "protocol": introduction.version if introduction is not None else None,
            "tools": tools,
            "emptyVariables": list(config.empty_variables(server_id)),
            "log": log.tail(LOG_LINES),
        }
    finally:
        await fleet.close(0.0)
        await guard.close()


async def _count_tools(server: DownstreamServer) -> tuple[int | None, str]:
    if server.status.state != "running":
        return None, ""
    try:
        return len((await walk(lambda cursor: server.list_page("tools/list", cursor))).items), ""
    except (GatewayError, DownstreamError, MalformedListError) as error:
        return None, f"it listed no tools: {error}"
