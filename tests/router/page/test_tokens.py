"""The screen of the tokens: a secret is shown once, and a form creates one token."""

from __future__ import annotations

import asyncio
import html
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.config.loader import load
from pointsman.config.secrets import digest
from tests.e2e.client import assistant
from tests.router.conftest import audit_rows, workshop
from tests.router.page.browser import Screens
from tests.router.page.owner import Owner, command, hidden_fields, running_page
from tests.router.page.rights_config import SECRET as GUEST
from tests.router.page.rights_config import commented, commented_text

SECRET = re.compile(r"ptm_[A-Za-z0-9_-]{43}")


@pytest.fixture(scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Owner]:
    async with commented(tmp_path_factory.mktemp("page")) as signed_in:
        yield signed_in


async def test_a_token_is_created_and_its_secret_is_shown_once(tmp_path: Path) -> None:
    async with commented(tmp_path) as owner:
        typed = {"name": "laptop", "projects": ["attic", "@unassigned"], "servers": "*", "expires": "30d"}
        asked = await owner.post("/page/tokens", {**typed, "client": "cursor"})
        assert "Create the token laptop?" in asked.text
        assert not SECRET.search(asked.text)
        assert "laptop" not in owner.gateway.config_file.read_text()
        form = hidden_fields(asked.text)
        created = await owner.post("/page/tokens", form)
        assert created.status_code == 200
        assert created.headers["cache-control"] == "no-store"
        assert "set-cookie" not in created.headers
        (secret,) = set(SECRET.findall(html.unescape(created.text)))
        assert "mcpServers" in created.text
        assert f"Bearer {secret}" in html.unescape(created.text)
        # A reload sends the same form again.
        again = await owner.post("/page/tokens", form)
        assert again.status_code == 409
        assert "was sent before" in again.text
        assert not SECRET.search(again.text)
        token = load(owner.gateway.config_file, {}).tokens["laptop"]
        assert (token.sha256, token.projects, token.servers) == (digest(secret), ("attic", ""), ("*",))
        listed = json.loads(await command(owner, "token", "list", "--json"))
        assert [one["name"] for one in listed] == ["test", "guest", "laptop"]
        assert await _works(owner, secret)
        for path in ("/page/tokens", "/page/tokens/laptop", "/", "/page/projects/attic"):
            assert secret not in (await owner.get(path)).text
        log = (owner.gateway.state_dir / "logs" / "pointsman.log").read_text()
        assert secret not in owner.gateway.stderr + log + str(await audit_rows(owner.gateway.state_dir))
        assert secret not in owner.gateway.config_file.read_text()
        assert ("page", "configuration/add", "tokens.laptop") in await owner.changes()
        assert (await owner.confirm("/page/tokens/laptop/revoke")).headers["location"] == "/page/tokens"
        assert not await _works(owner, secret)
        assert owner.gateway.config_file.read_text() == commented_text(tmp_path)
        assert ("page", "configuration/remove", "tokens.laptop") in await owner.changes()


async def test_a_duration_is_the_same_time_in_the_diff_and_in_the_file(owner: Owner) -> None:
    """However long a person looks at the diff: the confirmation sends the time that the diff shows."""
    asked = await owner.post("/page/tokens", {"name": "brief", "projects": "*", "servers": "*", "expires": "30d"})
    (expires,) = hidden_fields(asked.text)["expires"]
    assert f'expires: "{expires}"' in html.unescape(asked.text)
    changed = await owner.post("/page/tokens/guest", {"projects": "*", "servers": "*", "expires": "8w"})
    (expires,) = hidden_fields(changed.text)["expires"]
    assert f'expires: "{expires}"' in html.unescape(changed.text)


