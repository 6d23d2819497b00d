"""`pointsman stdio`: MCP on stdin and stdout, for clients without HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pointsman.config.errors import ConfigError
from pointsman.config.model import GatewayConfig
from pointsman.config.paths import NoHomeError, state_folder
from pointsman.config.settings import Settings, apply_overrides, read_settings
from pointsman.core.dumpable import make_non_dumpable
from pointsman.router.bridge.bridge import Bridge
from pointsman.router.bridge.gateway_client import GatewayClient, GatewayUnreachableError
from pointsman.router.bridge.gateway_locator import GatewayLocator
from pointsman.router.bridge.pipes import Lines, Output
from pointsman.router.cli.common.first_start import ConfigFile, gateway_config_file
from pointsman.router.cli.common.options import (
    CommandError,
    config_option,
    log_to_stderr,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.serving import process

if TYPE_CHECKING:
    from pointsman.router.launch import Launch


@click.command()
@config_option
@state_dir_option
@click.option("--project", help="Project to work in.")
def stdio(config_file: Path | None, state_dir: Path | None, project: str | None) -> None:
    """Serve MCP on stdin and stdout, for clients that cannot use HTTP.

    Forwards to the gateway running on this machine, with the token in POINTSMAN_TOKEN. If none is running, starts one
    inside this process.
    """
    make_non_dumpable()  # the token is in our environment, and servers run as the same user
    with report_config_errors():
        settings = read_settings()
        log_to_stderr(settings, "text")  # clients show it to people
        folder = state_folder(state_dir, settings, os.environ)
    token = settings.token.get_secret_value() if settings.token is not None else None
    locator = GatewayLocator(folder, token, lambda: _launch(config_file, settings, folder))
    process.run_event_loop(_run(locator, project))


def _launch(config_file: Path | None, settings: Settings, folder: Path) -> Launch:
    """Raises GatewayUnreachableError."""
    from pointsman.router.launch import Launch  # deferred: a bridge to a running daemon does not need it

    try:
        file = gateway_config_file(config_file, settings, folder)

        def read() -> GatewayConfig:
            return apply_overrides(file.load(), settings, file=file.path)

        return Launch(
            read(),
            file.path,
            read,
            folder,
            lambda url: None,
            prepare=_prepare(file),
            read_secrets_again=file.read_secrets_again,
            first_token=file.first_token,
        )
    except (ConfigError, NoHomeError) as error:
        raise GatewayUnreachableError(str(error)) from error
    except CommandError as error:
        raise GatewayUnreachableError(error.message) from error


def _prepare(file: ConfigFile) -> Callable[[GatewayConfig], bool]:
    """Return what creates a missing configuration. The client's log is no place for a token, so none is shown."""

    def prepare(config: GatewayConfig) -> bool:
        try:
            return file.prepare_silently(config)
        except CommandError as error:
            raise GatewayUnreachableError(error.message) from error

    return prepare


async def _run(locator: GatewayLocator, project: str | None) -> None:
    """Run until stdin ends, stdout is closed or a signal arrives."""
    stop = asyncio.Event()
    with process.stop_on_signals(stop):  # until the end, with an embedded gateway or without
        output = Output(sys.stdout.buffer)
        await output.open()
        async with GatewayClient(locator.find, project) as gateway:
            work = asyncio.ensure_future(Bridge(gateway, output).run(Lines(sys.stdin.buffer).read()))
            ends = [work, *(asyncio.ensure_future(event.wait()) for event in (output.gone, stop, locator.ended))]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    await locator.close()  # before the bridge, so that the last answers arrive
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
                await locator.close()
