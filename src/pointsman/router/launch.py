"""What the commands tell the daemon to serve, and what they want to hear of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct, field

from pointsman.config.model import GatewayConfig
from pointsman.router.serving.first_token import FirstToken
from pointsman.router.serving.log_lines import LogLines
from pointsman.router.serving.service_manager import ServiceManager


class Launch(Struct, frozen=True):
    """What to serve."""

    config: GatewayConfig
    config_path: Path
    load: Callable[[], GatewayConfig]  # reads `config_path` again, with environment and command line applied
    state_dir: Path
    ready: Callable[[str], None]  # called with the URL of /mcp when the port is open
    summary: Callable[[str], None] = lambda line: None  # called once the servers have listed their tools
    # Called when folder and port are ours, to write the first configuration; True: read `config_path` again.
    prepare: Callable[[GatewayConfig], bool] = lambda config: False
    first_token: FirstToken | None = None
    manager: ServiceManager = field(default_factory=ServiceManager)  # which may have started this process
    page: Callable[[str], None] | None = None  # called with a link that signs a browser in, when the port is open
    stderr: LogLines | None = None  # the format of the log there, if this process logs there
    replica_dir: Path | None = None  # of this replica, below `state_dir`, which it then shares; set by `serve`
    read_secrets_again: Callable[[], None] = lambda: None  # lets the next `load` ask commands and keyrings again

    worker: int = 0  # the number of one of several on this port, started by `workers.py`; 0: it is none
    began: GatewayConfig | None = None  # of a worker that is started again: what all of them were started with
    applied: Callable[[], None] = lambda: None  # called when another configuration takes effect
    drained: Callable[[], Awaitable[None]] | None = None  # waits until all workers have drained; then servers may end

    @property
    def own_dir(self) -> Path:
        """The folder for what belongs to this process alone: its URL, logs and sockets."""
        return self.replica_dir or self.state_dir
