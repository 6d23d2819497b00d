"""`pointsman server log`: a server's stderr can be read, while it runs and after it failed."""

from __future__ import annotations

import asyncio
import stat
import sys
from pathlib import Path

from tests.gateway_process import gateway_process
from tests.router.cli.commands import run

LOUD = "import sys; print('no such database: \\x1b[31mcustomers', file=sys.stderr); sys.exit(7)"


SPEAKS = """
import os, sys
print("connecting with", os.environ["DB_PASS"], "to", os.environ["DATA_DIR"], file=sys.stderr)
header = "Authorization: Bearer abcdefghijk"
print("mode", os.environ["MODE"], "key", sys.argv[2], header, "sk-" + "a1" * 12, file=sys.stderr)
print("error: login of", os.environ["DB_PASS"], "failed", file=sys.stderr)
sys.exit(4)
"""


async def server_log(state_dir: Path, server_id: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "server", "log", server_id, "--state-dir", str(state_dir)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_last_words_of_a_server_that_fails_can_be_read(tmp_path: Path) -> None:
    config = {"servers": {"broken": {"command": sys.executable, "args": ["-S", "-c", LOUD]}}}
    async with gateway_process(tmp_path, config) as gateway:
        async with asyncio.timeout(30):
            while (found := await server_log(gateway.state_dir, "broken"))[0] != 0:
                await asyncio.sleep(0.02)
        assert "no such database: �[31mcustomers\n" in found[1]
        file = gateway.state_dir / "logs" / "broken.log"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert await server_log(gateway.state_dir, "brken") == (
            2,
            "",
            "No log for `brken`: there is no such server. Logs exist for: broken.\n",
        )
    assert (await server_log(gateway.state_dir, "broken"))[0] == 0


async def test_secrets_that_a_server_prints_are_masked_in_its_log_and_in_the_reason(tmp_path: Path) -> None:
    env = {"DB_PASS": "correct horse battery", "DATA_DIR": "/srv/data", "MODE": "production"}
    entry = {"command": sys.executable, "args": ["-c", SPEAKS, "--api-key", "plainword"], "env": env}
    async with gateway_process(tmp_path, {"servers": {"loose": entry}}) as gateway:
        async with asyncio.timeout(30):
            while (found := await server_log(gateway.state_dir, "loose"))[0] != 0:
                pass
        listed = await run(tmp_path, "server", "list", "--json")
        file = (gateway.state_dir / "logs" / "loose.log").read_text()
    assert "connecting with *** to /srv/data\n" in found[1]
    assert "mode production key *** Authorization: *** ***\n" in found[1]
    assert listed.json["servers"][0]["reason"].endswith("error: login of *** failed")
    everything = found[1] + file + listed.stdout + gateway.stderr
    assert not [secret for secret in ("horse", "plainword", "abcdefghijk", "a1a1") if secret in everything]
    (gateway.state_dir / "logs" / "old.log").write_text(f"written by an earlier version: ghp_{'a1' * 18}\n")
    assert (await server_log(gateway.state_dir, "old"))[1] == "written by an earlier version: ***\n"
    own = await server_log(gateway.state_dir, "pointsman")
    assert (own[0], own[1]) == (1, "")
    assert "`pointsman log`" in own[2]
