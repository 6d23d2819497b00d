"""Each fault that `pointsman doctor` knows, seeded: it is found, told with its next step, and costs exit code 1."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.config.loader import parse
from pointsman.router.doctor.configuration import check_configuration
from pointsman.router.doctor.findings import Inspected
from tests.gateway_process import gateway_process, write_config
from tests.router.cli.commands import MODULE, Ran, run

TOKEN = "ptm_" + "t" * 43
LOUD = (
    "import sys; print('Traceback', file=sys.stderr); print('error: no such database', file=sys.stderr); "
    "print('hint: look at the manual', file=sys.stderr); sys.exit(3)"
)


async def doctor(folder: Path, *args: str, **environ: str) -> Ran:
    return await run(folder, "doctor", "--json", *args, **environ)


def findings(ran: Ran, check: str) -> list[dict[str, Any]]:
    return [each for each in ran.json["findings"] if each["check"] == check]


def problem(ran: Ran, check: str) -> str:
    """The one problem of this check, which the exit code has to show."""
    assert ran.code == 1, ran.stdout
    assert ran.json["ok"] is False
    [found] = [each for each in findings(ran, check) if each["level"] == "problem"]
    message: str = found["message"]
    return message


def in_order(ran: Ran) -> bool:
    """Nothing is wrong but that no gateway runs."""
    [found] = [each for each in ran.json["findings"] if each["level"] == "problem"]
    return ran.code == 1 and found["check"] == "gateway"


def configure(folder: Path, **config: Any) -> Path:
    """A configuration in order, on a port that nobody has to have."""
    file = folder / "pointsman.yaml"
    write_config(file, {"listen": {"port": 0}, **config}, TOKEN)
    file.chmod(0o600)
    return file


def program(folder: Path, name: str, prints: str) -> str:
    """A folder with one program, for the front of PATH."""
    file = folder / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\necho '{prints}'\n")
    file.chmod(0o755)
    return f"{file.parent}:{os.environ['PATH']}"


async def test_an_installation_in_order_has_no_problem(tmp_path: Path) -> None:
    configure(tmp_path)
    ran = await doctor(tmp_path)
    assert [(each["check"], each["level"]) for each in ran.json["findings"]] == [
        ("configuration", "ok"),
        ("gateway", "problem"),
    ]
    assert "`pointsman serve` starts one, `pointsman service install`" in problem(ran, "gateway")
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        gateway.config_file.chmod(0o600)
        ran = await doctor(tmp_path)
        assert ran.code == 0, ran.stdout
        assert {each["level"] for each in ran.json["findings"]} == {"ok", "note"}


async def test_a_configuration_without_tokens(tmp_path: Path) -> None:
    configure(tmp_path, tokens={})
    assert "`pointsman token create NAME`" in problem(await doctor(tmp_path), "tokens")
    configure(tmp_path, tokens={"old": {"sha256": "a" * 64, "expires": "2020-01-01"}})
    assert "Every token has expired" in problem(await doctor(tmp_path), "tokens")


async def test_a_token_whose_scopes_hide_all_tools_of_a_server(tmp_path: Path) -> None:
    reader = {"sha256": "a" * 64, "projects": ["*"], "servers": ["*"], "scopes": ["read"]}
    configure(tmp_path, servers={"shop": {"command": "true"}}, tokens={"reader": reader})
    found = [each["message"] for each in (await doctor(tmp_path)).json["findings"] if each["check"] == "tokens"]
    assert len(found) == 1
    assert found[0].startswith("Token `reader` sees no tools of `shop`")


@pytest.mark.parametrize("secret", ["ghp_" + "x1" * 18, "sk-proj-" + "x1" * 12])
async def test_plain_secrets_in_a_file_that_others_can_read(tmp_path: Path, secret: str) -> None:
    file = configure(tmp_path, servers={"gh": {"command": sys.executable, "env": {"KEY": secret}}})
    assert in_order(await doctor(tmp_path))
    file.chmod(0o644)
    ran = await doctor(tmp_path)
    assert f"chmod 600 {file}" in problem(ran, "secrets")
    assert secret not in ran.stdout
    configure(tmp_path, servers={"gh": {"command": sys.executable, "env": {"KEY": "${KEY}"}}}).chmod(0o644)
    assert in_order(await doctor(tmp_path, KEY=secret))


async def test_secret_files_that_others_can_read(tmp_path: Path) -> None:
    key, unused = tmp_path / "keys/api key", tmp_path / "secrets/old.KEY"
    for file in (key, unused):
        file.parent.mkdir(mode=0o755)
        file.write_text("a-secret-value")
        file.chmod(0o644)
    env = {"KEY": "${file:keys/api key}", "TEXT": "$${file:literal}"}
    configure(tmp_path, servers={"gh": {"command": sys.executable, "env": env}})
    ran = await doctor(tmp_path)
    assert f"2 files with secrets can be read by other users. Run `chmod 600 '{key}' {unused}`" in problem(
        ran, "secrets"
    )
    assert "a-secret-value" not in ran.stdout
    key.chmod(0o600)
    unused.parent.chmod(0o700)  # protects the file in it
    assert in_order(await doctor(tmp_path))


async def test_a_missing_program(tmp_path: Path) -> None:
    configure(tmp_path, servers={"time": {"command": "uvx"}, "own": {"command": "/nowhere/server"}})
    ran = await doctor(tmp_path, PATH="/nonexistent")
    assert ran.code == 1
    uvx, own = (each["message"] for each in findings(ran, "programs"))
    assert "no program `uvx`. Install uv" in uvx
    assert "`servers.own.command`" in own
    small = findings(await doctor(tmp_path, PATH="/nonexistent", POINTSMAN_IMAGE="small"), "programs")[0]
    assert "no program `uvx`. This image does not contain uvx" in small["message"]
    assert "docker compose --profile full up full" in small["message"]


async def test_an_old_node_and_an_old_python(tmp_path: Path) -> None:
    path = program(tmp_path, "node", "v14.21.3")
    program(tmp_path, "npx", "6.14")
    configure(tmp_path, servers={"files": {"command": "npx", "args": ["x"]}})
    assert "Node.js 14.21 is too old" in problem(await doctor(tmp_path, PATH=path), "programs")
    program(tmp_path, "node", "v22.1.0")
    assert in_order(await doctor(tmp_path, PATH=path))
    program(tmp_path, "python3", "Python 3.8.10")
    configure(tmp_path, servers={"own": {"command": "python3", "args": ["x.py"]}})
    assert "is Python 3.8, which is too old" in problem(await doctor(tmp_path, PATH=path), "programs")


async def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configure(tmp_path, listen={"port": port})
        assert str(port) in problem(await doctor(tmp_path), "port")


async def test_certificates_that_are_not_there(tmp_path: Path) -> None:
    configure(tmp_path)
    assert "does not exist" in problem(await doctor(tmp_path, SSL_CERT_FILE=str(tmp_path / "ca.pem")), "tls")
    (tmp_path / "ca.pem").write_text("no certificate")
    assert "holds no certificates" in problem(await doctor(tmp_path, SSL_CERT_FILE=str(tmp_path / "ca.pem")), "tls")
    assert "is no folder" in problem(await doctor(tmp_path, SSL_CERT_DIR=str(tmp_path / "nowhere")), "tls")
    configure(tmp_path, listen={"host": "0.0.0.0", "port": 0})
    ran = await doctor(tmp_path)
    assert [(each["level"], "reverse proxy" in each["message"]) for each in findings(ran, "tls")] == [("note", True)]


async def test_a_state_folder_that_others_can_open(tmp_path: Path) -> None:
    configure(tmp_path)
    (tmp_path / "state").mkdir(mode=0o755)
    assert f"chmod 700 {tmp_path / 'state'}" in problem(await doctor(tmp_path), "state")


def _may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def on_a_disk(folder: Path, *commands: str) -> tuple[str, ...]:
    """The program, where the state folder is a small disk of its own, after these commands in that folder."""
    script = " && ".join(['mount -t tmpfs -o size=32m,mode=700 tmpfs "$0"', *commands, 'exec "$@"'])
    return ("unshare", "-Urm", "sh", "-c", script, str(folder), *MODULE)


@pytest.mark.skipif(not _may_mount(), reason="user namespaces may not mount here")
async def test_a_disk_that_is_nearly_full_and_one_that_is_read_only(tmp_path: Path) -> None:
    configure(tmp_path)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    low = problem(await run(tmp_path, "doctor", "--json", program=on_a_disk(state)), "state")
    assert low.startswith(f"Only 32 MiB are free in {state}: calls are refused")
    assert low.endswith("Free some space.")
    ran = await run(tmp_path, "doctor", "--json", program=on_a_disk(state, 'mount -o remount,ro "$0"'))
    assert ran.code == 1
    told = [each["message"] for each in findings(ran, "state") if each["level"] == "problem"]
    assert any("is not writable" in each and "--state-dir" in each for each in told)


async def test_a_state_folder_that_is_none(tmp_path: Path) -> None:
    configure(tmp_path)
    (tmp_path / "state").write_text("")
    assert "is no folder. Move it away" in problem(await doctor(tmp_path), "state")


LISTS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"error": {"code": -32601, "message": "no"}}
    if asked["method"] == "initialize":
        info = {"name": "x", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
    elif asked["method"] == "tools/list" and sys.argv[1] == "nothing":
        answer = {"result": {"tools": []}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""
# As uv prints them: the one failure is a certificate, the other is not, whatever a warning mentions.
UV_CERTIFICATE = (
    "error: Request failed after 3 retries",
    "  Caused by: Failed to fetch: `https://pypi.org/simple/mcp-server-time/`",
    "  Caused by: invalid peer certificate: UnknownIssuer",
)
UV_PACKAGE = (
    "warning: Invalid `SSL_CERT_FILE`. Path does not exist: /ca.pem. No default certificates will be trusted.",
    "  \u00d7 No solution found when resolving tool dependencies:",
    "  ╰─▶ Because mcp-server-tiem was not found in the package registry, your requirements are unsatisfiable.",
)


def _says(lines: Sequence[str]) -> dict[str, Any]:
    text = "\n".join(lines)
    return {"command": sys.executable, "args": ["-S", "-c", f"import sys; sys.exit({text!r})"]}


async def test_servers_that_list_nothing_and_certificates_that_are_refused(tmp_path: Path) -> None:
    lists = {"command": sys.executable, "args": ["-S", "-c", LISTS]}
    async with AsyncExitStack() as stack:
        servers: dict[str, Any] = {
            "silent": {**lists, "args": [*lists["args"], "refuse"]},
            "empty": {**lists, "args": [*lists["args"], "nothing"]},
            "certificate": _says(UV_CERTIFICATE),
            "package": _says(UV_PACKAGE),
        }
        if shutil.which("openssl"):
            servers["web"] = {"url": await stack.enter_async_context(_self_signed(tmp_path))}
        await stack.enter_async_context(gateway_process(tmp_path, {"servers": servers}))
        ran = await doctor(tmp_path)
    assert ran.code == 1
    told = {str(each["message"]).split("`")[1]: each for each in findings(ran, "servers")}
    assert told.keys() == servers.keys()
    assert told["silent"]["level"] == "problem"
    assert "has not listed its tools. `pointsman server test silent`" in told["silent"]["message"]
    assert told["empty"]["level"] == "note"
    assert "offers no tools" in told["empty"]["message"]
    blamed = {name for name, each in told.items() if "does not trust a certificate" in each["message"]}
    assert blamed == {"certificate", "web"} & servers.keys()
    assert "SSL_CERT_FILE" in told["certificate"]["message"]
    assert "mcp-server-tiem was not found in the package registry" in told["package"]["message"]
    assert not any("warning" in line for line in told["package"]["lines"])


@asynccontextmanager
async def _self_signed(folder: Path) -> AsyncIterator[str]:
    """A server over TLS whose certificate nobody trusts."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def test_the_faults_of_a_running_gateway(tmp_path: Path) -> None:
    """One gateway for many faults, which do not disturb one another."""
    broken = {"command": sys.executable, "args": ["-S", "-c", LOUD]}
    config = {"servers": {"broken": broken, "web": {"url": "http://127.0.0.1:1/mcp"}}}
    config["servers"]["absent"] = {"command": "/no/such/program"}
    async with _locked() as url, gateway_process(tmp_path, config) as gateway:
        gateway.config_file.chmod(0o600)
        ran = await doctor(tmp_path)
        assert ran.code == 1
        failed, web, absent = findings(ran, "servers")
        assert "Server `broken` does not run: it exited with code 3" in failed["message"]
        assert "`pointsman server log broken`" in failed["message"]
        assert failed["lines"] == ["error: no such database"]
        assert "Check `servers.web.url`" in web["message"]
        assert "`pointsman server log" not in absent["message"]
        said = (await run(tmp_path, "server", "log", "absent")).stderr
        assert "No log for `absent`: it has written nothing to stderr." in said
        assert "No log for `other`: there is no such server." in (await run(tmp_path, "server", "log", "other")).stderr
        shown = await run(tmp_path, "doctor")
        assert "| error: no such database" in shown.stdout

        # A client that is refused, with the name that it gave, until it is served.
        async with httpx2.AsyncClient(timeout=60) as http:
            await _introduce(http, gateway.url, "ptm_wrong")
            ran = await doctor(tmp_path)
            [refused] = findings(ran, "clients")
            assert refused["level"] == "problem"
            assert refused["message"].startswith("Client `old-editor` was refused once in the last 24 h")
            await _introduce(http, gateway.url, gateway.token)
            assert findings(await doctor(tmp_path), "clients") == []
            for header, key in (("Origin", "listen.allowed_origins"), ("Host", "listen.allowed_hosts")):
                await _introduce(http, gateway.url, gateway.token, **{header: "gateway.lan"})
                told = problem(await doctor(tmp_path), "clients")
                assert f"`{key}`" in told
                assert "was refused once" in told  # for this cause, whatever came before
            await _introduce(http, gateway.url, "ptm_wrong", name="a`. Run `rm -rf")
            names = {each["message"].split("`")[1] for each in findings(await doctor(tmp_path), "clients")}
            assert names == {"old-editor", "a'. Run 'rm -rf"}
            later = await doctor(tmp_path, PYTHONPATH=str(_other_clock(tmp_path, 3700)))
            assert {each["level"] for each in findings(later, "clients")} == {"note"}
            later = await doctor(tmp_path, PYTHONPATH=str(_other_clock(tmp_path, 86_500)))
            assert findings(later, "clients") == []

        # A server wants a credential: the variable of it is empty, or it is wrong.
        added = await run(tmp_path, "server", "add", "empty", url, "--header", "Authorization: Bearer ${TRACKER_KEY:-}")
        assert "Its entry refers to TRACKER_KEY, which is not set in the gateway's environment." in added.stderr
        await run(tmp_path, "server", "add", "wrong", url, "--header", "Authorization: Bearer x")
        empty, wrong = (each["message"] for each in findings(await doctor(tmp_path), "servers")[3:])
        assert "Its entry refers to TRACKER_KEY" in empty
        assert wrong.endswith("check `headers` in its configuration. `pointsman server test wrong` tries it again.")

        # The clock goes back.
        ran = await doctor(tmp_path, PYTHONPATH=str(_other_clock(tmp_path, -3600)))
        assert "The clock is wrong" in problem(ran, "clock")

        # The configuration file is moved away.
        moved = gateway.config_file.rename(tmp_path / "elsewhere.yaml")
        first = (await doctor(tmp_path)).json["findings"][0]
        assert first["message"].startswith(f"{gateway.config_file} is gone. The running gateway was started with it")
        await gateway.until_logged(f"{gateway.config_file} is gone; the configuration that was read from it stays")
        moved.rename(gateway.config_file)
        assert not any("is gone" in each["message"] for each in findings(await doctor(tmp_path), "configuration"))


