"""A gateway under a steady mix of requests of both eras, with reloads, crashing and changing servers."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gateway import USUAL
from bench.process import cpu_ms, http_servers
from bench.soak.clients import Client, Journal
from bench.soak.figures import Figures
from bench.soak.reconcile import reconcile
from pointsman.router.audit.query import read_rows
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.raw_client import ERAS

RATE = 30.0  # requests a second: far below what one core can do, so that nothing queues up
CLIENTS = 12  # requests under way at most
RELOAD_S = 20.0
SAMPLE_S = 1.0
CRASH = 0.02  # chance in each request of the crashing server
CHURN_S = 3.0
SHOWN = 20  # problems
Configs = Sequence[Mapping[str, Any]]
SERVER = Path(__file__).with_name("server.py")


async def mixed_load(seconds: float, rate: float) -> bool:
    """Whether clients, servers and audit agree, and nothing grew."""
    print(f"Mixed load: {seconds:.0f} s, {rate:.0f} requests/s, a reload every {RELOAD_S:.0f} s", flush=True)
    journal = Journal()
    with tempfile.TemporaryDirectory(prefix="pointsman-soak-") as name:
        folder = Path(name)
        async with http_servers(1, 19) as http:
            configs = [_config(folder, http.urls[0], visitor=there) for there in (True, False)]
            async with gateway_process(folder, configs[0], env=USUAL) as gateway:
                figures = Figures(gateway.pid, seconds)
                reloads = await _run(gateway, configs, journal, figures, seconds, rate)
                cpu_s = cpu_ms(gateway.pid) / 1000
                await gateway.stop()
        problems = reconcile(journal.sent, _executed(folder), read_rows(gateway.state_dir))
    print(f"  {len(journal.sent):,} requests, {reloads} reloads, {cpu_s / seconds:.0%} of a core: {journal.summary()}")
    problems += figures.problems()
    for problem in problems[:SHOWN]:
        print(f"  ! {problem}")
    print(f"  {len(problems)} problems" if problems else "  clients, servers' logs and audit rows agree", flush=True)
    return not problems


def _config(folder: Path, http: str, *, visitor: bool) -> dict[str, Any]:
    servers = {
        "http": {"url": http},
        "legacy": _server(folder, "legacy", "legacy"),
        "modern": _server(folder, "modern", "modern"),
        "crashing": _server(folder, "crashing", "legacy", "--crash", str(CRASH)),
        "churning": _server(folder, "churning", "modern", "--churn", str(CHURN_S)),
    }
    if visitor:
        servers["visitor"] = _server(folder, "visitor", "legacy")
    return {"servers": servers, "audit": {"arguments": True}, "limits": {"session_idle_s": 30}}


def _server(folder: Path, name: str, era: str, *options: str) -> dict[str, Any]:
    args = ["-S", str(SERVER), "--era", era, "--log", str(folder / f"{name}.executed"), *options]
    return {"command": sys.executable, "args": args, "era": era}


async def _run(
    gateway: GatewayProcess, configs: Configs, journal: Journal, figures: Figures, seconds: float, rate: float
) -> int:
    """Returns the number of reloads."""
    ends = time.monotonic() + seconds
    clients = [Client(gateway, ERAS[number % 2], journal, random.Random(number)) for number in range(CLIENTS)]
    sampling = asyncio.create_task(_sample(figures, journal))
    reloading = asyncio.create_task(_reload(gateway, configs, ends))
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(_keep_sending(client, CLIENTS / rate, number / rate, ends))
    sampling.cancel()
    for client in clients:
        await client.close()
    return await reloading


async def _keep_sending(client: Client, every_s: float, offset_s: float, ends: float) -> None:
    """At fixed times, whatever the answers take; a client that is late sends the next one at once."""
    due = time.monotonic() + offset_s
    while due < ends:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await client.send_one()
        due = max(due + every_s, time.monotonic() - every_s)


async def _sample(figures: Figures, journal: Journal) -> None:
    while True:
        figures.take(len(journal.sent))
        await asyncio.sleep(SAMPLE_S)


async def _reload(gateway: GatewayProcess, configs: Configs, ends: float) -> int:
    """Takes the visitor away and brings it back, as edits of the file do."""
    reloads = 0
    while time.monotonic() + RELOAD_S < ends:
        await asyncio.sleep(RELOAD_S)
        reloads += 1
        gateway.write_config(configs[reloads % 2])
    return reloads


def _executed(folder: Path) -> Counter[str]:
    return Counter(line for log in folder.glob("*.executed") for line in log.read_text().splitlines())
