"""Accounts of callers at two gateways, on one state folder and on one PostgreSQL: what one does counts at both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import count

import pytest
from mcp import types
from mcp.client.context import ClientRequestContext

from tests.e2e.client import BOTH_ERAS, Mode
from tests.postgres import Postgres
from tests.router.accounts.office import Office, offices, opens, secret_of
from tests.router.peers.cluster import KEY

pytestmark = pytest.mark.replicas

NUMBERS = count()
LONG_S = 60.0  # a bound against hanging


@pytest.fixture(scope="module", params=["folder", "database"])
async def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[Office]]:
    folder = tmp_path_factory.mktemp("accounts")
    if request.param == "folder":
        async with offices([folder, folder], {"replicas": True}) as found:
            yield found
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    own = [folder / "a", folder / "b"]
    for one in own:
        one.mkdir()
    async with offices(own, {"database": postgres.new_database(), "request_keys": [KEY]}) as found:
        yield found


@pytest.fixture
async def two(shared: list[Office]) -> AsyncIterator[tuple[Office, Office]]:
    here, there = shared
    for server in ("tracker", "board"):
        await until(partial(runs, there, server))
    async with asyncio.timeout(LONG_S):
        yield here, there


@pytest.fixture
def people() -> tuple[str, str]:
    """Of one test only: a gateway uses an account that it knows for some seconds unseen."""
    number = next(NUMBERS)
    return f"ada-{number}", f"bob-{number}"


async def runs(at: Office, server: str) -> bool:
    """The other gateway has used the sign-in for lists."""
    listed = (await at.ask("servers"))["servers"]
    return any(one["id"] == server and one["state"] == "running" for one in listed)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LONG_S):
        while not await condition():
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("mode", BOTH_ERAS)
@pytest.mark.parametrize("server", ["tracker", "board"])
async def test_a_call_goes_on_after_a_sign_in_at_the_other_gateway(
    two: tuple[Office, Office], people: tuple[str, str], mode: Mode, server: str
) -> None:
    """The link is the public address, which is that of the first one."""
    here, there = two
    ada, bob = people
    used, asked = here.tracker if server == "tracker" else here.board, list[str]()
    async with there.browser(ada) as browser, there.caller(there.jwt(ada), mode, opens(browser, asked)) as caller:
        await caller.text(f"{server}:echo", by=ada, n=1)
    assert asked[0].startswith(here.gateway.base_url)
    async with here.caller(here.jwt(ada), mode) as caller:
        await caller.text(f"{server}:echo", by=ada, n=2)
    assert used.accounts_for(by=ada) == [ada, ada]
    async with there.caller(there.jwt(bob), mode) as other:
        assert await other.refusal(f"{server}:echo") == "sign_in_required"


async def test_a_no_at_one_gateway_ends_the_call_at_the_other(
    two: tuple[Office, Office], people: tuple[str, str]
) -> None:
    here, there = two
    ada, _ = people
    links: asyncio.Queue[str] = asyncio.Queue()

    async def elicited(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        links.put_nowait(params.url)
        return types.ElicitResult(action="accept")

    async with here.browser(ada) as browser, there.caller(there.jwt(ada), elicited=elicited) as caller:
        call = asyncio.create_task(caller.execute("tracker:echo"))
        link = await links.get()
        assert (await browser.decline(link)).status_code == 200
        assert "the person refused" in ((await call).structured_content or {})["error"]["message"]
    assert await here.link(here.jwt(ada)) != link


async def test_a_revocation_counts_at_both(two: tuple[Office, Office], people: tuple[str, str]) -> None:
    here, there = two
    ada, bob = people
    async with here.browser(ada) as browser, here.browser(bob) as second:
        await browser.connect(await here.link(here.jwt(ada)))
        await second.connect(await there.link(there.jwt(bob)))
    async with there.caller(there.jwt(ada)) as one, there.caller(there.jwt(bob)) as other:
        await one.text("tracker:echo", by=ada)
        (listed,) = [
            one
            for one in (await there.ask("credentials", server="tracker"))["credentials"]
            if one["who"] == f"@sso/{ada}"
        ]
        await here.ask("end_credential", server="tracker", credential=listed["id"])

        async def refused() -> bool:
            return (await one.execute("tracker:echo", by=ada)).is_error is True

        await until(refused)
        await other.text("tracker:echo", by=bob)
    assert here.tracker.accounts_for(by=bob) == [bob]


async def test_one_gateway_renews_for_both_and_no_refresh_token_is_used_twice(two: tuple[Office, Office]) -> None:
    here, there = two
    async with here.browser("owner", owner=True) as owner:
        await owner.connect(await here.link(secret_of("laptop")))
    async with here.caller(secret_of("laptop")) as one, there.caller(secret_of("laptop")) as other:
        await asyncio.gather(one.text("tracker:echo"), other.text("tracker:echo"))
        for n in (1, 2, 3):
            for token in [token for token, account in here.tracker.account_of.items() if account == "owner"]:
                here.tracker.access.pop(token, None)
            by = f"laptop {n}"
            await asyncio.gather(*(each.text("tracker:echo", by=by) for each in (one, other) for _ in range(5)))
            assert here.tracker.accounts_for(by=by) == ["owner"] * 10
    assert len(here.tracker.used_refresh) == len(set(here.tracker.used_refresh))


async def test_callers_at_both_never_use_each_others_account(
    two: tuple[Office, Office], people: tuple[str, str]
) -> None:
    board = two[0].board
    for at, name in zip(two, people, strict=True):
        async with at.browser(name) as browser:
            await browser.connect(await at.link(at.jwt(name), "board"))

    async def call(at: Office, name: str, mode: Mode) -> None:
        async with at.caller(at.jwt(name), mode) as caller:
            await asyncio.gather(*(caller.text("board:echo", by=name, n=n) for n in range(5)))

    await asyncio.gather(*(call(at, name, mode) for at in two for name in people for mode in BOTH_ERAS))
    for name in people:
        assert board.accounts_for(by=name) == [name] * 20
    assert all(len(accounts) == 1 for accounts in board.sessions.values())