async def test_an_emptied_configuration_is_restored_and_not_created_anew(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        whole = gateway.config_file.read_text()
        gateway.config_file.write_text("")
        await gateway.until_logged("is empty; restore it from a backup")
        ran = await doctor(tmp_path)
        assert "is empty; restore it from a backup, or delete it" in problem(ran, "configuration")
        kept = problem(ran, "gateway")
        assert "the previous configuration stays in effect" in kept
        assert f"`pointsman config validate --config {gateway.config_file}`" in kept
        shown = await run(tmp_path, "status")
        assert f"`pointsman config validate --config {gateway.config_file}`" in shown.stdout
        async with httpx2.AsyncClient(timeout=60) as http:  # whoever has a token need not know the path
            health = (await http.get(f"{gateway.base_url}/health", headers=gateway.headers)).json()
        assert "Run `pointsman config validate` for details." in health["configuration"]
        gateway.config_file.write_text(whole)


async def test_a_gateway_that_is_its_own_server(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        gateway.write_config({"servers": {"self": {"url": gateway.url}}})
        gateway.config_file.chmod(0o600)
        await gateway.until_logged("server self:")
        ran = await doctor(tmp_path)
        [own] = [each for each in findings(ran, "servers") if "its own server" in each["message"]]
        assert own["level"] == "problem"
        assert "`pointsman server remove self` removes it" in own["message"]
        assert findings(ran, "clients") == []  # no client has to be set up
        assert (await run(tmp_path, "server", "remove", "self")).code == 0
        [past] = findings(await doctor(tmp_path), "clients")
        assert past["level"] == "note"
        assert past["message"].startswith("A gateway was refused")


async def test_a_port_that_a_configured_server_has_is_not_the_gateway_itself(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        configure(tmp_path, listen={"port": port}, servers={"web": {"url": f"http://127.0.0.1:{port}/mcp"}})
        ran = await doctor(tmp_path)
        assert f"Port {port} on 127.0.0.1 is taken" in problem(ran, "port")
        assert findings(ran, "servers") == []


@asynccontextmanager
async def _locked() -> AsyncIterator[str]:
    """A server that accepts no credential."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def _introduce(
    http: httpx2.AsyncClient, url: str, token: str, *, name: str = "old-editor", **headers: str
) -> None:
    """Discover tools as a modern client does, which leaves a row."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
    }
    params = {"name": "tool_discovery", "arguments": {"query": ["x"]}, "_meta": meta}
    await http.post(
        url,
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        headers={
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "tool_discovery",
            **headers,
        },
    )


def _other_clock(folder: Path, ahead_s: int) -> Path:
    """A folder for PYTHONPATH: the command's clock is that many seconds ahead."""
    folder = folder / f"clock {ahead_s}"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import time\nreal = time.time\ntime.time = lambda: real() + {ahead_s}\n")
    return folder


async def test_the_file_of_a_client(tmp_path: Path) -> None:
    configure(tmp_path)
    file = tmp_path / ".cursor" / "mcp.json"
    absent = problem(await doctor(tmp_path, "--client", "cursor"), "client")
    assert "`pointsman client add cursor` writes it" in absent
    file.parent.mkdir()
    file.write_text("{nonsense")
    broken = problem(await doctor(tmp_path, "--client", "cursor"), "client")
    assert "cannot be read" in broken
    assert broken.endswith("Correct it, or restore a backup.")
    assert ".." not in broken
    assert "Mend it" not in broken
    file.write_text(json.dumps({"mcpServers": {}}))
    assert "has no entry `pointsman`" in problem(await doctor(tmp_path, "--client", "cursor"), "client")

    def entry(token: str, port: int = 3282) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{port}/mcp"
        file.write_text(json.dumps({"mcpServers": {"pointsman": {"url": url, "headers": headers}}}))

    entry("ptm_" + "w" * 43)
    ran = await doctor(tmp_path, "--client", "cursor")
    assert "its token is not accepted" in problem(ran, "client")
    assert "www" not in ran.stdout
    entry(TOKEN)
    ran = await doctor(tmp_path, "--client", "cursor")
    assert in_order(ran)
    assert findings(ran, "client")[0]["level"] == "ok"
    configure(tmp_path, listen={"port": 3299})  # where the next gateway will listen
    told = [each["message"] for each in findings(await doctor(tmp_path, "--client", "cursor"), "client")]
    assert "its URL has port 3282, but the gateway listens on 3299" in told[0]
    async with gateway_process(tmp_path, {"servers": {}}, token=TOKEN) as gateway:
        gateway.config_file.chmod(0o600)
        entry(TOKEN, port=1)
        assert "its URL has port 1, but the gateway listens on" in problem(
            await doctor(tmp_path, "--client", "cursor"), "client"
        )


async def test_a_gateway_that_answers_nobody(tmp_path: Path) -> None:
    """The lock is held and the file says where, but nothing listens: a process that hangs or was stopped."""
    import fcntl

    configure(tmp_path)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "gateway.json").write_text(json.dumps({"url": "http://127.0.0.1:1/mcp", "pid": os.getpid()}))
    with (state / "gateway.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "does not answer" in problem(await doctor(tmp_path), "gateway")


def test_a_pasted_block_is_a_note_and_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    config = parse('{"mcpServers": {"time": {"command": "uvx", "trust": true}}}', str(file), {})
    found = check_configuration(Inspected(config, (), file, tmp_path))
    assert [each.level for each in found] == ["ok", "note"]
    assert "mcpServers.time.trust: is ignored" in found[1].message
