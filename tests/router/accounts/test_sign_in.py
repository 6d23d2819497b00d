"""Each caller signs in to a server with its own account, by a link that connects nobody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client.context import ClientRequestContext

from tests.e2e.client import BOTH_ERAS, Mode
from tests.router.accounts.office import LINK, LOOPBACK, Office, next_url, office, opens, secret_of
from tests.router.cli.commands import run


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    async with office(tmp_path_factory.mktemp("accounts")) as found:
        yield found


@pytest.fixture
async def at(shared: Office) -> Office:
    for server in (shared.tracker, shared.board, shared.vault):
        server.refuses.clear()
        server.calls.clear()
        server.read.clear()
    await shared.forget("tracker")
    await shared.forget("board")
    return shared


@pytest.mark.parametrize("mode", BOTH_ERAS)
@pytest.mark.parametrize("server", ["tracker", "board"])
async def test_a_client_is_asked_to_open_a_link_and_the_call_goes_on(at: Office, mode: Mode, server: str) -> None:
    asked: list[str] = []
    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), mode, opens(browser, asked)) as caller:
        await caller.text(f"{server}:echo", n=1)
        await caller.text(f"{server}:echo", n=2)
    used = at.tracker if server == "tracker" else at.board
    assert [account for account, _ in used.calls] == ["ada", "ada"]
    assert len(asked) == 1
    assert asked[0].startswith(f"{at.gateway.base_url}/oauth/connect/")


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_person_may_answer_first_and_sign_in_later(at: Office, mode: Mode) -> None:
    links: asyncio.Queue[str] = asyncio.Queue()

    async def elicited(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        links.put_nowait(params.url)
        return types.ElicitResult(action="accept")

    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), mode, elicited) as caller:
        call = asyncio.create_task(caller.text("board:echo", n=1))
        await browser.connect(await links.get())
        await call
    assert [account for account, _ in at.board.calls] == ["ada"]


async def test_a_person_who_declines_has_nothing_sent(at: Office) -> None:
    async def declines(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    for mode in BOTH_ERAS:
        async with at.caller(at.jwt("ada"), mode, declines) as caller:
            assert await caller.refusal("tracker:echo") == "sign_in_required"
    assert at.tracker.calls == []


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_link_that_was_declined_is_used_up_and_the_next_call_gets_another(at: Office, mode: Mode) -> None:
    asked: list[str] = []

    async def declines(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        asked.append(params.url)
        return types.ElicitResult(action="decline")

    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), mode, declines) as caller:
        assert await caller.refusal("tracker:echo") == "sign_in_required"
        assert await caller.refusal("tracker:echo") == "sign_in_required"
        assert asked[0] != asked[1]
        assert [(await browser.open(link)).status_code for link in asked] == [404, 404]


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_who_closes_the_question_has_not_refused_and_the_link_still_works(at: Office, mode: Mode) -> None:
    asked: list[str] = []

    async def cancels(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        asked.append(params.url)
        return types.ElicitResult(action="cancel")

    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), mode, cancels) as caller:
        results = await asyncio.gather(*(caller.execute("tracker:echo") for _ in range(3)))
        errors = [(result.structured_content or {})["error"] for result in results]
        assert {error["code"] for error in errors} == {"sign_in_required"}
        assert all("closed without an answer" in error["message"] for error in errors)
        assert len(set(asked)) == 1
        assert (await browser.open(asked[0])).status_code == 200
    assert at.tracker.calls == []


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_person_who_says_no_on_the_page_ends_the_call_that_waits(at: Office, mode: Mode) -> None:
    links: asyncio.Queue[str] = asyncio.Queue()

    async def elicited(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        links.put_nowait(params.url)
        return types.ElicitResult(action="accept")

    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), mode, elicited) as caller:
        call = asyncio.create_task(caller.execute("tracker:echo"))
        link = await links.get()
        page = await browser.decline(link)
        assert (page.status_code, "nothing was connected" in page.text) == (200, True)
        error = ((await call).structured_content or {})["error"]
        assert (error["code"], "the person refused" in error["message"]) == ("sign_in_required", True)
        assert (await browser.open(link)).status_code == 404
    assert await at.link(at.jwt("ada")) != link
    assert ("@sso/ada#all", "declined") in await at.refused()


async def test_a_person_who_says_no_at_the_authorization_server_ends_the_call_that_waits(at: Office) -> None:
    links: asyncio.Queue[str] = asyncio.Queue()

    async def elicited(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        links.put_nowait(params.url)
        return types.ElicitResult(action="accept")

    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), elicited=elicited) as caller:
        call = asyncio.create_task(caller.execute("tracker:echo"))
        page = await browser.agree(await links.get())
        back = urlsplit(await browser.returned(next_url(page)))
        answer = {**dict(parse_qsl(back.query)), "error": "access_denied"}
        del answer["code"]
        assert (await browser.http.get(back._replace(query=urlencode(answer)).geturl())).status_code == 409
        assert "the person refused" in ((await call).structured_content or {})["error"]["message"]


async def test_a_client_that_cannot_be_asked_gets_a_sentence_with_the_link(at: Office) -> None:
    link = await at.link(at.jwt("ada"))
    async with at.browser("ada") as browser:
        assert "is connected" in (await browser.connect(link)).text
    async with at.caller(at.jwt("ada"), "legacy") as caller:
        await caller.text("tracker:echo", n=1)
    assert at.tracker.accounts_for(n=1) == ["ada"]


READS = {"resources/read": "read", "prompts/get": "got"}


async def read(client: Client, method: str, server: str) -> str:
    """What a read says."""
    if method == "resources/read":
        return (await client.read_resource(f"pointsman+{server}+notes://today")).model_dump_json()
    if method == "prompts/get":
        return (await client.get_prompt(f"{server}__greet")).model_dump_json()
    prompt = types.PromptReference(name=f"{server}__greet")
    return (await client.complete(prompt, {"name": "a", "value": ""})).model_dump_json()


@pytest.mark.parametrize("mode", BOTH_ERAS)
@pytest.mark.parametrize("server", ["tracker", "board"])
@pytest.mark.parametrize("method", READS)
async def test_a_read_asks_for_a_sign_in_as_a_call_does(at: Office, method: str, server: str, mode: Mode) -> None:
    used, asked = at.tracker if server == "tracker" else at.board, list[str]()
    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), mode, opens(browser, asked)) as caller:
        assert READS[method] in await read(caller.client, method, server)
        assert READS[method] in await read(caller.client, method, server)
    assert used.read == [("ada", method)] * 2
    assert len(asked) == 1


@pytest.mark.parametrize("method", [*READS, "completion/complete"])
async def test_a_read_of_a_client_that_cannot_be_asked_has_the_link_in_its_error(at: Office, method: str) -> None:
    async with at.caller(at.jwt("ada")) as caller:
        with pytest.raises(MCPError) as refused:
            await read(caller.client, method, "tracker")
    assert refused.value.error.data == {"code": "sign_in_required"}
    link = LINK.search(refused.value.error.message)
    assert link is not None
    assert at.tracker.read == []
    async with at.browser("ada") as browser:
        assert "is connected" in (await browser.connect(link[0])).text


async def test_two_callers_at_once_never_use_each_others_account(at: Office) -> None:
    people = ("ada", "bob")
    for server in ("tracker", "board"):
        for name in people:
            async with at.browser(name) as browser:
                await browser.connect(await at.link(at.jwt(name), server))

    async def call(name: str, mode: Mode, server: str) -> None:
        async with at.caller(at.jwt(name), mode) as caller:
            await asyncio.gather(*(caller.text(f"{server}:echo", by=name, n=n) for n in range(10)))

    await asyncio.gather(*(call(name, mode, s) for name in people for mode in BOTH_ERAS for s in ("tracker", "board")))
    for used in (at.tracker, at.board):
        for name in people:
            assert used.accounts_for(by=name) == [name] * 20
        assert all(len(accounts) == 1 for accounts in used.sessions.values())
    sent = {value for used in (at.tracker, at.board) for value in used.authorization if value}
    assert all(value.startswith(("Bearer at-", "at-")) for value in sent)  # no caller's own token


async def test_after_a_new_sign_in_no_session_changes_its_account(at: Office) -> None:
    async with at.browser("ada") as browser:
        await browser.connect(await at.link(at.jwt("ada"), "board"))
        async with at.caller(at.jwt("ada")) as caller:
            await caller.text("board:echo", n=1)
            await at.forget("board")
            link = await at.link(at.jwt("ada"), "board")
            page = await browser.agree(link)
            page = await browser.follow(page)
            browser.account = "ada-at-work"
            assert "is connected" in (await browser.follow(page)).text
            await caller.text("board:echo", n=2)
    assert at.board.accounts_for(n=1) == ["ada"]
    assert at.board.accounts_for(n=2) == ["ada-at-work"]
    assert all(len(accounts) == 1 for accounts in at.board.sessions.values())


async def test_accounts_are_listed_and_end_when_they_are_revoked(at: Office) -> None:
    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), elicited=opens(browser, [])) as caller:
        await caller.text("tracker:echo", n=1)
        (listed,) = (await at.ask("credentials", server="tracker"))["credentials"]
        assert (listed["who"], listed["project"], listed["works"]) == ("@sso/ada", None, True)
        await at.ask("end_credential", server="tracker", credential=listed["id"])
        assert at.tracker.asked["revoke"]
        before = len(at.tracker.calls)
    await at.link(at.jwt("ada"))  # it has to sign in again
    assert len(at.tracker.calls) == before
    assert (await at.ask("credentials", server="tracker"))["credentials"] == []


async def test_headers_of_single_callers_are_used_for_them_only(at: Office) -> None:
    async with at.caller(secret_of("laptop")) as laptop, at.caller(at.jwt("ada")) as ada:
        await asyncio.gather(laptop.text("vault:echo", by="laptop"), ada.text("vault:echo", by="ada"))
    assert at.vault.accounts_for(by="laptop") == ["of-laptop"]
    assert at.vault.accounts_for(by="ada") == ["of-ada"]
    for token in (secret_of("desktop"), at.jwt("bob")):
        async with at.caller(token) as other:
            error = ((await other.execute("vault:echo")).structured_content or {})["error"]
            assert error["code"] == "server_unavailable"
            assert "servers.vault.caller_headers" in error["message"]
            assert "later" not in error["message"]
    assert len(at.vault.calls) == 2


@pytest.mark.parametrize("name", ["phone", "@sso/eve"])
async def test_headers_of_a_caller_that_are_refused_are_named(at: Office, name: str) -> None:
    async with at.caller(secret_of(name) if name == "phone" else at.jwt("eve")) as client:
        error = ((await client.execute("vault:echo")).structured_content or {})["error"]
    assert error["code"] == "server_unavailable"
    assert f"the credential of `{name}` (HTTP 401): check `servers.vault.caller_headers.{name}`" in error["message"]
    assert "The call did not run. Ask the operator" in error["message"]
    assert "oauth" not in error["message"]
    assert "later" not in error["message"]


async def test_a_server_that_refuses_every_token_is_not_asked_for_ever(at: Office) -> None:
    asked: list[str] = []
    at.tracker.refuses.add("ada")
    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), elicited=opens(browser, asked)) as caller:
        before = len(at.tracker.authorization)
        assert await caller.refusal("tracker:echo") == "sign_in_required"
        assert await caller.refusal("tracker:echo") == "sign_in_required"
        assert len(asked) <= 2
        assert len(at.tracker.authorization) - before < 20
        at.tracker.refuses.clear()
    assert at.tracker.calls == []


async def test_an_account_that_has_ended_needs_its_person_and_the_gateways_own_one_the_operator(at: Office) -> None:
    tracker = at.tracker
    async with at.browser("ada") as browser:
        await browser.connect(await at.link(at.jwt("ada")))
    async with at.caller(at.jwt("ada")) as caller:
        await caller.text("tracker:echo")
        tracker.refresh.clear()
        for token in [token for token in tracker.access if tracker.account_of.get(token) == "ada"]:
            del tracker.access[token]
        await at.link(at.jwt("ada"))
        tracker.access.clear()
        try:
            tested = await run(at.folder, "server", "test", "tracker", "--config", str(at.gateway.config_file))
            assert "needs sign-in: run `pointsman server login tracker`" in tested.stderr
            states = {one["id"]: one["state"] for one in (await at.ask("servers"))["servers"]}
            assert (states["tracker"], states["board"]) == ("needs sign-in", "running")
            error = ((await caller.execute("tracker:echo")).structured_content or {})["error"]
            assert "pointsman server login tracker" in error["message"]
            assert "link" not in error["message"]
        finally:
            await at.login("tracker")


async def test_an_account_that_lacks_scopes_is_told_which(at: Office) -> None:
    asked: list[str] = []
    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), elicited=opens(browser, asked)) as caller:
        await caller.text("tracker:echo", n=1)
        at.tracker.needed_scopes = {"echo": "notes:`write`<b>"}
        try:
            async with at.caller(at.jwt("ada")) as plain:
                error = ((await plain.execute("tracker:echo")).structured_content or {})["error"]
            link = LINK.search(error["message"])
            assert link is not None, error
            page = await browser.open(link[0])
            await caller.text("tracker:echo", n=2)
        finally:
            at.tracker.needed_scopes = {}
    assert error["code"] == "sign_in_required"
    assert (
        "own account lacks scopes that this call needs (notes:'write'<b>), so it needs a new sign-in"
        in error["message"]
    )
    assert "lacks scopes that the call needs: <strong>notes:&#39;write&#39;&lt;b&gt;</strong>" in page.text
    assert len(asked) == 2
    assert "notes:`write`<b>" in at.tracker.asked["authorize"][-1]["scope"].split()
    assert at.tracker.accounts_for(n=2) == ["ada", "ada"]  # refused, and then with the scope


async def test_the_owner_signs_in_for_a_token_by_the_command(at: Office) -> None:
    begun = await at.ask("begin_sign_in", server="tracker", redirectUri=LOOPBACK, token="laptop")
    async with at.browser("ada") as browser:
        answer = dict(parse_qsl(urlsplit(await browser.returned(begun["url"])).query))
    await at.ask("finish_sign_in", state=answer.pop("state"), answer=answer)
    async with at.caller(secret_of("laptop")) as caller:
        await caller.text("tracker:echo", n=1)
    assert at.tracker.accounts_for(n=1) == ["ada"]
    shown = await run(at.folder, "server", "credentials", "tracker")
    assert "laptop" in shown.stdout


async def test_a_legacy_client_is_told_that_the_sign_in_is_complete(at: Office) -> None:
    """Over plain HTTP: the SDK's client drops what it does not know."""
    async with at.browser("ada") as browser, httpx2.AsyncClient(timeout=30) as http:
        headers = {"Authorization": f"Bearer {at.jwt('ada')}", "Accept": "application/json, text/event-stream"}
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {"url": {}}},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        begun = await http.post(at.gateway.url, json=rpc(1, "initialize", hello), headers=headers)
        headers |= {"Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        call = {"name": "tool_execute", "arguments": {"toolKey": "tracker:echo", "arguments": {"n": 1}}}
        seen = []
        async with http.stream("POST", at.gateway.url, json=rpc(2, "tools/call", call), headers=headers) as stream:
            async for line in stream.aiter_lines():
                message = json.loads(line[6:]) if line.startswith("data: {") else {}
                seen.append(message)
                if message.get("method") == "elicitation/create":
                    await browser.connect(message["params"]["url"])
                    accepted = {"jsonrpc": "2.0", "id": message["id"], "result": {"action": "accept"}}
                    await http.post(at.gateway.url, json=accepted, headers=headers)
    question = next(one["params"] for one in seen if one.get("method") == "elicitation/create")
    done = next(one["params"] for one in seen if one.get("method") == "notifications/elicitation/complete")
    assert question["mode"] == "url"
    assert done == {"elicitationId": question["elicitationId"]}
    assert next(one for one in seen if one.get("id") == 2)["result"].get("isError") is not True


def rpc(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
