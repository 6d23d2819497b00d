"""What several commands share: options, the way to the configuration, and errors as people should see them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from pointsman.config.errors import ConfigError
from pointsman.config.loader import load
from pointsman.config.model import GatewayConfig
from pointsman.config.paths import NoHomeError, find_config
from pointsman.config.settings import Settings
from pointsman.router.downstream.bundled import check_stores

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="The configuration file. Otherwise $POINTSMAN_CONFIG, ./pointsman.yaml, or the one in your config folder.",
)
NO_CONFIG = "No configuration yet. `pointsman serve` writes a first one; --config FILE names another place."
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class CommandError(click.ClickException):
    """Ends the command with exit code 1 and a message on stderr, as it is."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=file is None)


class ConfigCommandError(CommandError):
    """The same for what the person wrote, in a file or on the command line."""

    exit_code = 2


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what is wrong with the configuration into lines on stderr and exit code 2."""
    try:
        yield
    except ConfigError as error:
        raise ConfigCommandError(str(error)) from error
    except NoHomeError as error:
        raise CommandError(str(error)) from error


def load_gateway_config(path: Path) -> GatewayConfig:
    """The file as a gateway under our environment would use it. Raises ConfigError."""
    config = load(path, os.environ)
    check_stores(config, path, os.environ)
    return config


def chosen_config(option: Path | None, settings: Settings) -> Path:
    """The file that holds, or a refusal that says how to get one."""
    found = find_config(option, settings, os.environ, Path.cwd())
    if found is None:
        raise ConfigCommandError(NO_CONFIG)
    return found


def note(message: str) -> None:
    """For the person: stdout is for results."""
    click.echo(message, err=True)


def log_to_stderr(settings: Settings) -> None:
    """The daemon's own messages, and few of those of its parts."""
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)-7s %(message)s",
        datefmt="%H:%M:%S",
    )
    # httpx2 has a line with the whole URL for each request.
    for chatty in ("uvicorn", "uvicorn.error", "watchfiles", "asyncio", "httpx2", "httpcore2"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
