"""One of several workers: a daemon that tells its parent over a pair of sockets how it is, and ends with it."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from pointsman.config.errors import ConfigError
from pointsman.router.launch import Launch
from pointsman.router.run import serve
from pointsman.router.serving.process import run_event_loop
from pointsman.router.serving.service_manager import ServiceManager
from pointsman.router.serving.socket import ListenError
from pointsman.router.serving.state_folder import StateFolderError
from pointsman.router.serving.tasks import DaemonError

MOST_BYTES: Final = 64 << 10  # of a message between parent and worker
BEAT_S: Final = 0.5  # between two signs of life of a worker that stops
STOP, END = b"stop", b"end"  # what the parent tells a worker
_MOST_CHARS: Final = 4096  # of a text in a message


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker tells its parent; each message has one of these."""

    ready: str = ""  # the URL of /mcp
    page: str = ""  # a link that signs a browser in
    summary: str = ""
    failed: str = ""  # why it ends
    applied: bool = False  # another configuration is in effect
    drained: bool = False
    alive: bool = False  # its event loop runs


def run_worker(launch: Launch, link: socket.socket, watchdog_s: float) -> int:
    """Serve as one of several, and return the exit code. The parent replaces one that is silent for `watchdog_s`."""
    try:
        run_event_loop(_serve(launch, link, watchdog_s))
    except (StateFolderError, ListenError, DaemonError, ConfigError) as error:
        _tell(link, Told(failed=str(error)[:_MOST_CHARS]))
        return 1
    return 0


async def _serve(launch: Launch, link: socket.socket, watchdog_s: float) -> None:
    stop, end = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    link.setblocking(False)

    def told() -> None:
        try:
            word = link.recv(MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        stop.set()
        if word == END:
            end.set()
        elif not word:  # the parent has ended
            loop.remove_reader(link)
            end.set()

    has_drained = False

    async def drained() -> None:
        nonlocal has_drained
        has_drained = True
        _tell(link, Told(drained=True))
        await end.wait()

    async def beat() -> None:
        """Let the parent tell a worker that drains from one that hangs."""
        await stop.wait()
        while True:
            _tell(link, Told(alive=True, drained=has_drained))  # again: the parent may have missed it
            await asyncio.sleep(BEAT_S)

    loop.add_reader(link, told)
    # The parent counts signals. A service manager may send them to all processes, so a second one means nothing here.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    own = replace(
        launch,
        ready=lambda url: _tell(link, Told(ready=url)),
        summary=lambda line: _tell(link, Told(summary=line[:_MOST_CHARS])),
        page=(lambda url: _tell(link, Told(page=url))) if launch.page is not None else None,
        prepare=lambda config: False,
        manager=_Watched(link, watchdog_s),
        applied=lambda: _tell(link, Told(applied=True)),
        drained=drained,
    )
    beating = asyncio.ensure_future(beat())
    try:
        await serve(own, stop)
    finally:
        beating.cancel()


class _Watched(ServiceManager):
    """What a worker has instead of the service manager: it says to the parent that it is alive."""

    def __init__(self, link: socket.socket, watchdog_s: float) -> None:
        super().__init__("", watchdog_s)
        self._link = link

    def alive(self) -> None:
        _tell(self._link, Told(alive=True))


def _tell(link: socket.socket, told: Told) -> None:
    with suppress(OSError):  # the parent has ended
        link.send(msgspec.json.encode(told))
