"""`pointsman stdio`: for clients that only start commands."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pointsman.config.loading import load
from pointsman.config.model import GatewayConfig
from pointsman.config.places import state_folder
from pointsman.config.settings import Settings, overlaid, read_settings
from pointsman.router.bridge.bridge import Bridge
from pointsman.router.bridge.link import Link
from pointsman.router.bridge.pipes import Lines, Output
from pointsman.router.bridge.place import Place
from pointsman.router.cli.first_config import find_or_make_config
from pointsman.router.cli.options import clear_errors, config_option, log_to_stderr

if TYPE_CHECKING:
    from pointsman.router.daemon import Launch


@click.command()
@config_option
@click.option("--state-dir", type=click.Path(path_type=Path), help="The state folder of the gateway.")
@click.option("--project", help="The project to work in.")
def stdio(config_file: Path | None, state_dir: Path | None, project: str | None) -> None:
    """Speak MCP on stdin and stdout, for clients that only start commands.

    Carries everything to the gateway that runs on this machine, with the token in POINTSMAN_TOKEN. If none runs, one
    is started inside this process and ends with it.
    """
    with clear_errors():
        settings = read_settings()
        log_to_stderr(settings)
        folder = state_folder(state_dir, settings, os.environ)
    token = settings.token.get_secret_value() if settings.token is not None else None
    place = Place(folder, token, lambda: _launch(config_file, settings, folder))
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(place, project))


def _launch(config_file: Path | None, settings: Settings, folder: Path) -> Launch:
    from pointsman.router.daemon import Launch  # only here: a bridge to a daemon starts without one

    path, _ = find_or_make_config(config_file, settings)

    def read() -> GatewayConfig:
        return overlaid(load(path, os.environ), settings)

    return Launch(read(), path, read, folder, lambda url: None)


async def _run(place: Place, project: str | None) -> None:
    """Until stdin ends, stdout is closed, or a signal comes; whichever is first."""
    output = Output(sys.stdout.buffer)
    await output.open()
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)  # until a gateway of our own takes them over
    async with Link(place.find, project) as link:
        work = asyncio.ensure_future(Bridge(link, output).run(Lines(sys.stdin.buffer).read()))
        ends = [work, *(asyncio.ensure_future(event.wait()) for event in (output.gone, told, place.ended))]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            await place.close()
