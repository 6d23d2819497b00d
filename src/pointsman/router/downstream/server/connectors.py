"""Turns an entry of `servers` into a function that opens its connections."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from pydantic import SecretStr

from pointsman.config.mask import hidden_values
from pointsman.config.model import GatewayConfig, Limits
from pointsman.config.sections.server import Server
from pointsman.router.downstream.bundled import bundled_environment, secret_values
from pointsman.router.downstream.connection import Connect, Connection, OnNotification, StoredTokens
from pointsman.router.downstream.server.caller_accounts import CallerAccounts
from pointsman.router.downstream.stderr_log import ServerLogs, StderrLog
from pointsman.router.downstream.stdio.child import Command, ProcessStarter
from pointsman.router.downstream.stdio.connection import connect_stdio
from pointsman.router.downstream.stdio.launch import Confined
from pointsman.router.downstream.talk.server_memory import ServerMemory, ServerRecord
from pointsman.router.serving.in_flight import AnswerMemory, InFlight

if TYPE_CHECKING:
    from pointsman.router.downstream.oauth.service import ServerSignIns
    from pointsman.router.downstream.oauth.token_source import TokenSource
    from pointsman.router.downstream.placement.placement import Placement

PROBE_S = 5.0  # how long to wait for an answer to `server/discover` before `initialize` is tried as well


class Connectors(Struct, frozen=True):
    """Fits `fleet.MakeConnect`. The starter reports children to the guard, so that none outlives us."""

    starter: ProcessStarter
    state_folder: Path  # holds the index of a bundled archive whose entry names no `db`
    logs: ServerLogs
    probe_s: float = PROBE_S
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    memory: ServerMemory = field(default_factory=ServerMemory)
    in_flight: InFlight = field(default_factory=lambda: InFlight(lambda: Limits().in_flight_bytes))
    state_database: SecretStr | None = None  # holds a bundled archive whose entry names no store
    sign_ins: Callable[[], ServerSignIns] | None = None  # called for the first server with `oauth`
    placement: Placement | None = None  # of servers that one worker runs for all
    config: Callable[[], GatewayConfig] | None = None  # the present one, for callers with accounts of their own

    def __call__(self, server_id: str, server: Server, limits: Limits, apps: bool = False) -> Connect:
        record, answers = self.memory.of(server_id, server), self.in_flight.answers()
        if server.url is None:
            placement = self.placement if self.placement is not None and self.placement.applies(server) else None
            command, stderr = self.command_of(server_id, server), self.logs.of(server_id)
            self.logs.place(server_id, self.state_folder if placement is not None else None)
            stderr.hidden = hidden_values(server, self.environ, self.state_database if server.bundled else None)
            connect = self._stdio(command, server, limits, stderr, record, answers, apps)
            return connect if placement is None else placement.shared(server_id, connect, limits)
        headers, tokens = secret_values(server.headers), self._token_source(server_id, server)
        return self._remote(server, limits, record, answers, apps, headers, tokens)

    def accounts(self, server_id: str, server: Server, limits: Limits, apps: bool = False) -> CallerAccounts | None:
        """Fits `fleet.MakeAccounts`. None: all callers use one account."""
        if server.credentials == "shared" or server.url is None or self.config is None:
            return None
        record, answers = self.memory.of(server_id, server), self.in_flight.answers()
        connect_with = partial(self._remote, server, limits, record, answers, apps)
        return CallerAccounts(server_id, server, self.config, connect_with, self.sign_ins)

    def command_of(self, server_id: str, server: Server) -> Command:
        if server.bundled is None:
            assert server.command is not None  # the model guarantees it
            argv, env = (server.command, *server.args), secret_values(server.env)
            return Command(
                argv, env, server.cwd, server.inherit_env, Confined(server.sandbox, server.limits, server_id)
            )
        env = bundled_environment(server_id, server, self.state_folder, self.environ, self.state_database)
        # -P: a folder called `pointsman` in the working directory must not shadow the package.
        argv = (sys.executable, "-P", "-m", f"pointsman.{server.bundled}", *server.args)
        return Command(argv, env, server.cwd, server.inherit_env)

    def _stdio(
        self,
        command: Command,
        server: Server,
        limits: Limits,
        stderr: StderrLog,
        record: ServerRecord,
        answers: AnswerMemory,
        apps: bool,
    ) -> Connect:
        async def connect(on_notification: OnNotification) -> Connection:
            return await connect_stdio(
                command,
                starter=self.starter,
                era=server.era,
                limits=limits,
                on_notification=on_notification,
                probe_s=self.probe_s,
                stderr=stderr,
                record=record,
                memory=answers,
                apps=apps,
            )

        return connect

    def _token_source(self, server_id: str, server: Server) -> TokenSource | None:
        if server.oauth is None or self.sign_ins is None:
            return None
        return self.sign_ins().source(server_id, server)

    def _remote(
        self,
        server: Server,
        limits: Limits,
        record: ServerRecord,
        answers: AnswerMemory,
        apps: bool,
        headers: Mapping[str, str],
        tokens: StoredTokens | None,
    ) -> Connect:
        """Of a server with a `url`. What speaks its transport is imported on demand."""
        url = server.url
        assert url is not None
        opened: Callable[..., Awaitable[Connection]]
        if server.transport == "sse":
            from pointsman.router.downstream.http.sse import connect_sse

            opened = partial(connect_sse, url, headers)
        else:
            from pointsman.router.downstream.http.connect import connect_http

            opened = partial(connect_http, url, headers, probe_s=self.probe_s)

        async def connect(on_notification: OnNotification) -> Connection:
            if tokens is not None:
                await tokens.reload()  # somebody may have signed in or out, here or at another replica
            return await opened(
                era=server.era,
                limits=limits,
                on_notification=on_notification,
                record=record,
                memory=answers,
                apps=apps,
                authorizer=tokens,
            )

        return connect
