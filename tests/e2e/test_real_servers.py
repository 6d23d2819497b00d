"""Servers that others wrote, behind a whole gateway, used by the SDK's client in both eras."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp.types import ImageContent

from tests.e2e.client import BOTH_ERAS, Mode, assistant
from tests.e2e.foreign_servers import (
    a_repository,
    everything_over,
    everything_server,
    filesystem_server,
    git_server,
    needs_npm,
    needs_pypi,
    time_server,
)
from tests.gateway_process import gateway_process


class TestFromPypi:
    pytestmark = needs_pypi

    @pytest.mark.parametrize("mode", BOTH_ERAS)
    async def test_time_and_git_are_found_by_plain_words_and_called(self, mode: Mode, tmp_path: Path) -> None:
        repository = a_repository(tmp_path / "repository", message="Lay the first rail")
        servers = {"clock": time_server() | {"name": "World clock"}, "git": git_server(repository)}
        async with gateway_process(tmp_path, {"servers": servers}) as gateway, assistant(gateway, mode) as model:
            assert await model.tool_names() == ["tool_discovery", "tool_execute"]
            discovery = await model.discover("what is the current time in Tokyo")
            best = discovery["results"][0]
            assert (best["toolKey"], best["serverName"]) == ("clock:get_current_time", "World clock")
            assert best["inputSchema"]["required"] == ["timezone"]
            assert "git:git_log" in await model.found("show the history of commits")
            converted = json.loads(
                await model.text(
                    "clock:convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
                )
            )
            assert converted["target"]["datetime"].split("T")[1] == "21:00:00+09:00"
            assert "Lay the first rail" in await model.text("git:git_log", repo_path=str(repository))

    async def test_a_servers_own_error_reaches_the_model_as_it_was_sent(self, tmp_path: Path) -> None:
        config = {"servers": {"clock": time_server()}}
        async with gateway_process(tmp_path, config) as gateway, assistant(gateway) as model:
            answer = await model.execute("clock:get_current_time", timezone="Middle/Earth")
        assert answer.is_error
        assert answer.content[0].type == "text"
        assert "Invalid timezone" in answer.content[0].text

    async def test_arguments_that_do_not_fit_are_refused_with_the_schema(self, tmp_path: Path) -> None:
        config = {"servers": {"clock": time_server()}}
        async with gateway_process(tmp_path, config) as gateway, assistant(gateway) as model:
            answer = await model.execute("clock:get_current_time", zone="UTC")
        error = (answer.structured_content or {})["error"]
        assert error["code"] == "invalid_arguments"
        assert "timezone" in error["message"]


class TestFromNpm:
    pytestmark = needs_npm

    @pytest.mark.parametrize("mode", BOTH_ERAS)
    async def test_everything_answers_over_stdio_http_and_sse_alike(self, mode: Mode, tmp_path: Path) -> None:
        async with everything_over("streamableHttp") as http, everything_over("sse") as sse:
            servers = {"stdio": everything_server(), "http": http, "sse": sse}
            async with gateway_process(tmp_path, {"servers": servers}) as gateway, assistant(gateway, mode) as model:
                assert {f"{name}:get-sum" for name in servers} <= set(await model.found("sum of two numbers"))
                for name in servers:
                    assert await model.text(f"{name}:echo", message="Grüße 🚂") == "Echo: Grüße 🚂"
                    weather = await model.execute(f"{name}:get-structured-content", location="Chicago")
                    assert (weather.structured_content or {})["result"]["temperature"] == 36
                    image = await model.execute(f"{name}:get-tiny-image")
                    assert [block.mime_type for block in image.content if isinstance(block, ImageContent)] == [
                        "image/png"
                    ]

    async def test_progress_of_a_long_call_reaches_the_client(self, tmp_path: Path) -> None:
        seen: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)

        config = {"servers": {"everything": everything_server()}}
        async with gateway_process(tmp_path, config) as gateway, assistant(gateway, "legacy") as model:
            call = {
                "toolKey": "everything:trigger-long-running-operation",
                "arguments": {"duration": 0.3, "steps": 3},
            }
            await model.client.call_tool("tool_execute", call, progress_callback=on_progress)
        assert seen[:2] == [1, 2]

    async def test_the_filesystem_server_reads_what_it_was_given_and_nothing_else(self, tmp_path: Path) -> None:
        shelf = tmp_path / "shelf"
        shelf.mkdir()
        (shelf / "note.txt").write_text("points set for the branch line")
        (tmp_path / "secret.txt").write_text("not yours")
        config = {"servers": {"files": filesystem_server(shelf)}}
        async with gateway_process(tmp_path, config) as gateway, assistant(gateway) as model:
            assert "files:read_text_file" in await model.found("read a file")
            text = await model.text("files:read_text_file", path=str(shelf / "note.txt"))
            assert "points set for the branch line" in text
            outside = await model.execute("files:read_text_file", path=str(tmp_path / "secret.txt"))
        assert outside.is_error
