"""`pointsman server add`: mistakes are answered before they are written, and an interrupted wait is told as such."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from pointsman.config.loader import load
from tests.gateway_process import gateway_process, own_environment
from tests.router.cli.commands import MODULE, run

SECRET = "ghp_" + "a1" * 18
SLEEPS = (sys.executable, "-S", "-c", "import time; time.sleep(600)")


async def test_our_options_after_the_command_are_pointed_at(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text("servers: {}\n")
    ran = await run(tmp_path, "server", "add", "notes", "npx", "-y", "notes-server", "--env", f"KEY={SECRET}")
    assert ran.code == 0, ran.stderr
    assert "`--env` stands after the command, so it is an argument of `npx`." in ran.stderr
    assert "pointsman server add NAME --env ... npx ..." in ran.stderr
    assert "The value of argument 4 is in the file as plain text" in ran.stderr
    docker = await run(tmp_path, "server", "add", "boxed", "docker", "run", "--env", "A=b", "image")
    assert "--env" not in docker.stderr  # that option is docker's own
    other = await run(tmp_path, "server", "add", "time", "uvx", "mcp-server-time", "--local-timezone", "UTC")
    assert "argument of" not in other.stderr
    shown = (await run(tmp_path, "server", "add", "--help")).stdout
    assert "Options stand before the command" in shown
    assert shown.index("--header 'Authorization") < shown.index("https://tracker.example")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("127.0.0.1:3001/mcp", "http://127.0.0.1:3001/mcp"),
        ("localhost:8000", "http://localhost:8000"),
        ("[::1]:8000/sse", "http://[::1]:8000/sse"),
        ("tracker.example:8443/mcp", "https://tracker.example:8443/mcp"),
        ("tracker.example/mcp?x=1", "https://tracker.example/mcp?x=1"),
    ],
)
async def test_an_address_without_a_scheme_is_answered_with_the_url(tmp_path: Path, given: str, meant: str) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text("servers: {}\n")
    ran = await run(tmp_path, "server", "add", "web", given)
    assert (ran.code, f"Did you mean `{meant}`?" in ran.stderr) == (2, True), ran.stderr
    assert file.read_text() == "servers: {}\n"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("htps://foo.example/mcp", "https://foo.example/mcp"),
        ("HTTP://foo.example/mcp", "http://foo.example/mcp"),
        ("ftp://foo.example", ""),
    ],
)
async def test_a_url_with_another_scheme_is_not_taken_for_a_program(tmp_path: Path, given: str, meant: str) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text("servers: {}\n")
    ran = await run(tmp_path, "server", "add", "typo", given)
    assert ran.code == 2
    assert f"starts with http:// or https://, not {given.partition(':')[0]}://." in ran.stderr
    assert ran.stderr.endswith(f" Did you mean `{meant}`?\n" if meant else "://.\n")
    assert file.read_text() == "servers: {}\n"


async def test_https_towards_plain_http_is_answered_with_the_other_scheme(tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with (
        await asyncio.start_server(refuse, "127.0.0.1", 0) as plain,
        gateway_process(tmp_path, {"servers": {}}),
    ):
        url = f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}/mcp"
        added = await run(tmp_path, "server", "add", "web", url)
        assert (added.code, "write http:// instead of https:// in its `url`" in added.stderr) == (1, True), added.stderr
        told = await run(tmp_path, "doctor")
        assert "write http:// instead of https:// in its `url`" in told.stdout
        assert "certificate" not in told.stdout


@pytest.mark.parametrize("given", ["server.py", "./bin/server.d/run", "mcp-server-time", "@scope/name", "node:20"])
async def test_a_program_is_not_taken_for_an_address(tmp_path: Path, given: str) -> None:
    (tmp_path / "pointsman.yaml").write_text("servers: {}\n")
    if given == "node:20":  # a program of that name exists
        (tmp_path / given).write_text("#!/bin/sh\n")
        (tmp_path / given).chmod(0o755)
    ran = await run(tmp_path, "server", "add", "one", given, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert ran.code == 0, ran.stderr


async def test_the_gateway_is_not_added_to_itself(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        before = gateway.config_file.read_text()
        port = gateway.url.rpartition(":")[2].partition("/")[0]
        for command in (
            (gateway.url,),
            (f"http://localhost:{port}/projects/x/mcp",),
            ("http://127.0.0.1:3282/mcp",),  # where it listens when it is started without --port
            ("npx", "-y", "mcp-remote", gateway.url),
            ("pointsman", "stdio"),
        ):
            ran = await run(tmp_path, "server", "add", "self", *command)
            assert (ran.code, "that is this gateway itself" in ran.stderr) == (2, True), ran.stderr
        assert gateway.config_file.read_text() == before
        missing = await run(tmp_path, "server", "add", "gone", "/no/such/prog")
        assert "`/no/such/prog` cannot be started: there is no such program" in missing.stderr
        listed = (await run(tmp_path, "doctor", "--json")).json["findings"]
        told = [each["message"] for each in listed if "`gone`" in each["message"]]
        assert len(told) == 1
        assert "`/no/such/prog` cannot be started: there is no such program" in told[0]
    elsewhere = await run(
        tmp_path, "server", "add", "hub", "--header", "Authorization: Bearer ptm_x", "http://10.0.0.9/mcp"
    )
    assert elsewhere.code == 0, elsewhere.stderr  # another gateway may be a server


async def test_an_interrupted_wait_says_that_the_server_was_added(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        process = await asyncio.create_subprocess_exec(
            *(*MODULE, "server", "add", "slow", *SLEEPS),
            cwd=tmp_path,
            env=own_environment(tmp_path) | {"POINTSMAN_STATE_DIR": str(gateway.state_dir)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await gateway.until_logged("configuration reloaded")
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, b"Aborted" in err) == (1, False)
        assert b"The command did not wait for" in err
        assert list(load(gateway.config_file, {}).servers) == ["slow"]


async def test_what_confines_a_server_can_be_given_when_it_is_added(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "pointsman.yaml").write_text("servers: {}\n")
    options = ("--pin", "locked", "--confirm", "files:delete_*", "--confirm", "*:wipe", "--trust-annotations")
    sandbox = ("--sandbox-read", "notes", "--sandbox-write", "~/own", "--sandbox-network")
    added = await run(tmp_path, "server", "add", "files", *options, *sandbox, "no-such-program")
    assert added.code == 0, added
    assert (
        await run(tmp_path, "server", "add", "--sandbox", "--confirm", "writes", "bare", "no-such-program")
    ).code == 0
    shown = (await run(tmp_path, "config", "show", "--json")).json["servers"]
    files, bare = shown["files"], shown["bare"]
    assert (files["pin"], files["confirm"], files["trust_annotations"]) == (
        "locked",
        ["files:delete_*", "*:wipe"],
        True,
    )
    assert files["sandbox"] == {"read": [str(tmp_path / "notes")], "write": [str(tmp_path / "own")], "network": True}
    assert bare["confirm"] == "writes"
    assert bare["sandbox"] == {"read": [], "write": [], "network": False}
    mixed = await run(tmp_path, "server", "add", "c", "--confirm", "writes", "--confirm", "c:*", "no-such-program")
    assert mixed.code == 2
    assert "one or more patterns" in mixed.stderr
    of_url = await run(tmp_path, "server", "add", "--sandbox", "far", "https://127.0.0.1:1/mcp")
    assert of_url.code == 2
    assert "sandbox" in of_url.stderr
