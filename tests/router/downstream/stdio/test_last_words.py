"""What counts as the reason why a child ended: its last words of this run, and plain text on stdout."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.config.model import Limits
from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.downstream.stderr_log import StderrLog
from pointsman.router.downstream.stdio.child import Command, SystemProcesses
from pointsman.router.downstream.stdio.connection import LAST_WORDS_S, StdioConnection, connect_stdio
from tests.router.downstream.stdio_parts import SHORT_GRACE, command, tool_call

pytestmark = pytest.mark.anyio
PRINTS = "import sys; [print(line, flush=True) for line in sys.argv[1:]]; sys.stdin.read()"


@pytest.fixture(autouse=True)
async def pipes_closed() -> AsyncIterator[None]:
    """The pipes of a killed child are closed a moment later."""
    yield
    await asyncio.sleep(0.3)


async def connect(log: StderrLog, started: Command) -> StdioConnection:
    return await connect_stdio(
        started,
        starter=SystemProcesses(None, SHORT_GRACE),
        era="legacy",
        limits=Limits(),
        on_notification=lambda method, params: None,
        stderr=log,
    )


async def killed(log: StderrLog, text: str, later_s: float) -> None:
    """A server writes to stderr, and is killed later, without a further word."""
    now = 0.0
    log._monotonic = lambda: now
    connection = await connect(log, command())
    total = log.total
    await connection.request(tool_call("stderr", {"text": text}))
    async with asyncio.timeout(30):
        while log.total < total + len(text):
            await asyncio.sleep(0.01)
    now += later_s
    found = await connection.request(tool_call("environment"))
    os.kill(found["structuredContent"]["pid"], signal.SIGKILL)
    assert "SIGKILL" in await connection.ended()


async def test_what_a_server_wrote_long_before_its_end_is_not_the_reason() -> None:
    log = StderrLog("shop")
    await killed(log, "error: a tool failed\n", LAST_WORDS_S + 60)
    assert (log.last_cause, log.last_output) == ("", ())
    assert log.tail(9) == ["error: a tool failed"]  # it stays in the log
    await killed(log, "error: out of memory\n", 1)
    assert (log.last_cause, log.last_output) == ("error: out of memory", ("error: out of memory",))


async def test_a_program_that_cannot_be_started_wrote_nothing(tmp_path: Path) -> None:
    log = StderrLog("shop")
    with pytest.raises(ConnectionLostError):
        await connect(log, Command((sys.executable, "-c", "import sys; sys.exit('error: no key')")))
    assert (log.last_cause, log.last_output) == ("error: no key", ("error: no key",))
    with pytest.raises(ConnectionLostError, match="no such program"):
        await connect(log, Command((str(tmp_path / "nothing"),)))
    assert (log.last_cause, log.last_output) == ("", ())


async def refused(log: StderrLog, code: str, *words: str) -> None:
    """Start a server that never answers, and stop waiting once it has written something."""
    begin = log.total
    start = asyncio.create_task(connect(log, Command((sys.executable, "-c", code, *words))))
    async with asyncio.timeout(30):
        while log.total == begin:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # for further lines
    start.cancel()
    await asyncio.wait([start])


async def test_plain_text_on_stdout_is_the_reason_of_a_failed_start_and_in_the_log() -> None:
    log = StderrLog("shop")
    log.hidden = ("correct horse",)
    await refused(log, PRINTS, "Listening on port 80", "", "with \x1b[2J correct horse")
    told = "it wrote lines to stdout that are not MCP: `Listening on port 80`, `with \ufffd[2J ***`"
    assert log.last_cause == told
    assert log.tail(9) == ["[stdout] Listening on port 80", "[stdout] with \ufffd[2J ***"]
    await refused(log, "import sys; print('error: no key', file=sys.stderr); " + PRINTS, "Hello")
    assert log.last_cause == "it wrote lines to stdout that are not MCP: `Hello`; error: no key"


async def test_of_a_flood_on_stdout_only_the_first_lines_are_kept() -> None:
    log = StderrLog("shop")
    await refused(log, PRINTS, *(f"line {number} " + "x" * 2000 for number in range(100)))
    assert [line[:15] for line in log.tail(99)] == [f"[stdout] line {number}" for number in range(5)]
    assert len(log.last_cause) < 600


async def test_a_question_on_stdout_without_an_end_of_line_is_shown() -> None:
    log = StderrLog("shop")
    code = (
        "import sys; sys.stdout.write('Password: '); sys.stdout.flush(); print('x', file=sys.stderr); sys.stdin.read()"
    )
    await refused(log, code)
    assert log.last_cause == "it wrote lines to stdout that are not MCP: `Password:`; x"


async def test_a_server_that_speaks_mcp_besides_is_not_blamed_for_its_stdout() -> None:
    log = StderrLog("shop")
    connection = await connect(log, command())
    await connection.close()
    assert log.last_cause == ""
