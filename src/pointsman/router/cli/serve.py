"""`pointsman serve`: the daemon in the foreground."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from pointsman.config.model import GatewayConfig
from pointsman.config.paths import state_folder
from pointsman.config.settings import apply_overrides, read_settings
from pointsman.core.dumpable import make_non_dumpable
from pointsman.router.cli.first_config import find_or_make_config
from pointsman.router.cli.options import (
    CommandError,
    clear_errors,
    config_option,
    load_gateway_config,
    log_to_stderr,
    note,
)
from pointsman.router.cli.welcome import welcome
from pointsman.router.daemon import Launch
from pointsman.router.daemon import serve as run_daemon
from pointsman.router.serving.socket import ListenError
from pointsman.router.serving.state_folder import StateFolderError
from pointsman.router.serving.tasks import DaemonError


@click.command()
@config_option
@click.option("--host", help="The address to listen on, in place of `listen.host`.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port, in place of `listen.port`; 0 takes a free one.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="The folder for audit, database and lock.")
def serve(config_file: Path | None, host: str | None, port: int | None, state_dir: Path | None) -> None:
    """Start the gateway. Without any configuration it makes one, and shows the first token."""
    make_non_dumpable()
    with clear_errors():
        settings = read_settings()
        log_to_stderr(settings)
        path, secret = find_or_make_config(config_file, settings)
        folder = state_folder(state_dir, settings, os.environ)

        def read() -> GatewayConfig:
            return apply_overrides(load_gateway_config(path), settings, host=host, port=port)

        def ready(url: str) -> None:
            if secret is not None:
                note(welcome(secret, url, path, folder))
            note(f"pointsman ready on {url}")

        launch = Launch(read(), path, read, folder, ready)
    _run(launch)


def _run(launch: Launch) -> None:
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_daemon(launch))
    except (StateFolderError, ListenError, DaemonError) as error:
        raise CommandError(str(error)) from error
