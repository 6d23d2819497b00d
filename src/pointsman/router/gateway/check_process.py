"""Checks arguments whose cost is not known to be small in a child process, which is killed if it takes too long."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

from pointsman.catalog.schema import check_program
from pointsman.catalog.schema.arguments import DeferredCheck

DEADLINE_S = 2.0  # including the wait for other checks and the start of the process
_MAX_LINE_BYTES = 65_536

logger = logging.getLogger(__name__)


class CheckProcess:
    """One for the whole gateway. The process starts with the first check that needs it and exits when idle."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._killed = False  # and not yet waited for
        self._turn = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by token id

    async def settle(self, deferred: DeferredCheck, token_id: str) -> bool:
        """Return whether they are known to match. Those that are not checked in time pass: the server decides.

        Raises:
            InvalidArgumentsError: they do not match.
        """
        return deferred.apply_verdict(await self._answer(deferred.job(), token_id))

    async def close(self) -> None:
        async with self._turn:
            await self._end()

    async def _answer(self, job: bytes | None, token_id: str) -> list[bytes]:
        """Queue one check of each token at a time, so that tokens take turns."""
        if job is None:
            return []
        lines: list[bytes] = []
        own_turn = self._turns.setdefault(token_id, asyncio.Lock())
        with suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE_S), own_turn, self._turn:
                await self._ask(job, lines)
        return lines

    async def _ask(self, job: bytes, lines: list[bytes]) -> None:
        """Append the lines of the answer to `lines`."""
        try:
            idle = await self._exchange(job, lines)
            if idle:  # it exited just before the job was written
                await self._exchange(job, lines)
        except (OSError, ValueError) as error:  # ValueError: a line over the limit
            logger.warning("the process that checks arguments failed: %s", error)
            await self._end()
        except BaseException:  # cancelled: the next job must not read the rest of this answer
            self._kill()
            raise

    async def _exchange(self, job: bytes, lines: list[bytes]) -> bool:
        """Return True if the process had exited by itself."""
        process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(ConnectionError):  # it exited, which the read detects
            process.stdin.write(job + b"\n")
            await process.stdin.drain()
        while not lines or lines == [b"invalid"]:
            line = await process.stdout.readline()
            if not line.endswith(b"\n"):
                await self._end()
                return process.returncode == 0
            lines.append(line[:-1])
        return False

    async def _start(self) -> Process:
        if self._killed:
            await self._end()
        if self._process is not None and self._process.returncode is None:
            return self._process
        import jsonschema_rs  # loaded with the first call

        folder = str(Path(jsonschema_rs.__file__).parent.parent)
        program = (sys.executable, "-I", "-S", check_program.__file__, folder)
        self._process = await asyncio.create_subprocess_exec(
            *program,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
            env={},
            cwd="/",
            limit=_MAX_LINE_BYTES,
        )
        return self._process

    async def _end(self) -> None:
        self._kill()
        if self._process is not None:
            await self._process.wait()
            self._process = None
        self._killed = False

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._killed = True
            with suppress(ProcessLookupError):
                self._process.kill()
