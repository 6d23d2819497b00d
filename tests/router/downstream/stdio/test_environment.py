"""Children get what the network needs, by name, and nothing else of ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pointsman.config.loader import parse
from pointsman.config.sections.server import DOWNLOAD_S
from pointsman.router.downstream.stderr_log import StderrLog
from pointsman.router.downstream.stdio.child import Command, SystemProcesses

NETWORK = {
    "HTTP_PROXY": "http://proxy:1",
    "https_proxy": "http://proxy:2",
    "ALL_PROXY": "socks5://proxy:3",
    "NO_PROXY": "localhost",
    "no_proxy": "localhost",
    "SSL_CERT_FILE": "/ca.pem",
    "SSL_CERT_DIR": "/ca",
    "REQUESTS_CA_BUNDLE": "/ca.pem",
    "CURL_CA_BUNDLE": "/ca.pem",
    "NODE_EXTRA_CA_CERTS": "/ca.pem",
}
UV = {"UV_DEFAULT_INDEX": "https://index.example/simple", "UV_INDEX_URL": "https://x.example", "UV_NATIVE_TLS": "1"}
NPM = {"npm_config_registry": "https://npm.example", "npm_config_cafile": "/ca.pem", "NPM_CONFIG_CAFILE": "/ca.pem"}
SECRETS = {
    "UV_INDEX_COMPANY_PASSWORD": "secret",
    "UV_INDEX_COMPANY_USERNAME": "secret",
    "UV_PUBLISH_TOKEN": "secret",
    "npm_config_//npm.example/:_authToken": "secret",
    "npm_config__auth": "secret",
    "NPM_TOKEN": "secret",
    "POINTSMAN_TOKEN": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
}


class Printed:
    """The owner of a child that prints and exits."""

    def __init__(self) -> None:
        self.output = b""
        self.stderr = StderrLog("printer")
        self.over = asyncio.Event()

    def received(self, data: bytes) -> None:
        self.output += data

    def last_words(self) -> str:
        return self.stderr.cause()

    def exited(self, reason: str) -> None:
        self.over.set()


async def environment_of(
    program: Path, *, env: dict[str, str] | None = None, inherit: tuple[str, ...] = ()
) -> dict[str, str]:
    """What a real child of that name finds in its environment."""
    program.write_text("#!/usr/bin/env python3\nimport json, os\nprint(json.dumps(dict(os.environ)))\n")
    program.chmod(0o755)
    owner = Printed()
    ours = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", **NETWORK, **UV, **NPM, **SECRETS}
    await SystemProcesses(None, environment=ours)(Command((str(program),), env or {}, inherit=inherit), owner)
    await asyncio.wait_for(owner.over.wait(), 30)
    found: dict[str, str] = json.loads(owner.output)
    return {name: value for name, value in found.items() if name not in ("PATH", "HOME", "LC_CTYPE", "PWD")}


@pytest.mark.parametrize(
    ("program", "own"), [("uvx", UV), ("uv", UV), ("npx", NPM), ("npm", NPM), ("pnpm", NPM), ("my-server", {})]
)
async def test_a_child_gets_the_network_settings_and_those_of_its_installer(
    program: str, own: dict[str, str], tmp_path: Path
) -> None:
    found = await environment_of(tmp_path / program)
    assert found == {**NETWORK, **own}


async def test_an_entry_names_further_variables_and_its_own_values_win(tmp_path: Path) -> None:
    found = await environment_of(
        tmp_path / "my-server", env={"HTTP_PROXY": "", "KEY": "1"}, inherit=("AWS_SECRET_ACCESS_KEY", "NOT_SET")
    )
    assert found == {**NETWORK, "HTTP_PROXY": "", "KEY": "1", "AWS_SECRET_ACCESS_KEY": "secret"}


def test_only_a_program_of_ours_takes_inherit_env() -> None:
    server = parse("servers: {a: {command: x, inherit_env: [AWS_PROFILE]}}", "f", {}).servers["a"]
    assert server.inherit_env == ("AWS_PROFILE",)
    for wrong in (
        "{url: 'http://x', inherit_env: [A]}",
        "{command: x, inherit_env: ['A=B']}",
        "{command: x, inherit_env: A}",
    ):
        with pytest.raises(Exception, match="inherit_env"):
            parse(f"servers: {{a: {wrong}}}", "f", {})


@pytest.mark.parametrize(
    ("entry", "top", "connect_s"),
    [
        ("{command: uvx, args: [x]}", "", DOWNLOAD_S),
        ("{command: /usr/bin/npx, args: [x]}", "", DOWNLOAD_S),
        ("{command: docker, args: [run, x]}", "timeouts: {call_s: 5}", DOWNLOAD_S),
        ("{command: uvx, timeouts: {connect_s: 7}}", "", 7),
        ("{command: uvx}", "timeouts: {connect_s: 8}", 8),
        ("{command: my-server}", "", 30),
        ("{url: 'http://x'}", "", 30),
    ],
)
def test_a_program_that_downloads_first_has_longer_to_connect(entry: str, top: str, connect_s: float) -> None:
    config = parse(f"servers: {{a: {entry}}}\n{top}\n", "f", {})
    assert config.timeouts_of(config.servers["a"]).connect_s == connect_s
