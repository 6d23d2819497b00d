"""The log on stderr: text for people, JSON for programs, with the ids of the request that it is about."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.model import LogFormat
from pointsman.router.serving.log_lines import MAX_CHARS, LogLines
from tests.e2e.client import assistant
from tests.gateway_process import gateway_process, own_environment, write_config

TRACE = "0af7651916cd43dd8448eb211c80319c"
BROKEN = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        info = {"name": "b", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        if asked["method"] == "tools/list":
            schema = {"type": "object", "properties": {"n": {"$ref": "#/nowhere"}}}
            result = {"tools": [{"name": "t", "inputSchema": schema}]}
        elif asked["method"] == "tools/call":
            result = {"content": []}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def record(text: str, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("pointsman.part", logging.WARNING, "", 0, "%s", (text,), info)


@pytest.mark.parametrize(
    ("wanted", "terminal", "is_json"),
    [("auto", True, False), ("auto", False, True), ("text", False, False), ("json", True, True)],
)
def test_auto_means_json_unless_a_person_reads_it(wanted: LogFormat, terminal: bool, is_json: bool) -> None:
    line = LogLines(wanted, terminal=terminal).format(record("words"))
    assert line.startswith("{") is is_json
    assert line.endswith("WARNING words") is not is_json


def test_a_line_is_one_object_with_ids_and_bounded_whatever_the_message() -> None:
    lines = LogLines("json", terminal=False)
    lines.ids = lambda: {"request_id": "r-1", "trace_id": TRACE}
    try:
        raise ValueError("x" * 100_000)
    except ValueError as error:
        line = lines.format(record('two\nlines "quoted" \x1b[31m \u2028 \udcff' + "y" * 100_000, error))
    assert line.isascii()
    assert "\n" not in line
    shown = json.loads(line)
    assert shown["message"].startswith('two\nlines "quoted"')
    assert len(shown["message"]) == MAX_CHARS
    assert shown["exception"].startswith("x")  # the end of a traceback says most
    assert (shown["level"], shown["logger"], shown["request_id"]) == ("warning", "pointsman.part", "r-1")
    assert shown["time"].endswith("+00:00")


async def test_a_gateway_without_a_terminal_logs_json_and_says_where_it_is_in_plain_text(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": ["-I", "-S", "-c", BROKEN]}
    async with gateway_process(tmp_path, {"servers": {"b": server}}) as gateway:  # which finds the plain ready line
        async with assistant(gateway) as model:
            meta: Any = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
            await model.client.call_tool("tool_execute", {"toolKey": "b:t", "arguments": {"n": 1}}, meta=meta)
        await gateway.until_logged("are not checked")
        gateway.write_config({"servers": {}, "log": {"format": "text"}})
        await gateway.until_logged("configuration reloaded")
        objects = [json.loads(line) for line in gateway.lines if line.startswith("{")]
        (about_call,) = [one for one in objects if "are not checked" in one["message"]]
        assert about_call["trace_id"] == TRACE
        assert about_call["request_id"]
        (started,) = [one for one in objects if one["message"].startswith("server b is running")]
        assert "request_id" not in started
        (reloaded,) = [line for line in gateway.lines if "configuration reloaded" in line]
        assert not reloaded.startswith("{")


def test_a_terminal_shows_text(tmp_path: Path) -> None:
    config = tmp_path / "pointsman.yaml"
    write_config(config, {"servers": {"gone": {"command": "no-such-program-anywhere"}}}, "ptm_" + "x" * 40)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "pointsman", "serve", "--port", "0", "--config", str(config)]
    process = subprocess.Popen(
        [*command, "--state-dir", str(tmp_path / "state")],
        stdin=subprocess.DEVNULL,
        stderr=theirs,
        env=own_environment(tmp_path),
    )
    os.close(theirs)
    said = b""
    try:
        while b"server gone" not in said:
            said += os.read(ours, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"WARNING server gone" in said
    assert b'"message"' not in said
