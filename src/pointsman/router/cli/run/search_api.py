"""`pointsman search-api`: the search service for gateways with `optimization: cloud`."""

from __future__ import annotations

from pathlib import Path

import click

from pointsman.config.model import GatewayConfig
from pointsman.config.settings import apply_search_api_overrides, read_settings
from pointsman.core.dumpable import make_non_dumpable
from pointsman.core.given_path import GivenPath
from pointsman.router.cli.common.first_start import kept_token, search_api_config_file, welcome_to_search_api
from pointsman.router.cli.common.options import CommandError, log_to_stderr, note, report_config_errors
from pointsman.router.search_api.daemon import Launch
from pointsman.router.search_api.daemon import serve as run_service
from pointsman.router.serving.process import run_event_loop
from pointsman.router.serving.socket import ListenError
from pointsman.router.serving.tasks import DaemonError


@click.group(name="search-api")
def search_api() -> None:
    """Run the search service for one or more gateways."""


@search_api.command()
@click.option(
    "--config",
    "config_file",
    type=GivenPath(),
    help="Configuration file. Default: $POINTSMAN_CONFIG, then search-api.yaml, or pointsman.yaml with a section "
    "`search_api`, here and in your config folder.",
)
@click.option("--host", help="Address to listen on; overrides `search_api.listen.host`.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Port to listen on; overrides `search_api.listen.port`. 0 picks a free one.",
)
def serve(config_file: Path | None, host: str | None, port: int | None) -> None:
    """Start the search service. Creates a configuration and prints a first token if there is none."""
    make_non_dumpable()
    with report_config_errors():
        settings = read_settings()
        lines = log_to_stderr(settings)
        file = search_api_config_file(config_file, settings)

        def read() -> GatewayConfig:
            config = apply_search_api_overrides(file.load(), settings, host=host, port=port)
            lines.configure(config.log.format)
            return config

        def ready(url: str) -> None:
            if file.secret is not None:
                note(welcome_to_search_api(file, url))
            if kept := kept_token(file):
                note(kept)
            note(f"pointsman search-api ready on {url}")

        launch = Launch(read(), file.path, read, ready, file.prepare, file.first_token)
        try:
            run_event_loop(run_service(launch))
        except (ListenError, DaemonError) as error:
            raise CommandError(str(error)) from error
