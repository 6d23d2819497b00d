"""Gateways on one PostgreSQL: one audit, sessions and codes that hold for all, and what happens while it is away."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.router.owner.client import ask
from tests.gateway_process import GatewayProcess, gateway_process, own_environment
from tests.postgres import Postgres
from tests.router.conftest import Shop, workshop
from tests.router.raw_client import LEGACY

pytestmark = pytest.mark.replicas

KEY = "0123456789abcdef" * 4
SECRET = "ptm_" + "x" * 43
MOVED_S = 30.0


@asynccontextmanager
async def gateways(folder: Path, url: str, count: int = 2, **config: Any) -> AsyncIterator[list[Shop]]:
    """Each with a state folder of its own."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=30))
        shops = []
        for number in range(count):
            own = folder / str(number)
            own.mkdir(exist_ok=True)
            full = {
                "servers": {"shop": workshop(own / "trace")},
                "state": {"database": url, "request_keys": [KEY]},
                **config,
            }
            gateway = await stack.enter_async_context(gateway_process(own, full, token=SECRET))
            shops.append(Shop(gateway, http, own / "trace"))
        yield shops


async def rows_until(shop: Shop, count: int, *options: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(MOVED_S):
        while len(rows := await shop.rows("--kind", "execute", "--outcome", "ok", *options)) < count:
            await asyncio.sleep(0.2)
    return rows


async def initialize(shop: Shop) -> str:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    response = await shop.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    return response.headers["mcp-session-id"]


async def ping(shop: Shop, session: str) -> int:
    message = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    return (await shop.post(message, {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY})).status_code


async def command(gateway: GatewayProcess, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", *arguments, "--state-dir", str(gateway.state_dir)),
        cwd=gateway.state_dir.parent,
        env=own_environment(gateway.state_dir.parent),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return printed.decode()


async def test_the_audit_of_all_gateways_is_read_from_each(tmp_path: Path, database_url: str) -> None:
    async with gateways(tmp_path, database_url) as shops:
        for shop in shops:
            await shop.execute("shop:colour")
        seen = [await rows_until(shop, 2) for shop in shops]
        assert seen[0] == seen[1]
        assert len({row["replica"] for row in seen[0]}) == 2
        assert [row["seq"] for row in seen[0]] == sorted(row["seq"] for row in seen[0])
        page = await on_page(shops[0], "/page/activity")
        assert page.count("shop:colour") >= 2


async def on_page(shop: Shop, path: str) -> str:
    link = (await asyncio.to_thread(ask, shop.gateway.state_dir, "page_link"))["url"]
    entered = await shop.http.get(link)
    cookie = entered.headers["set-cookie"].partition(";")[0]
    return (await shop.http.get(shop.gateway.base_url + path, headers={"Cookie": cookie})).text


async def test_a_session_ends_everywhere_and_for_good(tmp_path: Path, database_url: str) -> None:
    async with gateways(tmp_path, database_url) as shops:
        session = await initialize(shops[0])
        assert await ping(shops[1], session) == 200
        ended = await shops[0].http.delete(
            shops[0].gateway.url, headers={**shops[0].gateway.headers, "Mcp-Session-Id": session}
        )
        assert ended.status_code < 300
        async with asyncio.timeout(MOVED_S):
            while await ping(shops[1], session) != 404:
                await asyncio.sleep(0.1)
    async with gateways(tmp_path, database_url, 1) as (again,):  # it reads what was ended before
        async with asyncio.timeout(MOVED_S):
            while await ping(again, session) != 404:
                await asyncio.sleep(0.1)


async def test_a_link_to_the_page_works_once_at_any_gateway_and_so_does_the_cookie(
    tmp_path: Path, database_url: str
) -> None:
    async with gateways(tmp_path, database_url) as shops:
        one, other = (shop.gateway.base_url for shop in shops)
        http = shops[0].http
        code = (await asyncio.to_thread(ask, shops[0].gateway.state_dir, "page_link"))["url"].partition("code=")[2]

        async def shared() -> bool:
            """Whether both have agreed on the mark."""
            marks = [(shop.gateway.state_dir / "page.mark").read_text() for shop in shops]
            return marks[0] == marks[1]

        async with asyncio.timeout(MOVED_S):
            while not await shared():
                await asyncio.sleep(0.1)
        code = (await asyncio.to_thread(ask, shops[0].gateway.state_dir, "page_link"))["url"].partition("code=")[2]
        answers = await asyncio.gather(*(http.get(f"{base}/page/enter?code={code}") for base in (one, other) * 4))
        assert sorted(answer.status_code for answer in answers) == [303] + [403] * 7
        won = next(answer for answer in answers if answer.status_code == 303)
        cookie = won.headers["set-cookie"].partition(";")[0]

        async def signed_in(base: str) -> bool:
            return (await http.get(f"{base}/page/servers", headers={"Cookie": cookie})).status_code == 200

        assert await signed_in(one)
        assert await signed_in(other)
        await asyncio.to_thread(ask, shops[1].gateway.state_dir, "page_logout")
        assert not await signed_in(other)
        async with asyncio.timeout(MOVED_S):
            while await signed_in(one):
                await asyncio.sleep(0.1)


async def test_a_gateway_starts_and_answers_while_postgresql_is_away(tmp_path: Path, own_postgres: Postgres) -> None:
    """Only what has to be approved has to wait: nobody knows whether it was."""
    url = own_postgres.new_database()
    own_postgres.stop()
    servers = {"shop": workshop(tmp_path / "trace", pin="off"), "pinned": workshop(tmp_path / "trace")}
    async with gateways(tmp_path, url, 1, servers=servers) as (shop,):
        await shop.execute("shop:colour")
        refused = await shop.execute("pinned:colour")
        assert refused["structuredContent"]["error"]["code"] == "unknown_tool"
        async with asyncio.timeout(MOVED_S):
            while True:
                health = (await shop.http.get(shop.gateway.base_url + "/health", headers=shop.gateway.headers)).json()
                if "state_database" in health and "audit_rows" in health:
                    break
                await asyncio.sleep(0.1)
        assert health["ready"] is True
        assert "PostgreSQL cannot be reached" in health["state_database"]
        assert (await shop.http.get(shop.gateway.base_url + "/health")).status_code == 200
        said = await command(shop.gateway, "audit", "list")
        assert "Could not read the state database: PostgreSQL cannot be reached" in said
        said = await command(shop.gateway, "doctor")
        assert "The database of `state.database` cannot be used: PostgreSQL cannot be reached" in said
        assert ".." not in said
        link = (await asyncio.to_thread(ask, shop.gateway.state_dir, "page_link"))["url"]
        assert (await shop.http.get(link)).status_code == 303  # our own codes still work
        await asyncio.to_thread(own_postgres.start)
        assert len(await rows_until(shop, 1)) == 1
        async with asyncio.timeout(MOVED_S):
            while health.keys() & {"state_database", "audit_rows"}:
                health = (await shop.http.get(shop.gateway.base_url + "/health", headers=shop.gateway.headers)).json()
                await asyncio.sleep(0.1)
        assert "the shared state can be used again" in shop.gateway.stderr
        await shop.gateway.until_logged("the pins can be used again")
        assert not (await shop.execute("pinned:colour")).get("isError")


async def test_gateways_with_different_keys_say_so(tmp_path: Path, database_url: str) -> None:
    other_keys = {"database": database_url, "request_keys": [KEY[::-1]]}
    async with (
        gateways(tmp_path, database_url, 1) as (one,),
        gateways(tmp_path / "0", database_url, 1, state=other_keys) as (other,),
    ):
        for shop in (one, other):
            async with asyncio.timeout(MOVED_S):
                while True:
                    health = (
                        await shop.http.get(shop.gateway.base_url + "/health", headers=shop.gateway.headers)
                    ).json()
                    if "request_keys" in health:
                        break
                    await asyncio.sleep(0.1)
            assert "Give all of them the same `state.request_keys`." in health["request_keys"]
            assert shop.gateway.stderr.count("have none of this gateway's request keys") == 1
        assert "have none of this gateway's request keys" in await command(one.gateway, "doctor")
        assert not [text for text in (one.gateway.stderr, json.dumps(health)) if KEY[:32] in text]


async def test_calls_under_load_survive_an_outage_and_each_has_one_row(tmp_path: Path, own_postgres: Postgres) -> None:
    url = own_postgres.new_database()
    async with gateways(tmp_path, url) as shops:
        made, stop = [0], asyncio.Event()

        async def call(shop: Shop) -> None:
            while not stop.is_set():
                result = await shop.execute("shop:colour")
                assert not result.get("isError"), result
                made[0] += 1

        callers = [asyncio.create_task(call(shop)) for shop in shops for _ in range(2)]
        await rows_until(shops[0], 10)
        await asyncio.to_thread(own_postgres.stop)
        before = made[0]
        async with asyncio.timeout(60):
            while not all("audit rows stay in the journal" in shop.gateway.stderr for shop in shops):
                await asyncio.sleep(0.05)
        await asyncio.to_thread(own_postgres.start)
        stop.set()
        await asyncio.gather(*callers)
        assert made[0] > before
        rows = await rows_until(shops[1], made[0])
        assert len(rows) == len({row["requestId"] for row in rows}) == made[0]


async def test_the_password_is_shown_nowhere(tmp_path: Path, database_url: str) -> None:
    address = database_url.replace("postgres@", "postgres:hunter2@")
    (tmp_path / "0").mkdir()
    (tmp_path / "address").write_text(address)
    async with gateways(tmp_path, f"${{file:{tmp_path / 'address'}}}", 1) as (shop,):
        await shop.execute("shop:colour")
        await rows_until(shop, 1)
        texts = [await command(shop.gateway, name) for name in ("status", "doctor")]
        texts += [await command(shop.gateway, "config", "show"), await on_page(shop, "/page/settings")]
        texts.append((await shop.http.get(shop.gateway.base_url + "/health", headers=shop.gateway.headers)).text)
        assert "PostgreSQL answers." in texts[1]
    texts += [shop.gateway.stderr, *(path.read_text() for path in (shop.gateway.state_dir / "logs").iterdir())]
    assert not [text for text in texts if "hunter2" in text]


async def test_without_keys_the_start_is_refused_with_the_line_to_write(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(json.dumps({"state": {"database": "postgresql://me:hunter2@127.0.0.1:1/x"}}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "serve", "--port", "0", "--config", str(file)),
        *("--state-dir", str(tmp_path / "state")),
        env=own_environment(tmp_path),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b'`request_keys: ["' in said
    assert b"hunter2" not in said


async def test_a_gateway_without_a_database_loads_no_driver(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"servers": {"shop": workshop(tmp_path / "trace")}}) as gateway:
        loaded = Path(f"/proc/{gateway.pid}/maps").read_text()
    assert "psycopg" not in loaded
    assert "libpq" not in loaded
    script = (
        "import sys, pointsman.router.daemon, pointsman.router.cli.run.serve, pointsman.router.cli.show.audit\n"
        "assert not [name for name in sys.modules if name.startswith(('psycopg', 'pointsman.core.postgres'))]"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await process.wait() == 0


@pytest.mark.parametrize("text", ["loaded by a gateway with a database"])
async def test_a_gateway_with_a_database_loads_it(tmp_path: Path, database_url: str, text: str) -> None:
    async with gateways(tmp_path, database_url, 1) as (shop,):
        assert "psycopg" in Path(f"/proc/{shop.gateway.pid}/maps").read_text(), text
