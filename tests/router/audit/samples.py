"""Requests and rows for the audit's tests."""

from __future__ import annotations

from pathlib import Path

from pointsman.config.model import Audit, CurrentConfig, GatewayConfig
from pointsman.core.model import Caller
from pointsman.core.seams import Client, FrontRequest
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.query import read_rows
from pointsman.router.audit.rows import Intent, Outcome, Row
from pointsman.router.audit.segments import FOLDER

SECRET = "ptm_" + "aB3-_" * 8 + "xyz"  # 43 characters, as `token create` makes them


def request(
    request_id: str = "r1",
    *,
    token: str = "laptop",
    project: str | None = "research",
    client: str = "claude-code",
    method: str = "tools/call",
) -> FrontRequest:
    return FrontRequest(
        request_id, method, {}, Caller(token, project), Client(client, "legacy", "2025-11-25", {}, None, None)
    )


def recording_arguments() -> CurrentConfig:
    return CurrentConfig(GatewayConfig(audit=Audit(arguments=True)))


def open_log(state_dir: Path, **options: object) -> AuditLog:
    return AuditLog(Journal(state_dir / FOLDER), **options)  # type: ignore[arg-type]


def rows(state_dir: Path) -> list[Row]:
    return list(read_rows(state_dir))


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Observed:
    """Writes down what an observer is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Intent, Outcome]] = []
        self.failures = 0

    def finished(self, intent: Intent, outcome: Outcome) -> None:
        self.calls.append((intent, outcome))

    def journal_failed(self) -> None:
        self.failures += 1
