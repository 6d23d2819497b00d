"""Many searches at the same time: bounded, and no token takes all of the places."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from aiohttp import web

from tests.router.front.raw_http import Connection, request
from tests.router.search_api.search_client import LONG_S, TOOLS, Client, Json, digest_of, error_of, open_service
from tests.servers.chat_endpoint import chat_endpoint, says

BODY = json.dumps({"query": ["weather"], "tools": TOOLS}).encode()
BRIEF_S = 0.05
CONFIG: Json = {
    "tokens": {name: {"sha256": digest_of(f"ptm_{name}"), "projects": ["*"]} for name in ("one", "two", "three")},
    "limits": {"body_s": 60},  # a test that holds a place must not be thrown out
}


class Held:
    """A request whose last byte is still to come: it has a place."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def of(cls, client: Client, token: str) -> Held:
        taken = await client.figure("places_taken")
        connection = await Connection.open(client.service.port)
        connection.send(request(client.service.port, BODY, path="/catalog/search", token=token)[:-1])
        await client.until("places_taken", lambda figure: figure == taken + 1)
        return cls(connection)

    async def end(self) -> int:
        self._connection.send(BODY[-1:])
        status = (await self._connection.answer()).status
        await self._connection.close()
        return status

    async def leave(self) -> None:
        await self._connection.close()


async def test_a_token_has_at_most_half_of_the_places_and_the_others_the_rest(tmp_path: Path) -> None:
    async with open_service(tmp_path, CONFIG, provider="bm25", limits={"searches": 4, "wait_s": BRIEF_S}) as client:
        held = [await Held.of(client, "ptm_one") for _ in range(2)]
        refused = await client.post(BODY, token="ptm_one")
        assert error_of(refused) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        assert (await client.post(BODY, token="ptm_two")).status_code == 200
        held += [await Held.of(client, "ptm_two") for _ in range(2)]
        refused = await client.post(BODY, token="ptm_three")
        assert error_of(refused) == (503, "overloaded")
        assert refused.headers["retry-after"] == "1"
        assert [await each.end() for each in held] == [200] * 4
        assert (await client.post(BODY, token="ptm_three")).status_code == 200
        assert await client.figure("places_taken") == 0


async def test_who_waits_gets_the_place_that_becomes_free(tmp_path: Path) -> None:
    async with open_service(tmp_path, CONFIG, provider="bm25", limits={"searches": 2, "wait_s": 60}) as client:
        held = await Held.of(client, "ptm_one")
        waiting = asyncio.ensure_future(client.post(BODY, token="ptm_one"))
        await asyncio.wait([waiting], timeout=BRIEF_S)
        assert not waiting.done()
        assert await held.end() == 200
        assert (await waiting).status_code == 200


async def test_who_leaves_gives_the_place_back(tmp_path: Path) -> None:
    async with open_service(tmp_path, CONFIG, provider="bm25", limits={"searches": 2, "wait_s": BRIEF_S}) as client:
        held = await Held.of(client, "ptm_one")
        await held.leave()
        await client.until("places_taken", lambda figure: figure == 0)
        assert (await client.post(BODY, token="ptm_one")).status_code == 200


async def test_a_token_that_is_revoked_while_its_body_comes_searches_nothing(tmp_path: Path) -> None:
    async with open_service(tmp_path, CONFIG, provider="bm25") as client:
        held = await Held.of(client, "ptm_one")
        tokens = {name: token for name, token in CONFIG["tokens"].items() if name != "one"}
        client.service.write_config({**CONFIG, "tokens": tokens})
        async with asyncio.timeout(LONG_S):
            while (await client.post(BODY, token="ptm_one")).status_code != 401:
                await asyncio.sleep(0.02)
        assert await held.end() == 401
        assert await client.figure("places_taken") == 0


async def test_a_search_that_takes_too_long_is_answered_and_keeps_its_place_until_it_is_over(tmp_path: Path) -> None:
    leave = asyncio.Event()

    async def late(body: Json) -> web.StreamResponse:
        await leave.wait()
        return says({"selection": []})

    async with chat_endpoint(late) as model:
        llm = {"base_url": model.base_url, "model": "m", "timeout_s": 60}
        async with open_service(tmp_path, provider="llm", llm=llm, limits={"search_s": BRIEF_S}) as client:
            response = await client.post(BODY)
            assert error_of(response) == (503, "timeout")
            assert await client.figure("places_taken") == 1
            leave.set()
            await client.until("places_taken", lambda figure: figure == 0)