async def test_a_form_that_is_sent_twice_at_once_creates_one_token(owner: Owner) -> None:
    form = hidden_fields((await owner.post("/page/tokens", {"name": "twice", "projects": "*", "servers": "*"})).text)
    answers = await asyncio.gather(*(owner.post("/page/tokens", form) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert len(SECRET.findall("".join(answer.text for answer in answers))) == 1
    await owner.confirm("/page/tokens/twice/revoke")


async def test_a_file_that_changed_meanwhile_is_shown_again_and_the_form_still_works(tmp_path: Path) -> None:
    async with commented(tmp_path) as owner:
        form = hidden_fields((await owner.post("/page/tokens", {"name": "late", "projects": "*", "servers": "*"})).text)
        file = owner.gateway.config_file
        file.write_text(file.read_text() + "# later\n")
        again = await owner.post("/page/tokens", form)
        assert "has changed since" in again.text
        created = await owner.post("/page/tokens", hidden_fields(again.text))
        assert SECRET.search(created.text)
        assert "# later" in file.read_text()


async def test_rights_change_and_comments_stay(tmp_path: Path) -> None:
    async with commented(tmp_path) as owner:
        changed = {"projects": ["cellar", "@unassigned"], "servers": ["shop", "plain"], "expires": ""}
        saved = await owner.confirm("/page/tokens/guest", changed)
        assert saved.headers["location"] == "/page/tokens/guest"
        (row,) = (one for one in json.loads(await command(owner, "token", "list", "--json")) if one["name"] == "guest")
        assert (row["projects"], row["servers"], row["expires"]) == (["cellar", ""], ["shop", "plain"], None)
        text = owner.gateway.config_file.read_text()
        assert '    projects: [cellar, ""]  # nothing else\n    servers: [shop, plain]\n' in text
        assert "# a holiday" in text


async def test_a_token_is_limited_to_scopes_and_patterns(owner: Owner) -> None:
    """A form without these fields changes neither, and an empty list of patterns means all tools again."""
    typed = {"name": "reader", "projects": "*", "servers": "*", "scopes": "read", "tools": "shop:*\r\n!*:erase\r\n"}
    asked = await owner.post("/page/tokens", typed)
    assert "Token <code>reader</code> sees no tools of <code>shop</code>, <code>plain</code>" in asked.text
    await owner.post("/page/tokens", hidden_fields(asked.text))

    def limits() -> tuple[object, object]:
        token = load(owner.gateway.config_file, {}).tokens["reader"]
        return token.scopes, token.tools

    assert limits() == (("read",), ("shop:*", "!*:erase"))
    listed, shown = (await owner.get("/page/tokens")).text, (await owner.get("/page/tokens/reader")).text
    assert "only tools that read; <code>shop:*</code>" in listed
    assert 'value="read" checked' in shown
    assert "shop:*\n!*:erase</textarea>" in shown
    await owner.confirm("/page/tokens/reader", {"projects": "attic", "servers": "*"})
    assert limits() == (("read",), ("shop:*", "!*:erase"))
    wider = {"projects": "attic", "servers": "*", "scopes": "read write", "tools": ""}
    await owner.confirm("/page/tokens/reader", wider)
    assert limits() == (("read", "write"), None)
    assert "has already" in (await owner.post("/page/tokens/reader", wider)).text
    await owner.confirm("/page/tokens/reader/revoke")


async def test_last_use_and_client_are_those_of_the_audit(tmp_path: Path) -> None:
    async with running_page(tmp_path, {"servers": {"shop": workshop(tmp_path / "trace")}}) as owner:
        assert "never" in (await owner.get("/page/tokens/test")).text
        async with assistant(owner.gateway) as client:
            await client.discover("colour")
        (row,) = await audit_rows(owner.gateway.state_dir, "--kind", "discovery")
        assert row["client"]
        for path in ("/page/tokens", "/page/tokens/test"):
            assert f">{html.escape(row['client'])}<" in (await owner.get(path)).text


@pytest.mark.parametrize(
    ("path", "fields", "status", "said"),
    [
        ("", {"name": "", "projects": "*"}, 400, "needs a name"),
        ("", {"name": "guest", "projects": "*"}, 400, "already a token"),
        ("", {"name": "a b", "projects": "*"}, 400, "was not changed"),
        ("", {"name": "x", "projects": "attik"}, 400, "Did you mean"),
        ("", {"name": "x", "servers": "nowhere"}, 400, "There is no server"),
        ("", {"name": "x", "expires": "soon"}, 400, "a duration from now"),
        ("", {"name": "x", "expires": "2001-01-01"}, 400, "in the past"),
        ("", {"name": "x", "client": "netscape"}, 400, "No client"),
        ("", {"name": "x", "projects": "*", "scopes": "raed"}, 400, "what the tools of the token may do"),
        ("", {"name": "x", "projects": "*", "tools": "erase"}, 400, "needs a server and a tool"),
        ("/guest", {"projects": "attic", "servers": "shop", "tools": "shop:?"}, 409, "another wildcard"),
        ("", {"name": "x", "confirmed": "yes", "nonce": "made-up"}, 409, "sent before"),
        ("/guest", {"projects": "attic", "servers": "shop", "expires": "2031-05-04"}, 409, "has already"),
        ("/guests", {"projects": "attic"}, 404, "Did you mean"),
        ("/nobody/revoke", {}, 404, "There is no token"),
    ],
)
async def test_bad_input_is_named(owner: Owner, path: str, fields: dict[str, str], status: int, said: str) -> None:
    before = owner.gateway.config_file.read_text()
    refused = await owner.post(f"/page/tokens{path}", fields)
    assert refused.status_code == status, refused.text
    assert said in refused.text
    assert owner.gateway.config_file.read_text() == before
    assert not SECRET.search(refused.text)


async def test_what_was_typed_stays_in_the_form(owner: Owner) -> None:
    refused = await owner.post("/page/tokens", {"name": "x", "projects": "attic", "servers": "shop", "expires": "soon"})
    assert 'value="soon"' in refused.text
    assert 'value="attic" checked' in refused.text
    assert 'name="servers" value="*" checked' not in refused.text


async def test_a_token_without_rights_is_created_with_a_warning(owner: Owner) -> None:
    asked = await owner.post("/page/tokens", {"name": "idle"})
    assert "every call is denied" in asked.text


async def test_tokens_are_shown_when_the_audit_cannot_be_read(tmp_path: Path) -> None:
    async with running_page(tmp_path, {}) as owner:
        async with asyncio.timeout(30):
            while not (owner.gateway.state_dir / "state.db").exists():
                await asyncio.sleep(0.1)  # rows are moved there every few seconds
        with closing(sqlite3.connect(owner.gateway.state_dir / "state.db")) as connection:
            connection.execute("PRAGMA user_version = 99")
        assert "the audit cannot be read" in (await owner.get("/page/tokens")).text


async def test_a_token_is_revoked_though_the_file_has_a_mistake_elsewhere(tmp_path: Path) -> None:
    async with commented(tmp_path) as owner:
        assert await _works(owner, GUEST)
        file = owner.gateway.config_file
        file.write_text(file.read_text() + "nonsense: 1\n")
        await owner.gateway.until_logged("nonsense")
        revoked = await owner.confirm("/page/tokens/guest/revoke")
        assert revoked.status_code == 303, revoked.text
        assert "refused from now on" in await owner.flash()
        assert not await _works(owner, GUEST)
        assert "guest" not in file.read_text()


async def test_many_tokens_are_paged(tmp_path: Path) -> None:
    tokens = {f"t{number}": {"sha256": f"{number:064x}", "projects": ["*"], "servers": ["*"]} for number in range(2000)}
    async with running_page(tmp_path, {"tokens": tokens}) as owner:
        first = await owner.get("/page/tokens")
        assert len(first.content) < 200_000
        assert first.text.count("/revoke") == 50
        assert "11 found" in (await owner.get("/page/tokens?q=t99")).text


async def _works(owner: Owner, secret: str) -> bool:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient() as http:
        answer = await http.post(owner.gateway.base_url + "/mcp", json=body, headers=headers)
    return answer.status_code != 401


@pytest.mark.browser
async def test_looks_right_in_a_browser(screens: Screens) -> None:
    await screens.check("tokens", "/page/tokens")
    await screens.check("token", "/page/tokens/guest")


@pytest.mark.browser
async def test_a_secret_is_gone_after_a_reload(screens: Screens) -> None:
    number = iter(range(10))

    async def create(page: Any) -> None:
        await page.fill("#token-name", f"phone{next(number)}")
        await page.select_option("#client", "claude-code")
        await page.click("#create button")
        await page.click("button:has-text('Create')")
        await page.wait_for_selector("#secret")

    await screens.check("token-created", "/page/tokens", create)
    async with screens.page() as page:
        await page.goto(screens.owner.gateway.base_url + "/page/tokens")
        await create(page)
        secret = await page.text_content("#secret")
        assert secret
        assert secret not in page.url
        await page.reload()
        assert secret not in await page.content()
        await page.go_back()
        assert secret not in await page.content()
