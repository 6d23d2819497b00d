"""What the owner is told of accounts of callers: by the commands, by doctor, and in the log of a reload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.router.accounts.office import Office, office, secret_of
from tests.router.cli.commands import run
from tests.server_login import server_login

LOG_S = 10.0  # until a line of the log has been read


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    async with office(tmp_path_factory.mktemp("accounts")) as found:
        yield found


@pytest.fixture
async def at(shared: Office) -> Office:
    await shared.forget("tracker")
    return shared


async def connect(at: Office, *people: str) -> None:
    for person in people:
        async with at.browser(person) as browser:
            await browser.connect(await at.link(at.jwt(person)))


async def reload_tracker(at: Office, *without: str) -> None:
    tracker = {key: value for key, value in at.config["servers"]["tracker"].items() if key not in without}
    await at.reload(servers={**at.config["servers"], "tracker": tracker})


async def logged_since(at: Office, before: int) -> list[str]:
    """The lines on accounts of callers: the log is read in another task than the answer to the reload."""
    async with asyncio.timeout(LOG_S):
        while not (found := [line for line in at.gateway.lines[before:] if "per-caller" in line]):
            await asyncio.sleep(0.01)
    return found


async def doctor(at: Office) -> str:
    return (await run(at.folder, "doctor", "--config", str(at.gateway.config_file))).stdout


@pytest.mark.parametrize("without", [("credentials",), ("credentials", "oauth")])
async def test_accounts_that_are_no_longer_used_are_told_of(at: Office, without: tuple[str, ...]) -> None:
    await connect(at, "ada", "bob")
    command, before = "pointsman server credentials tracker --revoke-all", len(at.gateway.lines)
    assert command not in await doctor(at)
    await reload_tracker(at, *without)
    try:
        (logged,) = await logged_since(at, before)
        found = await doctor(at)
        shown = await run(at.folder, "server", "credentials", "tracker")
        for told in (logged, found):
            assert "server tracker" in told.lower().replace("`", "")
            assert "all callers" in told
            assert "credentials of 2 people are stored and unused" in told
            assert command in told
        assert ("`oauth`" in found, "put the keys back" in found) == ("oauth" in without,) * 2
        assert shown.stdout.count("no: the server has no `credentials: per-caller`") == 2
        revoked = await run(at.folder, *command.split()[1:])
        assert revoked.stderr.count("is revoked") == 2
        assert command not in await doctor(at)
    finally:
        await at.reload()
    assert (await at.ask("credentials", server="tracker"))["credentials"] == []


async def test_a_reload_that_leaves_the_key_says_nothing(at: Office) -> None:
    await connect(at, "ada")
    before = len(at.gateway.lines)
    await reload_tracker(at, "name")
    await at.reload()
    assert not [line for line in at.gateway.lines[before:] if "per-caller" in line]


async def test_accounts_of_a_server_that_was_removed_are_a_note(at: Office) -> None:
    await connect(at, "ada")
    await at.reload(servers={name: one for name, one in at.config["servers"].items() if name != "tracker"})
    try:
        (unused,) = (await at.ask("unused_credentials"))["unused"]
        assert (unused["server"], unused["people"], unused["exists"]) == ("tracker", 1, False)
        shown = await run(at.folder, "server", "credentials", "tracker")
        assert "no: the server was removed" in shown.stdout
        assert "Server `tracker` was removed; credentials of 1 person are stored" in await doctor(at)
    finally:
        await at.reload()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("login", "vault", "--for", "laptop"), "`servers.vault.caller_headers.laptop`"),
        (("login", "vault"), "callers have headers of their own"),
        (("login", "plain"), "If it asks for OAuth, add `oauth: auto`"),
        (("login", "keyed"), "it gets the `headers` of its entry"),
        (("login", "plain", "--for", "laptop"), "If it asks for OAuth, add `oauth: auto`"),
        (("login", "tracker", "--for", "nobody"), "No token `nobody`"),
        (("login", "shared", "--for", "laptop"), "Leave `--for` out"),
        (("credentials", "plain"), "`plain` has no accounts of callers: the server has no `credentials: per-caller`"),
        (("credentials", "vault"), "`vault` has no accounts of callers: the server has no `oauth`"),
        (("credentials", "tracker"), "No caller has signed in to `tracker`"),
        (("credentials", "tracker", "--revoke", "x", "--revoke-all"), "exclude each other"),
    ],
)
async def test_a_command_that_cannot_help_names_what_does(at: Office, words: tuple[str, ...], said: str) -> None:
    plain: dict[str, Any] = {"url": at.vault.url, "enabled": False}
    more = {
        "plain": plain,
        "keyed": {**plain, "headers": {"X-Key": "k"}},
        "shared": {"url": at.vault.url, "oauth": "auto"},
    }
    await at.reload(servers={**at.config["servers"], **more})
    try:
        ran = await run(at.folder, "server", *words)
    finally:
        await at.reload()
    assert said in ran.stderr


async def test_the_command_says_for_whom_and_uses_its_client_again(at: Office) -> None:
    """The port of the first sign-in is used again, so that nothing is registered for the second."""
    registered, ports = len(at.tracker.registered), []
    for token in ("laptop", "phone"):
        code, out, err = await server_login(at.gateway.state_dir, "tracker", "--for", token)
        assert code == 0, err
        assert f"Signed in to `tracker` for `{token}`." in out
        assert f"for `{token}`" in err
        ports.append(urlsplit(parse_qs(urlsplit(out.split()[0]).query)["redirect_uri"][0]).port)
    assert ports[0] == ports[1]
    assert len(at.tracker.registered) == registered + 1
    listed = (await at.ask("credentials", server="tracker"))["credentials"]
    assert [one["who"] for one in listed] == ["laptop", "phone"]


async def test_the_gateways_own_port_is_never_taken_for_a_commands(at: Office) -> None:
    """The client of a link's page returns to the gateway itself."""
    await at.forget("board")
    async with at.browser("owner", owner=True) as owner:
        await owner.connect(await at.link(secret_of("laptop"), "board"))
    assert await at.ask("sign_in_port", server="board", token="laptop") == {"port": None, "required": False}


async def test_the_page_after_a_link_of_the_owner_speaks_of_accounts(at: Office) -> None:
    config = {key: value for key, value in at.config.items() if key != "auth"}
    at.gateway.write_config(config)
    await at.ask("reload")
    try:
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            entered = await http.get((await at.ask("grant_link"))["url"])
    finally:
        await at.reload()
    assert "connect accounts at servers" in entered.text
