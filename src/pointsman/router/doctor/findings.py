"""What a check looks at, and what it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pointsman.config.model import GatewayConfig
from pointsman.router.audit.kept import READ_ERRORS, AuditDatabaseError
from pointsman.router.audit.query import Filter, read_rows
from pointsman.router.audit.rows import Row
from pointsman.router.audit.source import audit_source
from pointsman.router.serving.state_folder import RunningGateway
from pointsman.router.serving.workers_file import WorkersNote

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`problem`: something is wrong, and the message says what to do. `note`: worth knowing."""

    check: str
    level: Level
    message: str
    lines: tuple[str, ...] = ()  # what a program said, such as a server's last words


@dataclass(slots=True)
class AuditAttempt:
    """Whether the audit could be read, for all checks of a run: a database that is away is tried once."""

    failure: Exception | None = None


@dataclass(frozen=True, slots=True)
class Inspected:
    """What to check. `running` and `status` are those of the gateway that uses the state folder, if one does."""

    config: GatewayConfig | None  # None: it could not be loaded, for the reasons in `problems`
    problems: tuple[str, ...]
    config_path: Path | None
    state_dir: Path
    token: str | None = None  # with which a client would connect
    running: RunningGateway | None = None
    status: Mapping[str, Any] | None = None  # the answer of the owner's channel
    tools: Sequence[str] = ()  # the keys of all tools that its servers list
    held_tools: Sequence[str] = ()  # of those that wait for approval
    channel_problem: str = ""  # why there is no status
    workers: WorkersNote | None = None  # what the parent of workers says of them, if there is one
    client: str | None = None  # of which the file is checked, too
    environ: Mapping[str, str] = field(default_factory=dict)
    audit: AuditAttempt = field(default_factory=AuditAttempt)

    @property
    def used_config(self) -> Path | None:
        """The file that the running gateway was started with; None: none runs, or it is of an earlier version."""
        if self.status is not None:
            return Path(self.status["configuration"])
        return Path(self.running.configuration) if self.running is not None and self.running.configuration else None

    @property
    def other_replicas(self) -> list[Mapping[str, Any]]:
        """What the running gateway says of the other replicas: each has a `status`, or a `problem`."""
        told = self.status.get("replicas", ()) if self.status is not None else ()
        return [one for one in told if not one["this"]]

    def read_audit(self, wanted: Filter | None = None, *, newest: int) -> list[Row]:
        """Return the newest rows: of the files alone, if the address of the database was not read.

        Raises one of READ_ERRORS, the same each time after the first.
        """
        if self.audit.failure is not None:
            raise self.audit.failure
        unread = self.config is None or self.config.unread_secrets("state.database")
        database = None if self.config is None or unread else self.config.state.database
        try:
            return list(read_rows(audit_source(self.state_dir, database), wanted, newest=newest))
        except READ_ERRORS as error:
            self.audit.failure = error
            raise

    @property
    def database_is_away(self) -> bool:
        """Whether a check could not use the database. It has said so; what follows from that is not said again."""
        return isinstance(self.audit.failure, AuditDatabaseError)

    @property
    def configured_url(self) -> str | None:
        """Where a gateway with this configuration serves clients; None: it has none, or leaves the port open."""
        if self.config is None or not self.config.listen.port:
            return None
        host = self.config.listen.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.config.listen.port}/mcp"


def unread_text(keys: Sequence[str], consequence: str) -> str:
    """The note for a check that would need the value of a command or a keyring."""
    return f"`{keys[0]}` is read from a command or a keyring by the gateway only, so {consequence}."


Check = Callable[[Inspected], list[Finding] | Awaitable[list[Finding]]]
