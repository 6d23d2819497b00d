"""What servers were seen to do is kept over restarts: names only, bounded, and for the same entry alone."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.sections.server import Server
from pointsman.router.downstream.talk.server_memory import FILE, ServerMemory
from tests.gateway_process import gateway_process
from tests.router.downstream.talk.test_questions_over_stdio import asker
from tests.router.raw_client import speaker

ENTRY: dict[str, Any] = {"command": "serve-notes", "env": {"TOKEN": "hunter2"}}


def server(**changes: Any) -> Server:
    return Server.model_validate(ENTRY | changes)


async def test_what_was_seen_is_there_after_a_restart(tmp_path: Path) -> None:
    memory = ServerMemory(tmp_path)
    record = memory.of("notes", server())
    record.ran = True
    record.asked("greet")
    record.finished("find")
    record.suspect("maybe")
    memory.flush()
    again = ServerMemory(tmp_path).of("notes", server())
    assert (again.ran, again.asking, again.quiet, again.suspected) == (True, {"greet"}, {"find"}, set())


async def test_the_file_is_private_and_holds_no_secret(tmp_path: Path) -> None:
    memory = ServerMemory(tmp_path)
    memory.of("notes", server()).asked("greet")
    memory.flush()
    file = tmp_path / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hunter2" not in file.read_text()
    assert "serve-notes" not in file.read_text()


@pytest.mark.parametrize("change", [{"command": "other"}, {"args": ["-x"]}, {"env": {"TOKEN": "new"}}])
async def test_a_changed_entry_begins_anew(tmp_path: Path, change: dict[str, Any]) -> None:
    memory = ServerMemory(tmp_path)
    memory.of("notes", server()).asked("greet")
    assert memory.of("notes", server(**change)).asking == set()
    memory.flush()
    assert ServerMemory(tmp_path).of("notes", server()).asking == set()


async def test_what_does_not_concern_the_server_itself_changes_nothing() -> None:
    memory = ServerMemory()
    record = memory.of("notes", server())
    assert memory.of("notes", server(name="Notes", timeouts={"call_s": 5}, tool_permissions={"a": False})) is record
    assert memory.of("notes", server(confirm=["notes:*"], questions=False, pin="locked")) is record


@pytest.mark.parametrize("content", [b"", b"{", b'{"salt": "x", "servers": {}}', b"[]", b"\xff\xfe", b"[" * 100_000])
async def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    memory = ServerMemory(tmp_path)
    memory.of("notes", server()).asked("greet")
    memory.flush()
    assert ServerMemory(tmp_path).of("notes", server()).asking == {"greet"}


async def test_the_file_is_bounded_and_takes_only_text(tmp_path: Path) -> None:
    memory = ServerMemory(tmp_path)
    record = memory.of("notes", server())
    for number in range(5_000):
        record.finished(f"tool{number}")
    record.asked("x" * 10_000)
    record.asked("half\ud800")
    memory.flush()
    assert (tmp_path / FILE).stat().st_size < 100_000
    again = ServerMemory(tmp_path).of("notes", server())
    assert len(again.quiet) == 1_000
    assert again.asking == set()


async def test_servers_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    memory = ServerMemory(tmp_path)
    memory.of("notes", server()).asked("greet")
    memory.flush()
    again = ServerMemory(tmp_path)
    again.keep_only(["other"])
    again.flush()
    assert "greet" not in (tmp_path / FILE).read_text()


async def test_a_folder_that_cannot_be_written_costs_nothing_but_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = ServerMemory(tmp_path / "missing")
    memory.of("notes", server()).asked("greet")
    memory.flush()
    assert FILE in caplog.text


async def test_a_gateway_knows_after_a_restart_which_tools_are_quiet(tmp_path: Path) -> None:
    config = {"servers": {"s": asker(tmp_path)}}
    plain = {"toolKey": "s:plain", "arguments": {"tag": "x"}}
    async with gateway_process(tmp_path, config) as gateway, speaker(gateway, "legacy") as client:
        await client.call("tool_execute", plain)
    assert '"plain"' in (tmp_path / "state" / FILE).read_text()
    async with gateway_process(tmp_path, config):
        pass
    assert '"plain"' in (tmp_path / "state" / FILE).read_text()


async def test_the_names_of_a_servers_tools_are_kept_for_the_same_entry(tmp_path: Path) -> None:
    memory = ServerMemory(tmp_path)
    memory.of("notes", server())
    memory.note_tool_names(
        "notes",
        ["find", "greet", "see\u200bnothing", "x" * 129],
        ["greet", "x" * 129],
        {"find": "read", "greet": "write"},
    )
    memory.note_tool_names("stranger", ["spy"])
    memory.flush()
    again = ServerMemory(tmp_path)
    assert again.tool_names("notes") == ()  # not before its entry is known to be the same
    again.of("notes", server())
    assert again.tool_names("notes") == ("find", "greet")
    assert again.app_tool_names("notes") == {"greet"}
    assert again.claims("notes") == {"find": "read", "greet": "write"}
    again.of("notes", server(args=["-x"]))
    assert again.tool_names("notes") == ()
    assert not again.app_tool_names("notes")
    assert not again.claims("notes")
    assert again.tool_names("stranger") == ()


async def test_names_of_tools_are_left_out_first_where_the_file_would_be_too_large(tmp_path: Path) -> None:
    memory = ServerMemory(tmp_path)
    for number in range(40):
        memory.of(f"server{number}", server()).asked("greet")
        memory.note_tool_names(f"server{number}", (f"{name:0128}" for name in range(10_000)))
    memory.flush()
    assert (tmp_path / FILE).stat().st_size < 4 << 20
    again = ServerMemory(tmp_path)
    assert again.of("server0", server()).asking == {"greet"}
    assert again.tool_names("server0") == ()
