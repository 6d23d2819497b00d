"""Links to sign in, in the wrong hands: nothing is connected, the refusal is clear, and the audit has a row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from tests.router.accounts.office import Browser, Office, next_url, office, secret_of
from tests.router.conftest import audit_rows


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    async with office(tmp_path_factory.mktemp("accounts")) as found:
        yield found


@pytest.fixture
async def at(shared: Office) -> AsyncIterator[Office]:
    await shared.forget("tracker")
    yield shared
    shared.tracker.answer_iss = shared.issuer.answer_iss = None


async def nobody_connected(at: Office) -> bool:
    return not (await at.ask("credentials", server="tracker"))["credentials"]


async def at_the_server(browser: Browser, link: str) -> httpx2.Response:
    """The page that leads to the server's authorization server, after the person has shown who it is."""
    return await browser.follow(await browser.agree(link))


async def test_the_page_says_for_whom_and_opens_nothing_before_it_has_asked(at: Office) -> None:
    before = len(at.issuer.asked["metadata"]), len(at.tracker.asked["metadata"])
    link = await at.link(secret_of("laptop"), "board")
    async with at.browser("ada") as browser:
        page = await browser.open(link)
    for shown in ("laptop", "Board &lt;b&gt;&amp;", "by its own word", "Only the owner of this gateway"):
        assert shown in page.text
    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cache-control"] == "no-store"
    assert (len(at.issuer.asked["metadata"]), len(at.tracker.asked["metadata"])) == before


async def test_looking_at_a_link_does_not_use_it_up_and_a_second_use_is_refused(at: Office) -> None:
    link = await at.link(at.jwt("ada"))
    async with at.browser("ada") as browser:
        shown = await browser.open(link)
        await browser.http.head(link)
        assert (await browser.agree(link, shown)).status_code == 200
        replayed = await browser.agree(link, shown)
        assert replayed.status_code == 404
        assert "used already" in replayed.text
        assert (await browser.open(link)).status_code == 404
    assert await nobody_connected(at)


async def test_somebody_else_who_opens_the_link_connects_nothing(at: Office) -> None:
    link, before = await at.link(at.jwt("mallory")), len(at.tracker.asked["authorize"])
    async with at.browser("victim") as victim:
        answer = await victim.follow(await victim.agree(link))
    assert answer.status_code == 403
    assert "somebody else" in answer.text
    assert await nobody_connected(at)
    assert ("@sso/mallory#all", "other_person") in await at.refused()
    assert len(at.tracker.asked["authorize"]) == before  # it did not get that far


async def test_the_second_half_of_a_sign_in_does_not_work_in_another_browser(at: Office) -> None:
    link = await at.link(at.jwt("mallory"))
    async with at.browser("mallory") as mallory, at.browser("victim") as victim:
        url = next_url(await at_the_server(mallory, link))
        await victim.open(await at.link(at.jwt("victim")))  # it has a cookie, of its own
        answer = await victim.http.get(await victim.returned(url))
        assert answer.status_code == 403
        assert "did not begin this sign-in" in answer.text
        assert await nobody_connected(at)
        assert ("@sso/mallory#all", "other_browser") in await at.refused()
        back = await mallory.returned(url)  # the sign-in of this browser is not used up
        assert "is connected" in (await mallory.http.get(back)).text
        again = await mallory.http.get(back)
        assert (again.status_code, "is finished" in again.text) == (403, True)
    async with at.caller(at.jwt("mallory")) as caller:
        await caller.text("tracker:echo", by="mallory")
    assert at.tracker.accounts_for(by="mallory") == ["mallory"]


