"""`pointsman stdio`: for clients that only start commands."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pointsman.config.errors import ConfigError
from pointsman.config.model import GatewayConfig
from pointsman.config.paths import NoHomeError, state_folder
from pointsman.config.settings import Settings, apply_overrides, read_settings
from pointsman.core.dumpable import make_non_dumpable
from pointsman.router.bridge.bridge import Bridge
from pointsman.router.bridge.gateway_locator import GatewayLocator
from pointsman.router.bridge.link import GatewayUnreachableError, Link
from pointsman.router.bridge.pipes import Lines, Output
from pointsman.router.cli.first_config import find_or_make_config
from pointsman.router.cli.options import CommandError, clear_errors, config_option, load_gateway_config, log_to_stderr
from pointsman.router.serving import signals

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
    make_non_dumpable()  # as a bridge too: the token is in our environment, and servers run as the same user
    with clear_errors():
        settings = read_settings()
        log_to_stderr(settings)
        folder = state_folder(state_dir, settings, os.environ)
    token = settings.token.get_secret_value() if settings.token is not None else None
    place = GatewayLocator(folder, token, lambda: _launch(config_file, settings, folder))
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(place, project))


def _launch(config_file: Path | None, settings: Settings, folder: Path) -> Launch:
    """Raises GatewayUnreachableError."""
    from pointsman.router.daemon import Launch  # only here: a bridge to a daemon starts without one

    try:
        path, _ = find_or_make_config(config_file, settings)

        def read() -> GatewayConfig:
            return apply_overrides(load_gateway_config(path), settings)

        return Launch(read(), path, read, folder, lambda url: None)
    except (ConfigError, NoHomeError) as error:
        raise GatewayUnreachableError(str(error)) from error
    except CommandError as error:
        raise GatewayUnreachableError(error.message) from error


async def _run(place: GatewayLocator, project: str | None) -> None:
    """Until stdin ends, stdout is closed, or a signal comes; whichever is first."""
    told = asyncio.Event()
    with signals.stopping(told):  # from here to the end, whether there is a gateway of our own or not
        output = Output(sys.stdout.buffer)
        await output.open()
        async with Link(place.find, project) as link:
            work = asyncio.ensure_future(Bridge(link, output).run(Lines(sys.stdin.buffer).read()))
            ends = [work, *(asyncio.ensure_future(event.wait()) for event in (output.gone, told, place.ended))]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if told.is_set():
                    await place.close()  # before the bridge, so that answers of its last calls arrive
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
                await place.close()
