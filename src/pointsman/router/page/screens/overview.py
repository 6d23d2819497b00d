"""The first screen: are the servers ready, what is going on, what is saved, and what is the next step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.responses import Response

from pointsman.core.model import Json
from pointsman.router.audit.kept import READ_ERRORS
from pointsman.router.audit.query import Filter, read_rows
from pointsman.router.clients.dialects import DIALECTS
from pointsman.router.clients.entry import DEFAULT_NAME, Connection, entry_for, own_command
from pointsman.router.clients.setup import snippet
from pointsman.router.observe.metrics import Metrics
from pointsman.router.owner.operations import OWNER, status
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.sign_in.page_sign_ins import SIGN_IN
from pointsman.router.page import charts
from pointsman.router.page.registry import Screen
from pointsman.router.page.view import View

_LINK = "opened a link to this page that no longer works"
MAX_TOKENS = 50  # whose first steps are looked for
LOOK_AGAIN_S = 2.0  # in the audit, for steps that were not taken yet
_WHY = {
    "unauthorized": "sends no token, or one that is unknown or has expired",
    "token_expired": "sends an access token that has expired",
    "token_audience": "sends an access token for another service",
    "token_issuer": "sends an access token of an unknown issuer",
    "token_signature": "sends an access token with a wrong signature",
    "denied": "may not act for this project",
    "unknown_tool": "asks for a tool that it may not use, or that does not exist",
    "rate_limited": "sends more than its share",
    "unknown_host": "uses a name that the gateway does not have",
    "unknown_origin": "is a web page that may not use the gateway",
    "unknown_replica": "says that it is a replica of the gateway, and is not",
}


@dataclass(slots=True)
class _Steps:
    """What has ever happened, as far as the audit remembers it; a step that was taken stays taken."""

    discovered: bool = False
    called: bool = False
    looked: float = float("-inf")


_steps: dict[Path, _Steps] = {}  # by the state folder


async def show(view: View) -> Response:
    parts = view.parts
    found = await status(parts, at_once=True)
    figures = await parts.metrics.figures()
    minutes = parts.recent.minutes(figures)
    servers = found["servers"]["list"]
    return view.render(
        "overview.html",
        status=found,
        troubled=[one for one in servers if one["enabled"] and one["state"] != "running"],
        refused=list(_refused(parts.metrics)),
        per_minute=minutes[-1].calls,
        calls_chart=charts.bars(
            [(minute.calls, minute.errors) for minute in minutes],
            label=f"Calls a minute in the last hour; {minutes[-1].calls} in the last minute",
            first="an hour ago",
            last="now",
        ),
        latency_chart=charts.lines(
            [
                (name, [minute.latencies_ms[index] if minute.latencies_ms else None for minute in minutes])
                for index, name in ((2, "p99"), (1, "p95"), (0, "p50"))
            ],
            label="Latency of calls in the last hour: median, 95th and 99th percentile",
            unit=" ms",
            first="an hour ago",
            last="now",
        ),
        steps=await _first_steps(parts, found),
        snippets=list(_snippets(view)),
    )


def _refused(metrics: Metrics) -> Iterable[Json]:
    now_ms = time.time() * 1000
    for (client, token, code), last in reversed(metrics.refusals.items()):
        yield {
            "client": client or ("A browser" if last.method == SIGN_IN else "A client without a name"),
            "token": token,
            "why": _LINK if last.method == SIGN_IN else _WHY.get(code or "", f"was refused ({code})"),
            "count": last.count,
            "ago_s": (now_ms - last.time_ms) / 1000,
        }


async def _first_steps(parts: Parts, found: Json) -> list[Json] | None:
    """The steps of a first run; None: all of them were taken."""
    taken = _steps.setdefault(parts.state_dir, _Steps())
    if time.monotonic() - taken.looked > LOOK_AGAIN_S and not (taken.discovered and taken.called):
        taken.looked = time.monotonic()
        taken.discovered = taken.discovered or await asyncio.to_thread(_has, parts, "discovery")
        taken.called = taken.called or await asyncio.to_thread(_has, parts, "execute")
    servers = found["servers"]
    connected = found["context"]["conversations"] > 0 or taken.discovered
    steps = [
        {"title": "Add a server", "done": servers["enabled"] > 0, "to": "/page/servers#add"},
        {"title": "See it run", "done": servers["running"] > 0, "to": "/page/servers"},
        {"title": "Connect a client", "done": connected, "to": "#connect"},
        {"title": "Let a model find a tool", "done": taken.discovered, "to": "#connect"},
        {"title": "Let it call one", "done": taken.called, "to": "#connect"},
    ]
    return None if all(step["done"] for step in steps) else steps


def _has(parts: Parts, kind: str) -> bool:
    """Whether a client did this; what the owner does on the page or in a terminal is no step.

    False also if the audit cannot be read; `status` then says so.
    """
    try:
        return any(
            row.outcome == "ok"
            for token in [*parts.current.config.tokens][:MAX_TOKENS]
            for row in read_rows(parts.audit_rows, Filter(kind=kind, outcome="ok", token=token), newest=1)
        )
    except READ_ERRORS:
        return False


def _snippets(view: View) -> Iterable[Json]:
    """The entry for each client, in its own form, with a placeholder for the token."""
    for dialect in DIALECTS.values():
        connection = Connection(view.client_url) if dialect.http else Connection("", command=(*own_command(), "stdio"))
        yield {
            "name": dialect.name,
            "title": dialect.title,
            "file": dialect.user_files[0],
            "text": snippet(dialect, DEFAULT_NAME, entry_for(dialect, connection)),
            "after": dialect.after,
        }


async def _figures(parts: Parts, _: str) -> object:
    figures = await parts.metrics.figures()
    minute = int(time.monotonic() // 10) if figures.total.calls else 0  # the chart moves on
    return figures.total.calls, figures.refused, figures.discoveries, minute


async def _servers(parts: Parts, _: str) -> Any:
    """State, tools and restarts of all servers."""
    listed = {server_id: parts.catalog.last_list(server_id) for server_id in parts.fleet.servers}
    counts = {server_id: len(each.items) if each is not None else None for server_id, each in listed.items()}
    return {
        server_id: (one.status.shown, one.status.reason, one.restarts, counts[server_id])
        for server_id, one in parts.fleet.servers.items()
    }


async def _problems(parts: Parts, _: str) -> object:
    """What is wrong with the gateway itself, such as a file that was rejected."""
    report = parts.health.report(OWNER, to_owner=True)
    return {name: text for name, text in report.items() if isinstance(text, str)}


SCREEN = Screen(
    name="overview",
    title="Overview",
    icon="home",
    path="/",
    routes=[("GET", "/", show)],
    topics={"figures": _figures, "servers": _servers, "problems": _problems},
)
