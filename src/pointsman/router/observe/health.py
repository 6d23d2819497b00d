"""`/health`: whether the gateway is ready, and for callers with a token the state of each of their servers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pointsman import __version__
from pointsman.catalog.pins import unread_servers
from pointsman.catalog.service import ToolCatalogService
from pointsman.core.model import Caller, Json, ServerStatus
from pointsman.providers.cloud.provider import CloudSearchProvider
from pointsman.providers.semantic.tool_encoder import ToolEncoder
from pointsman.router.audit.database import databases_set_aside
from pointsman.router.audit.log import AuditLog
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.serving.reload import Reloader
from pointsman.router.serving.tasks import TaskSet
from pointsman.router.state.pins import Pins

_MOST_NAMED = 10  # servers in a text


class Health:
    def __init__(
        self,
        catalog: ToolCatalogService,
        cloud: CloudSearchProvider,
        encoder: ToolEncoder,
        fleet: Fleet,
        audit: AuditLog,
        reloader: Reloader,
        tasks: TaskSet,
        state_dir: Path,
    ) -> None:
        self._catalog = catalog
        self._cloud = cloud
        self._encoder = encoder
        self._fleet = fleet
        self._audit = audit
        self._reloader = reloader
        self._tasks = tasks
        self._state_dir = state_dir
        self.open = False  # True while the port accepts requests
        self.state_problem: Callable[[], str] = lambda: ""  # of the state that gateways share
        self.keys_problem: Callable[[], str] = lambda: ""  # of the request keys that they should share
        self.pins: Pins | None = None
        self.replicas: Callable[[], Json] | None = None  # this one and the others
        self.draining = False  # requests are still accepted, but a proxy should send them elsewhere

    @property
    def ready(self) -> bool:
        return self.open and not self.draining and not self._audit.failing

    def report(self, caller: Caller | None, *, to_owner: bool = False) -> Json:
        """Return the report; without a caller only whether the gateway is ready, else the servers that it may use.

        Only the owner sees paths.
        """
        report: Json = {"ready": self.ready}
        if self.draining:
            report["draining"] = True
        if caller is None:
            return report
        report["version"] = __version__
        if self.replicas is not None:
            report["replicas"] = self.replicas()
        report |= self._audit_problems()
        if problem := self.state_problem():
            report["state_database"] = f"{problem} {self._goes_on(to_owner=to_owner)}"
        if problem := self.keys_problem():
            report["request_keys"] = problem
        if broken := databases_set_aside(self._state_dir):
            report["audit_database"] = (
                f"A broken state database was set aside as `{broken[-1]}` in the state folder and a new one opened. "
                "Earlier rows are in that file: recover them with `sqlite3 FILE .recover`, or move it away."
            )
        report |= self._pins_problems(to_owner=to_owner)
        if self._encoder.failed:
            report["semantic_search"] = (
                "The sentence encoder could not be used, so `search.semantic` has no effect. "
                "The gateway's log has the reason; restart the gateway to try again."
            )
        report |= self._reloader.report(to_owner=to_owner) | self._tasks.report()
        cloud_search = self._cloud_search(caller)
        if cloud_search:
            report["cloud_search"] = cloud_search
        report["servers"] = {
            server_id: _shown(status)
            for server_id, status in self._fleet.statuses().items()
            if self._catalog.rights.may_use_server(caller, server_id)
        }
        return report

    def _goes_on(self, *, to_owner: bool) -> str:
        """What works while the database of shared state is away."""
        with_what = "with the state that this gateway knows"
        if not (unread := self._unread):
            return f"Calls go on, {with_what}."
        named = f" ({', '.join(f'`{one}`' for one in unread[:_MOST_NAMED])})" if to_owner else ""
        without = f"Servers of which it is not known what was approved{named} offer no tools until it is back."
        return f"{without} Calls of others go on, {with_what}."

    @property
    def _unread(self) -> list[str]:
        """The servers of which it is not known what was approved."""
        return sorted(unread_servers(self.pins, self._fleet.servers)) if self.pins is not None else []

    def _pins_problems(self, *, to_owner: bool) -> Json:
        report: Json = {}
        if self.pins is None:
            return report
        if self.pins.problem:
            reason = f" {self.pins.problem}" if to_owner else ""  # it may name a path
            report["pins"] = (
                "The state database with the pins cannot be used. Tools that this gateway knows to be approved work, "
                f"and no others.{reason}"
            )
        elif lost := self.pins.lost:
            count = "1 server waits" if len(lost) == 1 else f"{len(lost)} servers wait"
            report["pins"] = (
                "The state database with the pins was missing or damaged at the last start, so nothing is known of "
                f"what was approved before: {count} for `pointsman pin approve`. `pointsman pin list` names them."
            )
        waiting = {one: len(self.pins.held(one)) for one in self._fleet.servers} if to_owner else {}
        held = {one: number for one, number in waiting.items() if number and one not in self._unread}
        if held:
            named, first = ", ".join(f"{number} of `{one}`" for one, number in [*held.items()][:_MOST_NAMED]), min(held)
            report["pins_waiting"] = (
                f"Definitions are new or changed and wait for approval: {named}. `pointsman pin diff {first}` shows "
                f"what differs, and `pointsman pin approve {first}` approves it."
            )
        return report

    def _audit_problems(self) -> Json:
        report: Json = {}
        if self._audit.journal_full:
            report["audit"] = (
                "The journal has reached `audit.journal_bytes`, so calls are refused until the state database takes "
                "rows again. The gateway's log has the reason why it does not."
            )
        elif self._audit.failing:
            report["audit"] = "The journal cannot be written, so calls are refused. The gateway's log has the reason."
        if self._audit.rows_held_back:
            report["audit_rows"] = (
                "The state database takes no audit rows, so they stay in the journal. The gateway's log has the reason."
            )
        return report

    def _cloud_search(self, caller: Caller) -> Json | None:
        """Return the state for the caller's project, or None if it is neither configured nor used."""
        state, reason = self._cloud.state_for(caller.project_id)
        if state == "unconfigured" and self._catalog.rights.strategy(caller) != "cloud":
            return None
        return {"state": state, "reason": f"The service {reason}."} if reason else {"state": state}


def _shown(status: ServerStatus) -> Json:
    since = datetime.fromtimestamp(status.shown_since, UTC).isoformat("T", "seconds")
    shown: Json = {"state": status.shown, "since": since}
    if status.reason:
        shown["reason"] = status.reason
    return shown
