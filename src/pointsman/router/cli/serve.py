"""`pointsman serve`: run the gateway daemon in the foreground."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pointsman.config.model import GatewayConfig
from pointsman.config.paths import state_folder
from pointsman.config.settings import apply_overrides, read_settings
from pointsman.core.dumpable import make_non_dumpable
from pointsman.router.cli.first_start import find_or_create_config, welcome
from pointsman.router.cli.options import (
    CommandError,
    config_option,
    load_gateway_config,
    log_to_stderr,
    note,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.daemon import Launch
from pointsman.router.daemon import serve as run_daemon
from pointsman.router.serving.process import run_event_loop
from pointsman.router.serving.socket import ListenError
from pointsman.router.serving.state_folder import StateFolderError
from pointsman.router.serving.tasks import DaemonError


@click.command()
@config_option
@click.option("--host", help="Address to listen on; overrides `listen.host`.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port to listen on; overrides `listen.port`. 0 picks a free one."
)
@state_dir_option
def serve(config_file: Path | None, host: str | None, port: int | None, state_dir: Path | None) -> None:
    """Start the gateway. Creates a configuration and prints a first token if there is none."""
    make_non_dumpable()
    with report_config_errors():
        settings = read_settings()
        log_to_stderr(settings)
        path, secret = find_or_create_config(config_file, settings)
        folder = state_folder(state_dir, settings, os.environ)

        def read() -> GatewayConfig:
            return apply_overrides(load_gateway_config(path), settings, host=host, port=port)

        def ready(url: str) -> None:
            if secret is not None:
                note(welcome(secret, url, path, folder))
            note(f"pointsman ready on {url}")

        launch = Launch(read(), path, read, folder, ready, lambda line: note(f"pointsman has {line}"))
    try:
        run_event_loop(run_daemon(launch))
    except (StateFolderError, ListenError, DaemonError) as error:
        raise CommandError(str(error)) from error