async def test_a_stranger_cannot_connect_an_account_to_a_token_of_the_configuration(at: Office) -> None:
    link = await at.link(secret_of("laptop"))
    async with at.browser("victim") as victim:
        answer = await victim.agree(link)
        assert answer.status_code == 403
        assert "Are you the owner?" in answer.text
        assert "pointsman server login tracker --for laptop" in answer.text
    assert await nobody_connected(at)
    async with at.browser("owner", owner=True) as owner:  # the link is still good
        assert "is connected" in (await owner.connect(link)).text
    async with at.caller(secret_of("laptop")) as caller:
        await caller.text("tracker:echo", n=7)
    async with at.caller(secret_of("desktop")) as other:
        assert await other.refusal("tracker:echo") == "sign_in_required"
    assert at.tracker.accounts_for(n=7) == ["owner"]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=["origin", "opaque", "site"],
)
async def test_a_form_of_another_page_is_refused(at: Office, headers: dict[str, str]) -> None:
    link = await at.link(at.jwt("ada"))
    async with at.browser("ada") as browser:
        assert (await browser.agree(link, headers=headers)).status_code == 403
        assert (await browser.open(link)).status_code == 200
    if "Sec-Fetch-Site" in headers:  # an origin that is not ours is refused before anything is looked at
        assert ("@sso/ada#all", "invalid_form") in await at.refused()


async def test_a_form_works_only_in_its_browser_and_for_its_link(at: Office) -> None:
    link, other = await at.link(at.jwt("ada")), await at.link(at.jwt("bob"))
    async with at.browser("ada") as browser, at.browser("ada") as second:
        shown = await browser.open(link)
        assert (await second.agree(link, shown)).status_code == 403  # without the cookie
        assert (await browser.agree(other, shown)).status_code == 403
        posted = await browser.http.post(link, data={"csrf": "x"}, headers={"Origin": browser.origin})
        assert posted.status_code == 403
        large = {"csrf": "x" * 100_000}
        posted = await browser.http.post(link, data=large, headers={"Origin": browser.origin})
        assert posted.status_code == 413


async def test_a_link_is_declined_only_by_the_form_of_its_page(at: Office) -> None:
    link = await at.link(at.jwt("ada"))
    async with at.browser("ada") as browser:
        await browser.open(link)
        for origin, csrf in ((browser.origin, "x"), ("https://evil.example", "x")):
            posted = await browser.http.post(link, data={"csrf": csrf, "answer": "no"}, headers={"Origin": origin})
            assert posted.status_code == 403
        assert (await browser.open(link)).status_code == 200


async def test_answers_of_another_authorization_server_are_refused(at: Office) -> None:
    async with at.browser("ada") as browser:
        at.issuer.answer_iss = "https://evil.example"
        answer = await browser.follow(await browser.agree(await at.link(at.jwt("ada"))))
        assert answer.status_code == 409
        at.issuer.answer_iss = None
        at.tracker.answer_iss = "https://evil.example"
        answer = await browser.follow(await at_the_server(browser, await at.link(at.jwt("ada"))))
        assert answer.status_code == 409
    assert await nobody_connected(at)
    assert not [one for one in at.tracker.grants("authorization_code")[1:] if one["code"] in at.tracker.codes]


async def test_states_cannot_be_swapped(at: Office) -> None:
    """Neither the state of the first sign-in for the second, nor that of another server's, nor one that is made up."""
    async with at.browser("ada") as browser:
        first = next_url(await browser.agree(await at.link(at.jwt("ada"))))
        second = next_url(await at_the_server(browser, await at.link(at.jwt("ada"), "board")))
        states = [dict(parse_qsl(urlsplit(url).query))["state"] for url in (first, second)]
        back = urlsplit(await browser.returned(second))
        answer = dict(parse_qsl(back.query))
        for state in (states[0], "made-up", ""):
            swapped = back._replace(query=urlencode({**answer, "state": state})).geturl()
            assert (await browser.http.get(swapped)).status_code in (403, 409)
        doubled = back._replace(query=f"{back.query}&state={states[0]}").geturl()
        assert (await browser.http.get(doubled)).status_code == 403
    assert await nobody_connected(at)
    assert (await at.ask("credentials", server="board"))["credentials"] == []


async def test_a_caller_that_is_revoked_meanwhile_is_not_connected(at: Office) -> None:
    link = await at.link(secret_of("phone"))
    async with at.browser("owner", owner=True) as owner:
        url = next_url(await owner.agree(link))
        back = await owner.returned(url)
        codes = len(at.tracker.grants("authorization_code"))
        await at.reload(tokens={name: one for name, one in at.config["tokens"].items() if name != "phone"})
        answer = await owner.http.get(back)
        await at.reload()
        assert answer.status_code == 403
        assert "can no longer use" in answer.text
    assert len(at.tracker.grants("authorization_code")) == codes  # the code was not even exchanged
    assert ("phone", "revoked") in await at.refused()
    assert await nobody_connected(at)


