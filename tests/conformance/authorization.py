"""The suite's scenarios for authorization servers, against the gateway's own: its owner signs in and consents."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.conformance import suite
from tests.router.auth.server.office import Office, Visitor, free_port, office

# By the names of their folders in the suite's output.
SCENARIOS = tuple(
    f"authorization-server-{one}" for one in ("authorization-server-metadata-endpoint", "authorization-code-grant")
)
RUN_S = 60.0  # a bound against hanging; the suite waits five minutes for a person


async def run(version: str, folder: Path) -> suite.Verdict:
    """Run all scenarios together: the second one uses the metadata that the first one has read."""
    folder.mkdir(parents=True)
    async with office(folder) as opened:
        await opened.sign_in()
        port = free_port()
        client = await opened.register(redirect_uris=[f"http://127.0.0.1:{port}/callback"])
        options = ("--url", opened.base, "--client-id", client.client_id, "--resource", f"{opened.base}/mcp")
        more = ("--port", str(port), "--spec-version", version, "--output-dir", str(folder / "out"))
        async with _suite("authorization", *options, *more) as process:
            async with asyncio.timeout(RUN_S):
                log = await _answered(process, opened, client)
    return suite.read_verdict(folder / "out", log, content=process.returncode == 0)


@asynccontextmanager
async def _suite(*options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(str(suite.NODE), str(suite.PROGRAM), *options),
        cwd=suite.ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answered(process: asyncio.subprocess.Process, opened: Office, client: Visitor) -> str:
    """Consent to the request whose URL the suite prints, and return all that it prints."""
    assert process.stdout is not None
    log = ""
    async for line in process.stdout:
        log += line.decode()
        found = re.search(re.escape(f"{opened.base}/oauth/authorize?") + r"\S+", line.decode())
        if found:
            answer = await client.consent(await opened.http.get(found[0]))
            await opened.http.get(answer.headers["location"])
    await process.wait()
    return log
