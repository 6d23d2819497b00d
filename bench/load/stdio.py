"""Load over stdio: one child, with as many calls under way as the spec says."""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import count, cycle

from bench.load.report import Spec, Tally
from bench.load.requests import FIRST_ID, call_body, initialize_body, initialized_body, template
from bench.servers.answers import decode


class StdioLoad:
    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._spec = spec
        self._tally = tally
        self._numbers = count(FIRST_ID)
        self._templates = cycle(
            template(call_body(spec.era, spec.tool, arguments) + b"\n") for arguments in spec.arguments
        )
        self._sent_at: dict[int, float] = {}

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self._spec.target, stdin=pipe, stdout=pipe
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin, self._child.stdout
        if self._spec.era == "legacy":
            self._stdin.write(initialize_body() + b"\n" + initialized_body() + b"\n")
            await self._stdout.readline()
        for _ in range(self._spec.connections):
            self._send()
        self._calling = asyncio.create_task(self._keep_calling())

    async def stop(self) -> None:
        self._calling.cancel()
        self._stdin.close()
        await self._child.wait()

    def _send(self) -> None:
        number = next(self._numbers)
        request = next(self._templates).numbered(number)
        self._sent_at[number] = time.perf_counter()
        self._stdin.write(request)

    async def _keep_calling(self) -> None:
        async for line in self._stdout:
            self._tally.add(self._sent_at.pop(decode(line)["id"]), line)
            self._send()
