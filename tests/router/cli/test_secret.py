"""Secrets of commands, files and the keyring in a real gateway, and `pointsman secret`."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pointsman.router.owner.changes import refuse_new_secrets
from pointsman.router.owner.channel import OwnerError
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.cli.commands import run
from tests.servers import http_mcp
from tests.servers.http_mcp import HttpMcp

WAIT_S = 60.0
KEYRING = {"PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring"}


class Secrets:
    """A gateway whose server gets one header from a command, one from a file and one from the keyring."""

    def __init__(self, folder: Path, server: HttpMcp) -> None:
        self.folder, self.server = folder, server
        self.value, self.counter = folder / "value", folder / "runs"
        self.value.write_text("first-of-the-command\n")
        (folder / "token").write_text("one-of-the-file\n")
        script = folder / "secret.sh"
        script.write_text(f"#!/bin/sh\necho run >> {shlex.quote(str(self.counter))}\ncat value\n")
        script.chmod(0o755)
        headers = {
            "Authorization": "Bearer ${cmd:./secret.sh}",
            "X-File": "${file:token}",
            "X-Keyring": "${keyring:tracker}",
        }
        entry = {"url": f"http://127.0.0.1:{server.port}/mcp", "headers": headers}
        self.config: dict[str, Any] = {"servers": {"tracker": entry}}

    @property
    def runs(self) -> int:
        return len(self.counter.read_text().splitlines()) if self.counter.exists() else 0

    async def until_sent(self, **headers: str) -> None:
        """Wait for a request with these headers."""
        wanted = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        async with asyncio.timeout(WAIT_S):
            while not any(wanted.items() <= _lower(one).items() for one in self.server.headers):
                await asyncio.sleep(0.02)


def _lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[tuple[Secrets, GatewayProcess]]:
    async with http_mcp.serving("legacy") as server:
        secrets = Secrets(folder, server)
        stored = await run(folder, "secret", "set", "tracker", stdin="one-of-the-keyring\n", **KEYRING)
        assert (stored.code, "one-of-the-keyring" in stored.stdout + stored.stderr) == (0, False)
        async with gateway_process(folder, secrets.config, env=KEYRING) as gateway:
            yield secrets, gateway


async def _reload(gateway: GatewayProcess) -> None:
    before = gateway.stderr.count("configuration reloaded")
    gateway.send_signal(signal.SIGHUP)
    async with asyncio.timeout(WAIT_S):
        while gateway.stderr.count("configuration reloaded") == before:
            await asyncio.sleep(0.02)


def test_an_edit_of_the_page_adds_no_command_and_no_keyring() -> None:
    before = "a: ${cmd:one}\nb: $${cmd:two}\n"
    for after in (before, "a: 1\n", "a: ${cmd:one}\nc: ${NAME}\n"):
        assert refuse_new_secrets(before, after) == after
    for after in (before + "c: ${cmd:one}\n", before + "c: ${keyring:x}\n", "a: ${cmd:other}\n"):
        with pytest.raises(OwnerError, match="not accepted here"):
            refuse_new_secrets(before, after)


async def test_a_gateway_reads_its_secrets_once_and_again_when_told(tmp_path: Path) -> None:
    async with _serving(tmp_path) as (secrets, gateway):
        await secrets.until_sent(
            authorization="Bearer first-of-the-command", x_file="one-of-the-file", x_keyring="one-of-the-keyring"
        )
        assert secrets.runs == 1

        # Reloads that leave its text alone: by a signal, by the file, and by a command.
        await _reload(gateway)
        gateway.write_config({**secrets.config, "limits": {"calls": 500}})
        await _reload(gateway)
        added = await run(tmp_path, "server", "add", "other", "--state-dir", str(gateway.state_dir), "no-such-program")
        assert added.code in (0, 1), added.stderr
        assert secrets.runs == 1

        # What only looks.
        (tmp_path / "block.json").write_text(json.dumps({"mcpServers": {"m": {"url": "https://m.example/mcp"}}}))
        for words in (
            ("config", "validate"),
            ("config", "show"),
            ("doctor",),
            ("import", "block.json", "--dry-run"),
            ("server", "list"),
            ("server", "list", "--config", str(gateway.config_file)),
            ("token", "list"),
            ("status",),
        ):
            looked = await run(tmp_path, *words, **KEYRING)
            for value in ("first-of-the-command", "one-of-the-file", "one-of-the-keyring"):
                assert value not in looked.stdout + looked.stderr, words
            assert "Traceback" not in looked.stderr
        assert secrets.runs == 1

        # The owner asks for it; a failure keeps what was.
        secrets.value.write_text("second-of-the-command\n")
        assert (await run(tmp_path, "secret", "reload")).code == 0
        await secrets.until_sent(authorization="Bearer second-of-the-command")
        assert secrets.runs == 2
        secrets.value.unlink()
        failed = await run(tmp_path, "secret", "reload")
        assert failed.code == 1
        assert "servers.tracker.headers.Authorization" in failed.stderr
        assert "exit code 1" in failed.stderr
        for value in ("first-of-the-command", "second-of-the-command", "one-of-the-keyring"):
            assert value not in gateway.stderr


async def test_what_needs_a_secret_and_does_not_read_it_says_so(tmp_path: Path) -> None:
    counting = "${cmd:sh -c 'echo run >> runs; echo x'}"
    config = {
        "servers": {"archive": {"bundled": "archive", "db": counting}},
        "cloud_search": {"url": "http://127.0.0.1:9", "token": counting},
        "unassigned": {"optimization": "cloud"},
        "state": {"database": f"postgresql://u:{counting}@127.0.0.1:9/x", "request_keys": [counting]},
    }
    (tmp_path / "pointsman.yaml").write_text(json.dumps(config))
    found = (await run(tmp_path, "doctor", "--json")).json["findings"]
    notes = {one["check"]: one["message"] for one in found if one["level"] == "note"}
    assert "`cloud_search.token` is read from a command" in notes["cloud_search"]
    assert "`state.database` is read from a command" in notes["database"]
    archive = await run(tmp_path, "archive", "list")
    assert archive.code == 2
    assert "`servers.archive.db`" in archive.stderr
    audit = await run(tmp_path, "audit", "list")
    assert "set POINTSMAN_DATABASE" in audit.stderr
    assert not (tmp_path / "runs").exists()


async def test_a_gateway_does_not_start_without_a_secret_and_says_why(tmp_path: Path) -> None:
    config = {"servers": {"t": {"url": "https://t.example/mcp", "headers": {"A": "${cmd:no-such-program}"}}}}
    (tmp_path / "pointsman.yaml").write_text(json.dumps(config))
    assert (await run(tmp_path, "config", "validate")).code == 0
    served = await run(tmp_path, "serve", "--port", "0")
    assert served.code == 2
    assert "servers.t.headers.A: `no-such-program` of `${cmd:...}` was not found" in served.stderr


@pytest.mark.parametrize(
    ("name", "given", "environ", "code", "said"),
    [
        ("a/b", "x", KEYRING, 2, "A name has"),
        ("a", "\n", KEYRING, 2, "is empty"),
        ("a", "x" * 20_000, KEYRING, 2, "more than 16384 bytes"),
        ("a", "x", {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}, 1, "no keyring that works here"),
    ],
)
async def test_a_secret_that_is_not_stored_says_why(
    tmp_path: Path, name: str, given: str, environ: dict[str, str], code: int, said: str
) -> None:
    ended = await run(tmp_path, "secret", "set", name, stdin=given, **environ)
    assert (ended.code, said in ended.stderr) == (code, True), ended.stderr


async def test_a_stored_secret_names_its_keyring_and_warns_if_that_does_not_encrypt(tmp_path: Path) -> None:
    ended = await run(tmp_path, "secret", "set", "a", stdin="x", **KEYRING)
    assert ended.code == 0, ended.stderr
    assert "Stored in keyrings.alt.file.PlaintextKeyring. Refer to it as ${keyring:a}." in ended.stdout
    assert "does not encrypt" in ended.stderr
