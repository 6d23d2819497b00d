"""`pointsman server log`: a server's stderr can be read, while it runs and after it failed."""

from __future__ import annotations

import asyncio
import stat
import sys
from pathlib import Path

from tests.gateway_process import gateway_process

LOUD = "import sys; print('no such database: \\x1b[31mcustomers', file=sys.stderr); sys.exit(7)"


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
            1,
            "",
            "No log for `brken`: it wrote nothing to stderr, or there is no such server. Logs exist for: broken.\n",
        )
    assert (await server_log(gateway.state_dir, "broken"))[0] == 0
