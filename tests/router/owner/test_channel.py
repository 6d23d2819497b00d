"""The owner's channel: for one user, bounded, and never in the way of the event loop."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.model import Json
from pointsman.router.owner import channel as channel_module
from pointsman.router.owner.channel import MAX_CONNECTIONS, OwnerError, owner_channel
from pointsman.router.owner.client import NoGatewayError, OperationError, ask
from pointsman.router.owner.socket_file import FILE, MAX_REQUEST_BYTES, connect, listen

pytestmark = pytest.mark.anyio
HANG_S = 60.0


class Operations:
    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def echo(self, given: Json) -> Json:
        return given

    async def refuse(self, given: Json) -> Json:
        raise OwnerError("no_such_thing", "There is no such thing.")

    async def wait(self, given: Json) -> Json:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return {}

    async def crash(self, given: Json) -> Json:
        raise RuntimeError("a path /home/anna that nobody should see")


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Operations]:
    operations = Operations()
    table = {name: getattr(operations, name) for name in ("echo", "refuse", "wait", "crash")}
    async with owner_channel(folder, table):
        yield operations


async def asked(folder: Path, operation: str, **parameters: Any) -> Any:
    return await asyncio.to_thread(ask, folder, operation, **parameters)


async def raw(folder: Path, data: bytes) -> Any:
    """The answer to these bytes; None: the connection ended without one."""
    reader, writer = await asyncio.open_unix_connection(str(folder / FILE))
    with suppress(OSError):
        writer.write(data)
        await writer.drain()
    async with asyncio.timeout(HANG_S):
        with suppress(OSError):
            line = await reader.readline()
            writer.close()
            return json.loads(line) if line else None
    return None


async def test_an_operation_answers_or_refuses_in_a_sentence(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert await asked(tmp_path, "echo", word="größer") == {"word": "größer"}
        with pytest.raises(OperationError, match="There is no such thing") as refused:
            await asked(tmp_path, "refuse")
        assert refused.value.code == "no_such_thing"
        with pytest.raises(OperationError, match="no operation `nothing`"):
            await asked(tmp_path, "nothing")


async def test_an_operation_that_a_stop_cuts_says_why_and_one_that_ends_in_time_is_answered(tmp_path: Path) -> None:
    operations = Operations()
    finish = asyncio.Event()

    async def slow(given: Json) -> Json:
        operations.waiting.set()
        await finish.wait()
        return {"done": True}

    async with owner_channel(tmp_path, {"wait": operations.wait, "slow": slow}) as channel:
        idle = await asyncio.open_unix_connection(str(tmp_path / FILE))  # sends nothing, and delays nothing
        answer = asyncio.create_task(asked(tmp_path, "slow"))
        await asyncio.wait_for(operations.waiting.wait(), HANG_S)
        draining = asyncio.create_task(channel.drain(HANG_S))
        await asyncio.sleep(0.05)
        assert (channel.running, draining.done()) == (1, False)
        finish.set()
        await asyncio.wait_for(draining, HANG_S)
        assert await asyncio.wait_for(answer, HANG_S) == {"done": True}
        operations.waiting.clear()
        answer = asyncio.create_task(asked(tmp_path, "wait"))
        await asyncio.wait_for(operations.waiting.wait(), HANG_S)
        await asyncio.wait_for(channel.drain(0.05), HANG_S)
        with pytest.raises(OperationError, match="stopped before this was finished") as cut:
            await asyncio.wait_for(answer, HANG_S)
        assert cut.value.code == "stopping"
        assert operations.cancelled.is_set()
        idle[1].close()


async def test_the_cause_of_a_crash_stays_in_the_log(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(OperationError) as failed:
            await asked(tmp_path, "crash")
    assert "anna" not in str(failed.value)
    assert "log has the reason" in str(failed.value)


async def test_the_file_is_for_its_owner_and_ends_with_the_daemon(tmp_path: Path) -> None:
    async with serving(tmp_path):
        found = (tmp_path / FILE).stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o600
    assert not list(tmp_path.iterdir())
    with pytest.raises(NoGatewayError, match="No gateway runs with the state folder"):
        await asked(tmp_path, "echo")


async def test_the_file_of_a_killed_daemon_is_replaced(tmp_path: Path) -> None:
    listen(tmp_path).close()  # as after SIGKILL: the file is there, and nothing listens
    assert (tmp_path / FILE).is_socket()
    with pytest.raises(NoGatewayError, match="No gateway runs"):
        await asked(tmp_path, "echo")
    async with serving(tmp_path):
        assert await asked(tmp_path, "echo") == {}


async def test_a_path_of_any_length_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 25) / ("deeper" * 25)
    folder.mkdir(parents=True)
    assert len(str(folder)) > 250
    async with serving(folder):
        assert await asked(folder, "echo", word="here") == {"word": "here"}
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"nonsense\n",
        b"[]\n",
        b'{"operation": 1}\n',
        b'{"operation": "echo", "parameters": []}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"operation": "' + b"x" * 100_000 + b'"}\n',
    ],
)
async def test_what_is_no_request_is_refused(tmp_path: Path, data: bytes) -> None:
    async with serving(tmp_path):
        answer = await raw(tmp_path, data)
        assert answer["error"]["code"] in ("invalid_request", "unknown_operation")
        assert len(answer["error"]["message"]) < 200
        assert await asked(tmp_path, "echo") == {}


async def test_a_request_without_end_is_cut(tmp_path: Path) -> None:
    async with serving(tmp_path):
        answer = await raw(tmp_path, b"x" * (4 * MAX_REQUEST_BYTES))
        assert answer is None or "longer than" in answer["error"]["message"]
        assert await asked(tmp_path, "echo") == {}


async def test_a_client_that_sends_nothing_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "REQUEST_S", 0.05)
    async with serving(tmp_path):
        assert await raw(tmp_path, b'{"operation"') is None


async def test_a_client_that_does_not_read_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "ANSWER_S", 0.05)
    async with serving(tmp_path):
        with connect(tmp_path, HANG_S) as connection:
            word = "x" * (MAX_REQUEST_BYTES - 1000)
            request = json.dumps({"operation": "echo", "parameters": {"word": word}}).encode() + b"\n"
            await asyncio.to_thread(connection.sendall, request)
            await asyncio.sleep(0.5)  # no read
            received = await asyncio.to_thread(_read_all, connection)
        assert len(received) < len(word)
        assert await asked(tmp_path, "echo") == {}


def _read_all(connection: socket.socket) -> bytes:
    chunks: list[bytes] = []
    with suppress(ConnectionError):
        while chunk := connection.recv(1 << 16):
            chunks.append(chunk)
    return b"".join(chunks)


async def test_an_operation_ends_when_its_client_leaves(tmp_path: Path) -> None:
    async with serving(tmp_path) as operations:
        with connect(tmp_path, HANG_S) as connection:
            connection.sendall(b'{"operation": "wait"}\n')
            async with asyncio.timeout(HANG_S):
                await operations.waiting.wait()
        async with asyncio.timeout(HANG_S):
            await operations.cancelled.wait()


async def test_connections_are_bounded_and_the_end_of_the_daemon_closes_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as operations:
        held = [connect(tmp_path, HANG_S) for _ in range(MAX_CONNECTIONS)]
        for connection in held:
            connection.sendall(b'{"operation": "wait"}\n')
        async with asyncio.timeout(HANG_S):
            await operations.waiting.wait()
            while await raw(tmp_path, b'{"operation": "echo"}\n') is not None:
                await asyncio.sleep(0.02)  # until all of them are counted
        held.pop().close()
        async with asyncio.timeout(HANG_S):
            while await raw(tmp_path, b'{"operation": "echo"}\n') is None:
                await asyncio.sleep(0.02)
    for connection in held:
        assert await asyncio.to_thread(_read_all, connection) == b""
        connection.close()


_STRANGER = """
import json, os, socket, sys
os.setgid(65534); os.setuid(65534)
connection = socket.socket(socket.AF_UNIX); connection.settimeout(60)
connection.connect(sys.argv[1])
try:
    connection.sendall(b'{"operation": "echo"}\\n')
    print(len(connection.recv(1000)))
except OSError:
    print(0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_is_refused_even_if_the_file_modes_let_them_in(tmp_path: Path) -> None:
    folder = Path("/tmp") / f"owner-channel-{os.getpid()}"
    folder.mkdir(mode=0o711)
    try:
        async with serving(folder):
            (folder / FILE).chmod(0o666)
            stranger = [sys.executable, "-I", "-c", _STRANGER, str(folder / FILE)]
            done = await asyncio.to_thread(subprocess.run, stranger, capture_output=True, text=True, timeout=HANG_S)
            assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr
            assert await asked(folder, "echo") == {}
    finally:
        folder.rmdir()
