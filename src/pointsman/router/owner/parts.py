"""The parts of the daemon that the owner's operations and the page use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pointsman.catalog.offers import Offers
from pointsman.catalog.service import ToolCatalogService
from pointsman.config.model import CurrentConfig
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.query import Source
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.downstream.stderr_log import ServerLogs
from pointsman.router.gateway.gateway import PointsmanGateway
from pointsman.router.observe.context_use import ContextUse
from pointsman.router.observe.health import Health
from pointsman.router.observe.metrics import Metrics
from pointsman.router.observe.recent import RecentFigures
from pointsman.router.owner.sign_in.page_sign_ins import SignIns
from pointsman.router.serving.reload import Reloader
from pointsman.router.state.pins import Pins

if TYPE_CHECKING:
    from pointsman.router.auth.server.server import AuthorizationServer
    from pointsman.router.downstream.oauth.service import ServerSignIns
    from pointsman.router.downstream.placement.placement import Placement
    from pointsman.router.peers.peers import Peers


class Parts(Struct, frozen=True):
    """Built once; each part changes in place."""

    current: CurrentConfig
    config_path: Path
    state_dir: Path
    url: str
    started: float  # wall clock
    catalog: ToolCatalogService
    fleet: Fleet
    logs: ServerLogs
    gateway: PointsmanGateway
    metrics: Metrics
    context_use: ContextUse
    health: Health
    reloader: Reloader
    audit: AuditLog
    sign_ins: SignIns
    recent: RecentFigures
    audit_rows: Source  # where the audit is read
    pins: Pins
    offers: Offers
    server_sign_ins: Callable[[], ServerSignIns]  # imported at first use
    authorization: AuthorizationServer | None = None  # if clients can sign in here
    peers: Peers | None = None  # the other replicas, if there may be any
    worker: int = 0  # the number of this one, if it is one of several workers
    workers: int = 1  # how many were started
    placement: Placement | None = None  # of servers that one replica runs for all
    editing: asyncio.Lock = field(default_factory=asyncio.Lock)  # of the configuration file, by the daemon itself
    read_secrets_again: Callable[[], None] = lambda: None  # lets the next reload ask commands and keyrings again

    def address(self) -> str:
        """Where browsers find the gateway: `listen.public_url`, or this machine."""
        return self.current.config.listen.public_url or self.url.removesuffix("/mcp")