async def test_a_token_made_anew_under_an_old_name_has_no_account(at: Office) -> None:
    async with at.browser("owner", owner=True) as owner:
        await owner.connect(await at.link(secret_of("phone")))
    async with at.caller(secret_of("phone")) as caller:
        await caller.text("tracker:echo", n=1)
    anew = {**at.config["tokens"]["phone"], "sha256": sha256(secret_of("phone 2").encode()).hexdigest()}
    await at.reload(tokens={**at.config["tokens"], "phone": anew})
    try:
        await at.link(secret_of("phone 2"))
        (listed,) = (await at.ask("credentials", server="tracker"))["credentials"]
        assert listed["works"] is False
    finally:
        await at.reload()
    async with at.caller(secret_of("phone")) as caller:
        await caller.text("tracker:echo", n=2)  # the same token as before has it


async def test_an_account_outlasts_a_reload_that_restarts_its_server(at: Office) -> None:
    async with at.browser("ada") as browser:
        await browser.connect(await at.link(at.jwt("ada")))
    async with at.browser("bob") as browser:
        await browser.connect(await at.link(at.jwt("bob")))
    changed = {**at.config["servers"], "tracker": {**at.config["servers"]["tracker"], "headers": {"X-Reloaded": "1"}}}
    async with at.caller(at.jwt("ada")) as ada, at.caller(at.jwt("bob")) as bob:
        both = ((ada, "a"), (bob, "b"))
        calls = [asyncio.create_task(one.text_when_back("tracker:echo", by=who)) for one, who in both]
        await at.reload(servers=changed)
        await asyncio.gather(*calls)
        await asyncio.gather(ada.text_when_back("tracker:echo", by="a"), bob.text_when_back("tracker:echo", by="b"))
        await at.reload()
    assert set(at.tracker.accounts_for(by="a")) == {"ada"}
    assert set(at.tracker.accounts_for(by="b")) == {"bob"}


async def test_what_was_connected_has_rows_in_the_audit(at: Office) -> None:
    async with at.browser("ada") as browser:
        await browser.connect(await at.link(at.jwt("ada")))
    (listed,) = (await at.ask("credentials", server="tracker"))["credentials"]
    await at.ask("end_credential", server="tracker", credential=listed["id"])
    rows = await audit_rows(at.gateway.state_dir, "--kind", "change")
    latest = [(row["method"], row["token"], row["serverId"], row["outcome"]) for row in rows[-2:]]
    assert latest == [
        ("server/caller-sign-in", "@sso/ada#all", "tracker", "ok"),
        ("server/logout", "@sso/ada", "tracker", "ok"),
    ]
    executed = await audit_rows(at.gateway.state_dir, "--kind", "execute")
    assert executed[-1]["code"] == "sign_in_required"
    assert not [line for line in at.gateway.lines if "/oauth/connect/" in line]


async def test_the_page_names_a_person_as_the_issuer_does_and_shows_what_cannot_be_seen(at: Office) -> None:
    link = await at.link(at.jwt("a/b#staff <i>\u202e\u200b%2F"))
    async with at.browser("ada") as browser:
        page = await browser.open(link)
    assert "<strong>a/b#staff &lt;i&gt;\\u202e\\u200b%2F</strong>" in page.text
    assert "a%2Fb" not in page.text


async def test_an_issuer_without_pkce_is_named_with_what_it_lacks(at: Office) -> None:
    link = await at.link(at.jwt("ada"))
    usual = at.issuer.server_metadata
    at.issuer.server_metadata = {**usual, "code_challenge_methods_supported": None}
    try:
        async with at.browser("ada") as browser:
            page = await browser.agree(link)
    finally:
        at.issuer.server_metadata = usual
    assert page.status_code == 409
    for said in (at.issuer.issuer, "the operator of this gateway", "code_challenge_methods_supported"):
        assert said in page.text
    assert await nobody_connected(at)
