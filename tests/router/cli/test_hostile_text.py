"""Text of files, servers and arguments cannot move the cursor, hide what is shown, or forge a line of a command."""

from __future__ import annotations

import json
import re
import sys
from asyncio import gather
from pathlib import Path

import pytest

from pointsman.core.escape import escaped, escaped_json, escaped_lines
from tests.gateway_process import gateway_process
from tests.router.cli.commands import run, run_on_terminal

HOSTILE = "ev\r\x1b[K\x1b[8mil\x1b[32mGREEN\x1b]52;c;eA\x07\x9b2J\u202e\u2028\nFORGED line"
OWN = re.compile(
    r"\x1b\[(3[123]|0)m|(?<= \.\.\.)\r\x1b\[K|\r(?=\n)"
)  # colours, the end of a progress message, line ends
SERVER = """
import json, sys
hostile = sys.argv[1]
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        about = {"name": hostile, "title": hostile, "version": hostile}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    elif asked["method"] == "tools/list":
        tool = {"description": hostile, "inputSchema": {"type": "object"}}
        result = {"tools": [{"name": "fail", **tool}, {"name": "say", **tool}]}
    elif asked["method"] == "tools/call":
        failed = asked["params"]["name"] == "fail"
        result = {"content": [{"type": "text", "text": hostile}, {"type": hostile}], "isError": failed}
    elif "id" in asked:
        result = {}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
COMMANDS = (
    ("status",),
    ("doctor",),
    ("server", "list"),
    ("server", "test", "bad"),
    ("server", "test", "good"),
    ("server", "log", HOSTILE),
    ("server", "restart", HOSTILE),
    ("server", "add", "more", HOSTILE),
    ("server", "add", HOSTILE, "--header", HOSTILE, "https://127.0.0.1:1/"),
    ("tools", "list"),
    ("tools", "search", HOSTILE),
    ("tools", "call", f"good:{HOSTILE}"),
    ("tools", "call", "good:say", HOSTILE),
    ("tools", "test", HOSTILE),
    ("token", "create", HOSTILE, "--project", HOSTILE, "--server", HOSTILE),
    ("token", "create", "me", "--project", "*", "--server", "*", "--client", HOSTILE),
    ("token", "revoke", HOSTILE),
    ("token", "list"),
    ("client", "add", HOSTILE),
    ("client", "print", "cursor", "--as", HOSTILE, "--project", HOSTILE),
    ("client", "remove", "cursor", "--as", HOSTILE),
    ("project", "set", HOSTILE, "--exposure", "flat"),
    ("project", "list"),
    ("config", "show"),
    ("config", "validate", HOSTILE),
    ("import", "--dry-run", "--scope", "project"),
    ("import", HOSTILE),
    ("audit", "list", "--since", HOSTILE),
    ("log",),
    ("service", "status", "--name", HOSTILE),
    ("doctor", "--config", HOSTILE),
    (HOSTILE,),
    ("tools", HOSTILE),
    (f"--{HOSTILE}",),
)


async def test_no_command_prints_foreign_text_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "hostile.py"
    script.write_text(SERVER)
    (tmp_path / ".mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "real": {"command": "sh", "args": ["-c", f"touch /tmp/x{HOSTILE}"], HOSTILE: 1},
                    HOSTILE: {"command": HOSTILE, "url": HOSTILE},
                    f"{HOSTILE}2": 5,
                }
            }
        )
    )
    config = {
        "servers": {
            "good": {"name": HOSTILE, "command": sys.executable, "args": ["-S", str(script), HOSTILE]},
            "bad": {"command": "ev\x1b[2J\x9b8m\u202eil"},
        },
    }
    async with gateway_process(tmp_path, config, without=["bad"]):
        said = await run_on_terminal(tmp_path, "tools", "call", "good:say")
        failed = await run_on_terminal(tmp_path, "tools", "call", "good:fail")
        for shown in (said, failed):
            assert "\nFORGED line" in shown  # a result has lines of its own
            assert_harmless(shown.replace("\r\nFORGED line", ""), "tools call")
        for at in range(0, len(COMMANDS), 4):
            batch = COMMANDS[at : at + 4]
            texts = await gather(*(run_on_terminal(tmp_path, *command) for command in batch))
            for command, text in zip(batch, texts, strict=True):
                assert_harmless(text, " ".join(command)[:60])
        for command in (("doctor",), ("server", "list"), ("tools", "call", "good:say"), ("tools", "list")):
            printed = (await run(tmp_path, *command, "--json")).stdout
            assert_harmless(printed, f"{command} --json")
            json.loads(printed)


def assert_harmless(shown: str, command: str) -> None:
    assert shown, command
    assert "\nFORGED" not in shown, f"{command}: {shown!r}"
    assert "\x1b[32mGREEN" not in shown, f"{command}: {shown!r}"
    rest = OWN.sub("", shown)
    assert escaped_lines(rest) == rest, f"{command}: {shown!r}"


async def test_the_plan_of_an_import_shows_the_real_command_on_its_line(tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text("servers: {}\n")
    entry = {
        "command": "sh",
        "args": ["-c", "touch /tmp/x\r\x1b[K  clock  uvx mcp-server-time\x1b[8m\nGo on? [Y/n]: y"],
    }
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"clock": entry}}))
    piped = await run(tmp_path, "import", "--scope", "project", "--dry-run")
    shown = await run_on_terminal(tmp_path, "import", "--scope", "project", "--dry-run")
    for text in (piped.stderr, shown):
        (line,) = [line for line in text.splitlines() if "uvx mcp-server-time" in line]
        assert r"sh -c 'touch /tmp/x\r\x1b[K  clock  uvx mcp-server-time\x1b[8m\nGo on? [Y/n]: y'" in line


@pytest.mark.parametrize("text", ["naïve 東京 😀", "a\\b", "می‌خواهم ❤️ 👩‍💻\n\tx"])
def test_lines_of_ordinary_text_stay_as_they_are(text: str) -> None:
    assert escaped_lines(text) == text
    assert json.loads(escaped_json(json.dumps(text, ensure_ascii=False, indent=2))) == text


def test_a_windows_line_end_is_one_and_a_lone_return_is_none() -> None:
    assert escaped_lines("a\r\nb\rc") == "a\nb\\rc"
    assert escaped("a\r\nb\tc") == "a\\r\\nb\\tc"
