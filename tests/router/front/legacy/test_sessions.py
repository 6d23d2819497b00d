"""Session ids are signed: a session outlives the process that opened it, for its owner and for nobody else."""

from __future__ import annotations

import pytest

from pointsman.config.model import Limits
from pointsman.router.front.legacy.sessions import LIFE_S
from tests.router.front.raw_http import Json, call
from tests.router.front.rounds import called, state
from tests.router.front.served_front import Served, serving

KEYS = ("k" * 40,)
MUCH: Json = {"experimental": {"x": "x" * 2000}}


def plain(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def status(served: Served, session: list[tuple[str, str]], **how: str) -> int:
    return (await served.send(call("echo"), headers=session, **how)).status


async def test_a_session_survives_a_restart() -> None:
    async with serving(request_keys=KEYS) as before:
        session = await before.open_session({"elicitation": {}, "roots": {"listChanged": True}}, version="2025-06-18")
    async with serving(request_keys=KEYS) as after:
        assert await status(after, session) == 200
        assert await status(after, session) == 200
        assert after.front.sessions_open == 1
        client = after.gateway.requests[0].client
        assert (client.name, client.era, client.version, client.log_level) == ("raw", "legacy", "2025-06-18", "info")
        assert client.capabilities == {"elicitation": {}, "roots": {"listChanged": True}}


async def test_a_revived_session_can_be_asked_and_listened_to() -> None:
    async with serving(request_keys=KEYS) as before:
        session = await before.open_session({"elicitation": {}})
    async with serving(request_keys=KEYS) as after:
        asking = await after.start(call("ask"), headers=session)
        await asking.head()
        question = await asking.event()
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert (await after.send(reply, headers=session)).status == 202
        assert (await asking.event())["result"]["content"][0]["text"] == "accept"
        stream = await after.start(None, verb="GET", headers=session)
        assert "200 OK" in await stream.head()
        await asking.close()
        await stream.close()


async def test_any_replica_takes_a_session_up() -> None:
    async with serving(request_keys=KEYS) as one, serving(request_keys=("new" * 20, *KEYS)) as other:
        session = await one.open_session()
        for served in (one, other, one, other):
            assert await status(served, session) == 200


async def test_other_keys_open_nothing() -> None:
    async with serving(request_keys=KEYS) as one, serving() as other:
        assert await status(other, await one.open_session()) == 404


async def test_a_revived_session_is_its_owners_only() -> None:
    async with serving(request_keys=KEYS) as before:
        session = await before.open_session()
        in_project = await before.open_session(path="/projects/research/mcp")
    async with serving(request_keys=KEYS) as after:
        assert await status(after, session, token="secret-b") == 404
        assert await status(after, session, path="/projects/research/mcp") == 404
        assert await status(after, in_project) == 404
        for verb in ("GET", "DELETE"):
            assert (await after.send(verb=verb, headers=session, token="secret-b")).status == 404
        assert after.front.sessions_open == 0
        assert await status(after, session) == 200
        assert await status(after, in_project, path="/projects/research/mcp") == 200


async def test_a_revoked_token_revives_nothing() -> None:
    async with serving(request_keys=KEYS) as before:
        session = await before.open_session()
    async with serving(request_keys=KEYS) as after:
        after.gateway.revoked.add("secret-a")
        assert await status(after, session) == 401


async def test_a_tampered_id_is_an_unknown_one() -> None:
    async with serving() as served:
        ((name, good),) = await served.open_session()
        flipped = good[:40] + ("A" if good[40] != "A" else "B") + good[41:]
        for forged in (flipped, good[:-3], good + "A", good + "=", "v1.", "v1." + "A" * 80, good.upper()):
            assert await status(served, [(name, forged)]) == 404
        assert await status(served, [(name, good)]) == 200


async def test_a_sealed_state_is_no_session_id() -> None:
    async with serving(request_keys=KEYS) as served:
        asked = await called(served, "ask")
        assert await status(served, [("Mcp-Session-Id", state(asked))]) == 404


async def test_a_deleted_session_is_not_revived() -> None:
    async with serving() as served:
        session = await served.open_session()
        assert (await served.send(verb="DELETE", headers=session)).status == 200
        assert await status(served, session) == 404
        assert (await served.send(verb="DELETE", headers=session)).status == 404


async def test_an_idle_session_is_let_go_and_taken_up_again() -> None:
    now = 1000.0
    async with serving(limits=Limits(session_idle_s=600), clock=lambda: now) as served:
        session = await served.open_session()
        now += 601
        assert await status(served, session) == 200
        assert served.front.sessions_open == 1


@pytest.mark.parametrize(
    "request_",
    [plain("logging/setLevel", {"level": "debug"}), plain("resources/subscribe", {"uri": "x://1"})],
    ids=["log level", "subscription"],
)
async def test_an_idle_session_that_holds_more_than_its_id_says_is_over(request_: Json) -> None:
    now = 1000.0
    async with serving(limits=Limits(session_idle_s=600), clock=lambda: now) as served:
        session = await served.open_session()
        assert (await served.send(request_, headers=session)).status == 200
        now += 601
        assert await status(served, session) == 404


async def test_an_id_revives_nothing_after_its_lifetime_but_an_open_session_lives_on() -> None:
    now = 1_000_000.0
    async with serving(request_keys=KEYS, wall_clock=lambda: now) as one:
        session = await one.open_session()
        now += LIFE_S + 1
        assert await status(one, session) == 200
        async with serving(request_keys=KEYS, wall_clock=lambda: now) as other:
            assert await status(other, session) == 404


async def test_capabilities_that_do_not_fit_into_an_id_live_in_memory_only() -> None:
    async with serving(request_keys=KEYS) as before:
        ((name, session_id),) = await before.open_session(MUCH)
        assert len(session_id) == 40
        assert await status(before, [(name, session_id)]) == 200
        assert before.gateway.requests[-1].client.capabilities == MUCH
    async with serving(request_keys=KEYS) as after:
        assert await status(after, [(name, session_id)]) == 404


async def test_an_id_fits_into_every_header_and_tells_nothing() -> None:
    async with serving() as served:
        ((_, session_id),) = await served.open_session({"sampling": {}, "elicitation": {"form": {}, "url": {}}})
        assert len(session_id) < 400
        assert session_id.isascii()
        assert "sampling" not in session_id
        ((_, another),) = await served.open_session({"sampling": {}, "elicitation": {"form": {}, "url": {}}})
        assert another != session_id


async def test_reviving_respects_the_cap() -> None:
    async with serving(request_keys=KEYS) as before:
        session = await before.open_session()
    async with serving(request_keys=KEYS, limits=Limits(sessions=1)) as after:
        busy = await after.open_session()
        running = await after.start(call("slow"), headers=busy)
        await after.gateway.entered.acquire()
        assert await status(after, session) == 503
        after.gateway.leave.set()
        assert (await running.answer()).status == 200
        assert await status(after, session) == 200
        await running.close()
