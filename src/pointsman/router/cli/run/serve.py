"""`pointsman serve`: run the gateway daemon in the foreground."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pointsman.config.model import GatewayConfig
from pointsman.config.paths import state_folder
from pointsman.config.settings import apply_overrides, read_settings
from pointsman.core.dumpable import make_non_dumpable
from pointsman.core.escape import escaped
from pointsman.router.cli.common.first_start import gateway_config_file, kept_token, welcome
from pointsman.router.cli.common.options import (
    CommandError,
    config_option,
    log_to_stderr,
    note,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.launch import Launch
from pointsman.router.run import serve as run_daemon
from pointsman.router.serving.process import run_event_loop
from pointsman.router.serving.service_manager import ServiceManager
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
        lines = log_to_stderr(settings)
        folder = state_folder(state_dir, settings, os.environ)
        file = gateway_config_file(config_file, settings, folder)

        def read() -> GatewayConfig:
            return apply_overrides(file.load(), settings, host=host, port=port, file=file.path)

        def ready(url: str) -> None:
            if file.secret is not None:
                note(welcome(file, url, folder))
            if kept := kept_token(file):
                note(kept)
            note(f"pointsman ready on {url}")

        def summary(line: str) -> None:
            note(f"pointsman has {escaped(line)}")

        def page(link: str) -> None:
            note(f"open the page (once, within 10 minutes): {link}")

        manager = ServiceManager.of(os.environ)
        launch = Launch(
            read(),
            file.path,
            read,
            folder,
            ready,
            summary,
            file.prepare,
            file.first_token,
            manager,
            page=None if manager.supervises else page,  # a manager's log would keep the code
            stderr=lines,
            read_secrets_again=file.read_secrets_again,
        )
        try:
            if launch.config.workers > 1:
                _serve_with_workers(launch)
            else:
                run_event_loop(run_daemon(launch))
        except (StateFolderError, ListenError, DaemonError) as error:
            raise CommandError(str(error)) from error


def _serve_with_workers(launch: Launch) -> None:
    from pointsman.router.workers import WorkersError, serve_with_workers  # for few gateways

    try:
        serve_with_workers(launch)
    except WorkersError as error:
        raise CommandError(str(error)) from error
