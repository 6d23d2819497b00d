"""Clients that others wrote are given the gateway's address, sign in through a browser, and call a tool."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pointsman.router.owner.client import ask
from tests.e2e.agents.model import Model, serving
from tests.e2e.agents.programs import (
    Places,
    Run,
    Setup,
    agent_environment,
    claude_code,
    codex,
    needs_agents,
    opencode,
)
from tests.e2e.agents.test_client_add import QUIET
from tests.e2e.authorization_server import authorization_server, needs_authorization_server
from tests.e2e.clients.client_document import client_site, document
from tests.e2e.clients.installed import NODE_BIN, NODE_FOLDER, PYTHON, environment, needs_node, needs_python
from tests.e2e.clients.person import Person, SignIn, as_owner, chromium, with_account
from tests.e2e.clients.snippets import snippet
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.auth.server.office import free_port
from tests.router.conftest import audit_rows

if TYPE_CHECKING:
    from playwright.async_api import Browser

# Not forked: what aiohttp trusts is read when it is imported.
pytestmark = [*needs_node, *needs_python, *needs_agents, *needs_authorization_server, pytest.mark.new_interpreter]

CLIENT_S = 90.0  # a bound against hanging
NODE_TOOLS = NODE_FOLDER / "node_modules" / ".bin"
SERVERS = {"time": {"command": sys.executable, "args": [str(Path(__file__).parent / "clock_server.py")]}}
DRIVERS = Path(__file__).parent / "drivers"
CLAUDE_DOCUMENT = "https://claude.ai/oauth/claude-code-client-metadata"
TASK = "what is the current time in Tokyo"
ANSWER = "It is 21:00 in Asia/Tokyo"
TOOL, ARGUMENTS = "time:get_current_time", {"timezone": "Asia/Tokyo"}


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@dataclass(frozen=True)
class Front:
    """A gateway, and what a person does who signs in to let a client of some name use it."""

    gateway: GatewayProcess
    sign_in: Callable[[str], SignIn]
    document: str  # the address of Claude Code's metadata document

    @property
    def url(self) -> str:
        return self.gateway.url

    def grants(self) -> list[dict[str, Any]]:
        """The newest first."""
        found: list[dict[str, Any]] = ask(self.gateway.state_dir, "grants")["grants"]
        return found


@pytest.fixture(scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    """A gateway with an authorization server of its own. A site on loopback stands for claude.ai."""
    async with client_site(tmp_path_factory.mktemp("site"), "Claude Code") as site:
        trusted = {"SSL_CERT_FILE": str(site.certificate)}
        async with at_public_url(tmp_path_factory.mktemp("own"), env=trusted) as running:
            yield Front(running, lambda name: as_owner(running, name), site.address)


@pytest.fixture(scope="module")
async def company(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    """A gateway at which people sign in with an account of an authorization server that others wrote."""
    documents = {CLAUDE_DOCUMENT: document(CLAUDE_DOCUMENT, "Claude Code")}
    rule = {"when": {"groups": "staff"}, "projects": ["*"], "servers": ["*"]}
    async with authorization_server(tmp_path_factory.mktemp("issuer"), cimd=True, documents=documents) as server:
        auth = {"issuer": server.issuer, "name": "corp", "claims": {"staff": rule}}
        async with at_public_url(tmp_path_factory.mktemp("company"), auth=auth) as running:
            yield Front(running, lambda name: with_account(server.issuer, "alice"), CLAUDE_DOCUMENT)


@pytest.fixture(scope="module")
async def plain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    """A gateway at which nobody can sign in."""
    async with gateway_process(tmp_path_factory.mktemp("plain"), {"servers": SERVERS}) as running:
        yield Front(running, lambda name: as_owner(running, name), CLAUDE_DOCUMENT)


@asynccontextmanager
async def at_public_url(
    folder: Path, env: dict[str, str] | None = None, **config: Any
) -> AsyncIterator[GatewayProcess]:
    port = free_port()
    listen = {"public_url": f"http://127.0.0.1:{port}", "drain_s": 0}
    settings = {"listen": listen, "servers": SERVERS, **config}
    async with gateway_process(folder, settings, args=("--port", str(port)), env=env) as running:
        yield running


@pytest.fixture
def person(browser: Browser, tmp_path: Path) -> Person:
    return Person(browser, tmp_path)


@asynccontextmanager
async def program(
    person: Person, *command: str | Path, env: dict[str, str], cwd: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program; with the block, it ends, and so does what it has started."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd or person.home,
        env=person.environment(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(CLIENT_S):
            yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def said(
    person: Person, *command: str | Path, env: dict[str, str], cwd: Path | None = None, stdin: str = ""
) -> str:
    """All that a program prints. It must succeed."""
    async with program(person, *command, env=env, cwd=cwd) as process:
        out = (await process.communicate(stdin.encode()))[0].decode(errors="replace")
    assert process.returncode == 0, out
    return out


async def fastmcp(front: Front, person: Person) -> str:
    return await said(person, PYTHON, DRIVERS / "sign_in_fastmcp.py", front.url, env=environment(person.home))


async def typescript(front: Front, person: Person) -> str:
    code = (DRIVERS / "sign_in_typescript.mjs").read_text()
    return await node(person, code, environment(person.home, GATEWAY=front.url))


async def node(person: Person, code: str, env: dict[str, str]) -> str:
    """What a script prints, which finds its imports where the clients are installed."""
    return await said(person, NODE_BIN / "node", "--input-type=module", "-", env=env, cwd=NODE_FOLDER, stdin=code)


async def mcp_remote(front: Front, person: Person) -> str:
    """Speaks to it on stdin and stdout, as a client that can only start commands does."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "starter", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "tool_execute", "arguments": {"toolKey": TOOL, "arguments": ARGUMENTS}},
        },
    ]
    command, env = (NODE_TOOLS / "mcp-remote", front.url, "--transport", "http-only"), environment(person.home)
    said, line = "", b""
    async with program(person, *command, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            while "id" in message and not (line := await process.stdout.readline()).startswith(b"{"):
                assert line, said
                said += line.decode()
    return line.decode()


async def inspector(front: Front, person: Person) -> str:
    call = ("tool_execute", "--tool-arg", f"toolKey={TOOL}", f"arguments={json.dumps(ARGUMENTS)}")
    command = (NODE_TOOLS / "mcp-inspector", "--cli", front.url, "--transport", "http", "--method", "tools/call")
    env = environment(person.home, MCP_AUTO_OPEN_ENABLED="true")
    return await said(person, *command, "--tool-name", *call, env=env, cwd=NODE_FOLDER)


async def claude(front: Front, person: Person) -> str:
    waiting = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "60000"}  # or it begins without servers
    env = QUIET | waiting | agent_environment(person.home) | {"MCP_OAUTH_CLIENT_METADATA_URL": front.document}
    await said(
        person, "claude", "mcp", "add", "--scope", "user", "--transport", "http", "pointsman", front.url, env=env
    )
    await said(person, "script", "-qec", "claude mcp login pointsman", "/dev/null", env=env)
    return await asked_to_call(claude_code, person, env)


