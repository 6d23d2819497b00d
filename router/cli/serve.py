"""`pointsman serve`: the daemon in the foreground."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from pointsman.config.loading import load
from pointsman.config.model import GatewayConfig
from pointsman.config.places import find_config, state_folder, user_config
from pointsman.config.sample import write_sample
from pointsman.config.settings import Settings, overlaid, read_settings
from pointsman.router.cli.options import Refusal, clear_errors, config_option, log_to_stderr, note
from pointsman.router.daemon import Launch
from pointsman.router.daemon import serve as run_daemon
from pointsman.router.listening import CannotListen
from pointsman.router.state_folder import StateFolderError
from pointsman.router.welcome import welcome


@click.command()
@config_option
@click.option("--host", help="The address to listen on, in place of `listen.host`.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port, in place of `listen.port`; 0 takes a free one.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="The folder for audit, database and lock.")
def serve(config_file: Path | None, host: str | None, port: int | None, state_dir: Path | None) -> None:
    """Start the gateway. Without any configuration it makes one, and shows the first token."""
    with clear_errors():
        settings = read_settings()
        log_to_stderr(settings)
        path, secret = find_or_make_config(config_file, settings)
        folder = state_folder(state_dir, settings, os.environ)

        def read() -> GatewayConfig:
            return overlaid(load(path, os.environ), settings, host=host, port=port)

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
    except (StateFolderError, CannotListen) as error:
        raise Refusal(str(error)) from error


def find_or_make_config(option: Path | None, settings: Settings) -> tuple[Path, str | None]:
    """The file, and the secret of the first token if the file had to be made."""
    found = find_config(option, settings, os.environ, Path.cwd())
    if found is not None:
        return found, None
    path = user_config(settings, os.environ)
    try:
        return path, write_sample(path)
    except FileExistsError:  # another start was faster by a moment; its token is shown there
        return path, None
    except OSError as error:
        raise Refusal(
            f"No configuration was found, and a first one cannot be written to {path}: {error.strerror}. "
            "Name a file with --config, or a folder that can be written with POINTSMAN_CONFIG_DIR."
        ) from error
