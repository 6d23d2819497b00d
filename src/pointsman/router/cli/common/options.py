"""Options, configuration lookup, error output and logging that several commands share."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from pointsman.config.errors import ConfigError
from pointsman.config.paths import NoHomeError, find_config
from pointsman.core.escape import escaped
from pointsman.core.given_path import GivenPath
from pointsman.router.cli.common.output import echo

if TYPE_CHECKING:  # pydantic takes 0.3 s, and many commands do without the configuration
    from pointsman.config.model import GatewayConfig, LogFormat
    from pointsman.config.secret_reader import SecretReader
    from pointsman.config.settings import Settings
    from pointsman.router.serving.log_lines import LogLines

config_option = click.option(
    "--config",
    "config_file",
    type=GivenPath(),
    help="Configuration file. Default: $POINTSMAN_CONFIG, ./pointsman.yaml, or the one in your config folder.",
)
edited_config_option = click.option(
    "--config",
    "config_file",
    type=GivenPath(),
    help="Configuration file. Default: the one of the running gateway; if none runs, $POINTSMAN_CONFIG, "
    "./pointsman.yaml, or the one in your config folder.",
)
NO_CONFIG = "No configuration found. Run `pointsman serve` to create one, or pass --config FILE."
state_dir_option = click.option(
    "--state-dir", type=GivenPath(), help="The gateway's state folder: audit, database and lock."
)
unasked_option = click.option(
    "--yes", "-y", is_flag=True, expose_value=False, help="For scripts; this command does not ask."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class CommandError(click.ClickException):
    """Ends the command with exit code 1 and prints these lines on stderr. Line ends inside of a line are escaped."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(map(escaped, lines)))

    def show(self, file: IO[Any] | None = None) -> None:
        echo(self.message, file=file, err=file is None)


class NoGatewayCommandError(CommandError):
    """The command needs a running gateway, and none answers: exit code 3."""

    exit_code = 3


class ConfigCommandError(CommandError):
    """A mistake in the configuration or on the command line: exit code 2."""

    exit_code = 2


@contextmanager
def report_config_errors() -> Iterator[None]:
    """Print configuration errors on stderr and exit with code 2."""
    try:
        yield
    except ConfigError as error:
        raise ConfigCommandError(*map(str, error.problems)) from error
    except NoHomeError as error:
        raise CommandError(str(error)) from error


def load_gateway_config(path: Path, *, tried: str | None = None, secrets: SecretReader | None = None) -> GatewayConfig:
    """Load the file as a gateway in this environment would. Raises ConfigError.

    For `tried` and `secrets` see `loader.load`: without `secrets`, no command and no keyring is asked for one.
    """
    from pointsman.config.loader import load
    from pointsman.router.downstream.bundled import check_stores

    config = load(path, os.environ, tried=tried, secrets=secrets)
    check_stores(config, path, os.environ)
    return config


def require_config(option: Path | None, settings: Settings) -> Path:
    """Return the configuration file in effect. Raises ConfigCommandError if there is none."""
    found = find_config(option, settings, os.environ, Path.cwd())
    if found is None:
        raise ConfigCommandError(NO_CONFIG)
    return found


def note(message: str) -> None:
    """Print a message on stderr: stdout is for results. For foreign text in it see `echo`."""
    echo(message, err=True)


def log_to_stderr(settings: Settings, wanted: LogFormat = "auto") -> LogLines:
    """Log to stderr; libraries only from level WARNING. `wanted` holds until the configuration says otherwise."""
    from pointsman.router.serving.log_lines import LogLines

    lines = LogLines(settings.log_format or wanted, terminal=sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper())
    # httpx2 logs the full URL of each request.
    for library in ("uvicorn", "uvicorn.error", "watchfiles", "asyncio", "httpx2", "httpcore2"):
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))
    return lines


def confirmed(yes: bool) -> bool:
    """Ask for confirmation; without a terminal, name the option that confirms. Returns whether to continue."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigCommandError("Nothing was changed: this is no terminal, so add --yes to confirm.")
    if click.confirm("Go on?", default=True, err=True):
        return True
    note("Nothing was changed.")
    return False
