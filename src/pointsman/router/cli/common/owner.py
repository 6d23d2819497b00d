"""The commands' access to the owner's channel, and words for what it answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from pointsman.config.paths import NoHomeError, usual_state_folder
from pointsman.core.escape import escaped
from pointsman.core.model import NEEDS_SIGN_IN
from pointsman.router.cli.common.options import CommandError, ConfigCommandError, NoGatewayCommandError
from pointsman.router.cli.common.output import echo, paint
from pointsman.router.owner.client import ANSWER_S, NoGatewayError, OperationError, SilentGatewayError, ask

COMPLETION_S = 1.0
_STATE_COLOURS = {
    "running": "green",
    "starting": "yellow",
    "failed": "red",
    "not answering": "red",
    NEEDS_SIGN_IN: "yellow",
}


def owned_folder(option: Path | None) -> Path:
    """Return the state folder, without the configuration models: they take longer than the rest of a command."""
    named = os.environ.get("POINTSMAN_STATE_DIR")
    try:
        return option or (Path(named) if named else usual_state_folder(os.environ))
    except NoHomeError as error:
        raise CommandError(str(error)) from error


def ask_gateway(state_dir: Path | None, operation: str, /, *, timeout_s: float = ANSWER_S, **parameters: Any) -> Any:
    """Ask the running gateway. Ends the command if none runs (exit code 3) or if it refuses (1 or 2)."""
    try:
        return ask(owned_folder(state_dir), operation, timeout_s=timeout_s, **parameters)
    except NoGatewayError as error:
        raise NoGatewayCommandError(str(error)) from error
    except OperationError as error:
        raise _refusal(error) from error


def ask_if_running(state_dir: Path | None, operation: str, /, **parameters: Any) -> Any | None:
    """`ask_gateway`, but None if no gateway runs. One that runs and does not answer ends the command."""
    try:
        return ask(owned_folder(state_dir), operation, **parameters)
    except SilentGatewayError as error:
        raise NoGatewayCommandError(str(error)) from error
    except NoGatewayError:
        return None
    except OperationError as error:
        raise _refusal(error) from error


def _refusal(error: OperationError) -> CommandError:
    """A name or a value that the gateway does not know is a mistake on the command line."""
    mistaken = error.code in (
        "unknown_server",
        "unknown_project",
        "unknown_approval",
        "unknown_grant",
        "invalid_request",
        "encoder_unavailable",
    )
    return ConfigCommandError(str(error)) if mistaken else CommandError(str(error))


def complete(kind: str) -> Any:
    """Return a callback that completes names of this kind (`servers`, `projects`, `tools`) in a shell."""

    def names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            known = ask(owned_folder(context.params.get("state_dir")), "names", timeout_s=COMPLETION_S)[kind]
        except (NoGatewayError, OperationError, CommandError):
            return []
        return [CompletionItem(name) for name in known if name.startswith(incomplete)]

    return names


def paint_state(state: str, width: int = 0) -> str:
    return paint(state.ljust(width), _STATE_COLOURS.get(state))


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Show a message on stderr while the block runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    echo(escaped(message), err=True, nl=False)
    try:
        yield
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)  # noqa: TID251 - clears the line


def plural(count: int, word: str, several: str | None = None) -> str:
    return f"{count:,} {word if count == 1 else several or word + 's'}"