async def openai_codex(front: Front, person: Person) -> str:
    env = QUIET | agent_environment(person.home)
    setup = codex("gpt-5.2")

    def prepared(places: Places, prompt: str) -> Run:
        run = setup(places, prompt)  # writes its settings anew
        with (person.home / ".codex/config.toml").open("a") as file:
            file.write(f'[mcp_servers.pointsman]\nurl = "{front.url}"\nrequired = true\n')
        return run

    (person.home / ".codex").mkdir()
    await said(
        person, "codex", "mcp", "add", "pointsman", "--url", front.url, "--oauth-client-registration", "dcr", env=env
    )
    return await asked_to_call(prepared, person, env)


async def sst_opencode(front: Front, person: Person) -> str:
    env = QUIET | agent_environment(person.home)
    settings = person.home / ".config/opencode/opencode.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"mcp": {"pointsman": {"type": "remote", "url": front.url, "enabled": True}}}))
    await said(person, "opencode", "mcp", "auth", "pointsman", env=env)
    return await asked_to_call(opencode, person, env)


def asked_for(address: str) -> tuple[str, str]:
    """Scope and resource of an authorization request."""
    query = parse_qs(urlsplit(address).query)
    return query["scope"][0], query["resource"][0]


def asked_by(person: Person) -> str:
    return parse_qs(urlsplit(person.asked[-1]).query)["client_id"][0]


