"""`pointsman token create` for clients, and at a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
from contextlib import suppress
from pathlib import Path

from pointsman.config.loader import load_tokens
from tests.gateway_process import own_environment
from tests.router.cli.commands import MODULE, run


async def test_the_entry_of_a_client_is_printed_with_the_new_token(tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text("listen: {port: 4001}\n")
    ran = await run(tmp_path, "token", "create", "laptop", "--project", "*", "--server", "*", "--client", "cursor")
    assert ran.code == 0, ran.stderr
    secret, _, heading, *entry = ran.stdout.splitlines()
    assert heading == "# cursor"
    pasted = json.loads("\n".join(entry))["mcpServers"]["pointsman"]
    assert pasted["url"] == "http://127.0.0.1:4001/mcp"
    assert pasted["headers"] == {"Authorization": f"Bearer {secret}"}
    everything = (await run(tmp_path, "token", "create", "all", "--client", "all", "--json")).json
    assert {"claude-code", "codex", "goose", "zed"} <= everything["entries"].keys()
    assert all(everything["token"] in entry for entry in everything["entries"].values())
    unknown = await run(tmp_path, "token", "create", "third", "--client", "emacs")
    assert (unknown.code, "Known are:" in unknown.stderr) == (2, True)
    assert "third" not in (tmp_path / "pointsman.yaml").read_text()


async def test_on_a_terminal_what_is_missing_is_asked_for_with_defaults(tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text("servers: {}\n")
    shown = await asyncio.to_thread(_on_a_terminal, tmp_path, b"\n\n", "token", "create", "laptop")
    assert b"Projects it may act for" in shown
    token = load_tokens(tmp_path / "pointsman.yaml", {})["laptop"]
    assert (token.projects, token.servers) == (("*",), ("*",))


def _on_a_terminal(folder: Path, typed: bytes, *args: str) -> bytes:
    """Run a command on a terminal of its own and return all that it showed."""
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [*MODULE, *args], cwd=folder, env=own_environment(folder), stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    os.write(master, typed)
    shown = b""
    with suppress(OSError):  # Linux reports the end of the other side as an error
        while chunk := os.read(master, 65_536):
            shown += chunk
    os.close(master)
    assert process.wait(60) == 0, shown
    return shown
