"""Links at which callers sign in end by themselves, are bounded in number, and one caller's tokens stay its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pointsman.catalog.holders import Holder, holder_of, is_current
from pointsman.config.model import GatewayConfig
from pointsman.core.model import Caller
from pointsman.router.downstream.connection import SignInNeededError
from pointsman.router.downstream.oauth import token_source
from pointsman.router.downstream.oauth.links import LINK_S, MAX_LINKS, VISIT_S, SignInLinks, TooManyLinksError
from pointsman.router.downstream.oauth.store import SignInStore
from pointsman.router.state.sqlite_values import SqliteKeyValues
from tests.router.downstream.oauth.parts import KEY, NAME, Gateway
from tests.servers.oauth_mcp import serving_oauth

ADA = Caller("ada", None)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def links_in(folder: Path, clock: Clock) -> SignInLinks:
    return SignInLinks(SignInStore(SqliteKeyValues(folder), (KEY,)), clock)


async def test_a_link_ends_after_five_minutes_and_works_once_at_any_replica(tmp_path: Path) -> None:
    clock = Clock()
    here, there = links_in(tmp_path, clock), links_in(tmp_path, clock)
    link = await here.open("s", ADA, "|x|ada", "client")
    assert await there.find(link.text) == link
    clock.now += LINK_S - 1
    assert await here.find(link.text) == link
    clock.now += 1
    assert await here.find(link.text) is None
    assert await here.take(link.text) is None
    fresh = await here.open("s", ADA, "|x|ada", "client")
    taken = await asyncio.gather(*(one.take(fresh.text) for one in (here, there, here, there)))
    assert [one for one in taken if one is not None] == [fresh]


async def test_calls_at_once_get_one_link_for_a_caller_at_every_replica(tmp_path: Path) -> None:
    here, there = links_in(tmp_path, Clock()), links_in(tmp_path, Clock())
    opened = await asyncio.gather(
        *(one.open("s", ADA, "|x|ada", "client") for one in (here, there) * 5),
        *(here.open("s", Caller("bob", None), "|x|bob", "client") for _ in range(3)),
    )
    assert len({link.text for link in opened[:10]}) == 1
    assert len({link.text for link in opened[10:]}) == 1
    assert opened[0].text != opened[10].text


async def test_a_visit_ends_after_ten_minutes_and_works_once(tmp_path: Path) -> None:
    clock = Clock()
    links = links_in(tmp_path, clock)
    link = await links.open("s", ADA, "|x|ada", "client")
    await links.begin_visit("a", link, "browser")
    await links.begin_visit("b", link, "browser")
    assert await links.end_visit("a") is not None
    assert await links.end_visit("a") is None
    clock.now += VISIT_S
    assert await links.end_visit("b") is None


async def test_a_visit_can_be_looked_at_before_it_is_used_up(tmp_path: Path) -> None:
    clock = Clock()
    links = links_in(tmp_path, clock)
    await links.begin_visit("a", await links.open("s", ADA, "|x|ada", "client"), "browser")
    assert await links.find_visit("a") == await links.find_visit("a") is not None
    assert await links.end_visit("a") is not None
    assert await links.find_visit("a") is None


async def test_a_link_that_is_given_again_says_the_time_that_is_left(tmp_path: Path) -> None:
    clock = Clock()
    links = links_in(tmp_path, clock)
    link = await links.open("s", ADA, "|x|ada", "client")
    said = []
    for seconds in (0, 5, 60, 85):  # 0, 5, 65 and 150 s after it was made
        clock.now += seconds
        again = await links.open("s", ADA, "|x|ada", "client")
        assert again == link
        said.append(links.time_left(again))
    assert said == ["five minutes", "five minutes", "four minutes", "two minutes"]
    clock.now += 1
    fresh = await links.open("s", ADA, "|x|ada", "client")
    assert (fresh != link, links.time_left(fresh)) == (True, "five minutes")
    clock.now += LINK_S - 20
    assert links.time_left(fresh) == "a minute"


async def test_a_declined_link_is_used_up_at_every_replica(tmp_path: Path) -> None:
    clock = Clock()
    here, there = links_in(tmp_path, clock), links_in(tmp_path, clock)
    link = await here.open("s", ADA, "|x|ada", "client")
    assert not await there.is_declined(link)
    await here.decline(link)
    assert await there.is_declined(link)
    assert await there.find(link.text) is None
    assert await there.open("s", ADA, "|x|ada", "client") != link


async def test_a_link_that_is_in_use_cannot_be_declined_elsewhere(tmp_path: Path) -> None:
    links = links_in(tmp_path, Clock())
    link = await links.open("s", ADA, "|x|ada", "client")
    assert await links.take(link.text) == link
    await links.decline(link)
    assert not await links.is_declined(link)


async def test_a_caller_gets_its_link_again_and_never_more_than_two(tmp_path: Path) -> None:
    clock = Clock()
    links = links_in(tmp_path, clock)
    first = await links.open("s", ADA, "|x|ada", "client")
    assert await links.open("s", ADA, "|x|ada", "client") == first
    made = [await links.open("s", ADA, "|x|ada", f"client {number}") for number in range(10)]
    good = [link for link in [first, *made] if await links.find(link.text) is not None]
    assert len(good) == 2
    assert made[-1] in good


async def test_a_thousand_links_are_the_most(tmp_path: Path) -> None:
    clock = Clock()
    links = links_in(tmp_path, clock)
    batch = [links.open("s", Caller(f"t{number}", None), f"|x|t{number}", "c") for number in range(MAX_LINKS)]
    made = await asyncio.gather(*batch)
    with pytest.raises(TooManyLinksError):
        await links.open("s", ADA, "|x|ada", "client")
    assert await links.open("s", Caller("t1", None), "|x|t1", "c") == made[1]  # what there is stays good
    assert await links.take(made[0].text) is not None
    await links.open("s", ADA, "|x|ada", "client")


@pytest.mark.parametrize("text", ["", "x", "0" * 32, f"{'0' * 32}.{'A' * 43}", f"{'0' * 32}.{'A' * 42}/", "\0" * 76])
async def test_a_text_that_is_no_link_finds_nothing(tmp_path: Path, text: str) -> None:
    assert await links_in(tmp_path, Clock()).find(text) is None


async def test_nothing_of_a_link_can_be_read_in_the_store(tmp_path: Path) -> None:
    link = await links_in(tmp_path, Clock()).open("s", Caller("secretive", None), "|x|secretive", "client")
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert link.secret.encode() not in written
    assert b"secretive" not in written


# ---------------------------------------------------------------------- tokens of callers


async def test_a_caller_without_an_account_never_uses_the_gateways(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        await gateway.sign_in("|x|ada")
        own = gateway.sign_ins.source(NAME, gateway.entry, "|x|ada")
        assert await own.header() != await gateway.source.header()
        with pytest.raises(SignInNeededError, match="own account"):
            await gateway.sign_ins.source(NAME, gateway.entry, "|x|bob").header()


async def test_callers_of_one_server_have_one_registered_client(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        for name in ("ada", "bob", "eve"):
            await gateway.sign_in(f"|x|{name}")
    assert len(server.asked["register"]) == 1


async def test_a_sign_in_at_one_replica_counts_at_the_others_at_once(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        here, there = Gateway(tmp_path, server), Gateway(tmp_path, server)
        ada = there.sign_ins.source(NAME, there.entry, "|x|ada")
        assert await ada.current() is None  # so that it has to sign in
        await here.sign_in("|x|ada")
        assert await ada.current() is not None


async def test_a_revocation_at_one_replica_counts_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_source, "FRESH_S", 0.0)
    async with serving_oauth() as server:
        here, there = Gateway(tmp_path, server), Gateway(tmp_path, server)
        await here.sign_in("|x|ada")
        await here.sign_in("|x|bob")
        ada, bob = (there.sign_ins.source(NAME, there.entry, f"|x|{name}") for name in ("ada", "bob"))
        before = await bob.header()
        assert await ada.header() not in (None, before)
        assert await here.sign_ins.forget(NAME, here.entry, "|x|ada")
        with pytest.raises(SignInNeededError):
            await ada.header()
        assert await bob.header() == before
        assert [one.holder for one in await there.sign_ins.listed(NAME)] == ["|x|bob"]


# ---------------------------------------------------------------------- holders


def config(**changed: object) -> GatewayConfig:
    issuer = {"issuer": "https://a.example", "claims": {}}
    tokens = {"ada": {"sha256": "a" * 64, "projects": ["*"]}}
    given = {"listen": {"public_url": "https://g.example"}, "auth": issuer, "tokens": tokens, **changed}
    return GatewayConfig.model_validate(given)


def test_a_holder_is_a_person_and_a_project_whatever_rights_are_used() -> None:
    now = config()
    rights = {holder_of(now, Caller(f"@sso/ada#{rule}", None)) for rule in ("staff", "all")}
    assert len(rights) == 1
    others = [Caller("ada", None), Caller("ada", "p"), Caller("@sso/ada#staff", "p"), Caller("@grant/ada", None)]
    assert len(rights | {holder_of(now, caller) for caller in others}) == 5
    assert Holder.parse(holder_of(now, Caller("@sso/a|b#x", "p"))).person == "@sso/a|b"
    assert holder_of(now, Caller("@owner", None)) == ""


def test_another_secret_or_issuer_under_the_same_name_is_another_holder() -> None:
    before = config()
    token = config(tokens={"ada": {"sha256": "b" * 64, "projects": ["*"]}})
    issuer = config(auth={"issuer": "https://b.example", "claims": {}})
    for caller, after in ((Caller("ada", None), token), (Caller("@sso/ada", None), issuer)):
        holder = Holder.parse(holder_of(before, caller))
        assert is_current(before, holder)
        assert not is_current(after, holder)
        assert holder_of(after, caller) != holder.key
    gone = config(tokens={})
    assert not is_current(gone, Holder.parse(holder_of(gone, Caller("ada", None))))