async def asked_to_call(setup: Setup, person: Person, env: dict[str, str]) -> str:
    """What the agent says after its model has called a tool."""
    work = person.home / "work"
    work.mkdir()
    with serving(Model({TOOL: ARGUMENTS})) as model:
        run = setup(Places(None, "", model.url, person.home, work), f"Do this. TASK: {TASK}")
        return await said(person, *run.command, env=env | run.environment, cwd=work)


@dataclass(frozen=True)
class Tried:
    run: Callable[[Front, Person], Coroutine[Any, Any, str]]
    name: str  # under which it asks for access


CLIENTS = {
    "fastmcp": Tried(fastmcp, "FastMCP Client"),
    "typescript": Tried(typescript, "A script"),
    "mcp-remote": Tried(mcp_remote, "MCP CLI Proxy"),
    "inspector": Tried(inspector, "MCP Inspector"),
    "claude code": Tried(claude, "Claude Code"),
    "codex": Tried(openai_codex, "Codex"),
    "opencode": Tried(sst_opencode, "OpenCode"),
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_signs_in_at_the_gateway_itself(client: str, own: Front, person: Person) -> None:
    tried = CLIENTS[client]
    answer = await person.use(tried.run(own, person), own.sign_in(tried.name))
    assert ANSWER in answer
    assert [asked_for(address) for address in person.asked] == [("mcp", own.url)]
    rows = await audit_rows(own.gateway.state_dir)
    assert (rows[-1]["method"], rows[-1]["outcome"]) == ("tools/call", "ok")
    [grant] = [one for one in own.grants() if f"@grant/{one['id']}" == rows[-1]["token"]]
    assert grant["client"] == tried.name
    steps = [row["method"] for row in rows if (row["client"], row["token"]) == (tried.name, rows[-1]["token"])]
    assert steps == ["oauth/authorize", "oauth/token"]


@pytest.mark.parametrize("client", ["claude code", "mcp-remote", "typescript"])
async def test_a_client_signs_in_with_an_account(client: str, company: Front, person: Person) -> None:
    tried = CLIENTS[client]
    answer = await person.use(tried.run(company, person), company.sign_in(tried.name))
    assert ANSWER in answer
    assert len(person.asked) == 1
    rows = await audit_rows(company.gateway.state_dir)
    assert (rows[-1]["token"], rows[-1]["method"], rows[-1]["outcome"]) == ("@corp/alice#staff", "tools/call", "ok")


async def test_a_client_asks_again_when_its_grant_was_revoked(own: Front, person: Person) -> None:
    async def use() -> int:
        """Run the client, and return how often it has opened the browser so far."""
        assert ANSWER in await person.use(mcp_remote(own, person), own.sign_in("MCP CLI Proxy"))
        return len(person.asked)

    first = await use()
    assert await use() == first > 0  # it keeps what it was given
    [kept] = [one["id"] for one in own.grants() if asked_by(person) == one["clientId"]]
    ask(own.gateway.state_dir, "revoke_grant", grant=kept)
    assert await use() > first
    assert kept not in [one["id"] for one in own.grants()]


async def test_a_token_of_the_yaml_still_needs_no_browser(own: Front, person: Person) -> None:
    code = snippet("typescript-v2", own.gateway.base_url) + (DRIVERS / "use_typescript.mjs").read_text()
    env = environment(person.home, POINTSMAN_TOKEN=own.gateway.token)
    answer = await person.use(node(person, code, env), own.sign_in("nobody"))
    assert json.loads(answer)["answer"] == ANSWER
    assert person.asked == []
    assert (await audit_rows(own.gateway.state_dir))[-1]["token"] == "test"


@pytest.mark.parametrize("client", ["claude code", "inspector", "typescript"])
async def test_without_a_public_url_the_person_reads_which_command_to_run(
    client: str, plain: Front, person: Person
) -> None:
    with pytest.raises(AssertionError) as failed:
        await person.use(CLIENTS[client].run(plain, person), plain.sign_in("nobody"))
    assert "This gateway does not use OAuth." in str(failed.value)
    assert "pointsman token create" in str(failed.value)
    assert person.asked == []
