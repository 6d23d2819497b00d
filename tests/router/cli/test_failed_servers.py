"""What the owner's commands say about servers that failed: the words of this run, and nothing from before."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.gateway_process import gateway_process
from tests.router.cli.commands import run

PRINTS = "import sys; print('Listening on port 80', flush=True); sys.stdin.read()"


async def test_a_server_that_prints_plain_text_is_told_so(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-S", "-c", PRINTS], "timeouts": {"connect_s": 1}}
    told = "it wrote lines to stdout that are not MCP: `Listening on port 80`"
    async with gateway_process(tmp_path, {"servers": {"web": entry}}) as gateway:
        await gateway.until_logged(told)
        tried = await run(tmp_path, "server", "test", "web")
        listed = await run(tmp_path, "server", "list")
        log = await run(tmp_path, "server", "log", "web")
    assert (tried.code, f"it was not ready within 1 s: {told}" in tried.stderr) == (1, True), tried.stderr
    assert told in listed.stdout
    assert "[stdout] Listening on port 80" in log.stdout
    alone = await run(tmp_path, "server", "test", "web", "--config", "pointsman.yaml")
    assert (alone.code, told in alone.stderr) == (1, True), alone.stderr


async def test_words_from_before_do_not_explain_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable} -S\nimport sys; sys.exit('Installed 32 packages')\n")
    program.chmod(0o755)
    async with gateway_process(tmp_path, {"servers": {"tool": {"command": str(program)}}}):
        failed = await run(tmp_path, "server", "restart", "tool")
        assert (failed.code, "| Installed 32 packages" in failed.stderr) == (1, True), failed.stderr
        program.unlink()
        missing = await run(tmp_path, "server", "restart", "tool")
        found = await run(tmp_path, "doctor")
    assert (missing.code, "there is no such program" in missing.stderr) == (1, True), missing.stderr
    assert "Installed 32 packages" not in missing.stderr + found.stdout + found.stderr
    assert "there is no such program" in found.stdout
