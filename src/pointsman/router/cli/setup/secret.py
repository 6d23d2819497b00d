"""`pointsman secret`: store a secret in the keyring, and have the gateway read its secrets again."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from pointsman.config.keyring_program import UNENCRYPTED
from pointsman.config.secret_reader import (
    TookTooLongError,
    TooMuchOutputError,
    keyring_argv,
    keyring_failure,
    run_bounded,
)
from pointsman.config.yaml.references import KEYRING_SERVICE
from pointsman.core.escape import escaped
from pointsman.core.extras import install_command, keyring_is_installed
from pointsman.router.cli.common.edited import RELOAD_S
from pointsman.router.cli.common.options import CommandError, ConfigCommandError, json_option, note, state_dir_option
from pointsman.router.cli.common.output import echo, print_json
from pointsman.router.cli.common.owner import ask_gateway, progress
from pointsman.router.cli.common.secret_environment import keyring_environment

STORE_S = 60.0  # a person may have to unlock the keyring
MAX_SECRET_BYTES = 16_384  # a pipe holds it, whatever the keyring does
_BACKEND_CHARS = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


@click.group()
def secret() -> None:
    """Store secrets in the keyring of this user, and have the gateway read its secrets again."""


@secret.command(name="set")
@click.argument("name")
@json_option
def set_secret(name: str, as_json: bool) -> None:
    """Store a secret in the keyring as NAME, for `${keyring:NAME}`. Asks for it; without a terminal, reads stdin.

    Replaces one of that name. A running gateway reads it when its configuration changes, or by `secret reload`.
    """
    if not _NAME.fullmatch(name):
        raise ConfigCommandError("A name has letters, digits, `.`, `_`, `@` and `-`, such as `tracker`.")
    if not keyring_is_installed():
        raise ConfigCommandError(
            f"The package for keyrings is not installed. Install it with `{install_command('keyring')}`."
        )
    value = _typed() if sys.stdin.isatty() else sys.stdin.buffer.read(MAX_SECRET_BYTES + 2).rstrip(b"\r\n")
    if not value:
        raise ConfigCommandError("Nothing was stored: the secret is empty.")
    if len(value) > MAX_SECRET_BYTES:
        raise ConfigCommandError(f"Nothing was stored: the secret has more than {MAX_SECRET_BYTES} bytes.")
    argv, environ = keyring_argv("set", KEYRING_SERVICE, name), keyring_environment(os.environ)
    try:
        ended = run_bounded(argv, environ, Path.cwd(), STORE_S, stdin=value)
    except (TookTooLongError, TooMuchOutputError, OSError):
        raise CommandError("The keyring did not answer. Unlock it, and try again.") from None
    if ended.code:
        raise CommandError(f"Nothing was stored: {keyring_failure(ended.code)}.")
    reference, backend = f"${{keyring:{name}}}", escaped(ended.output.decode("utf-8", "replace")[:_BACKEND_CHARS])
    if as_json:
        print_json({"name": name, "reference": reference, "keyring": backend})
    else:
        echo(f"Stored in {backend}. Refer to it as {reference}.")
    if backend in UNENCRYPTED:
        note(f"Warning: {backend} does not encrypt. The secret is in a file in plain text.")


@secret.command()
@state_dir_option
@json_option
def reload(state_dir: Path | None, as_json: bool) -> None:
    """Have the running gateway run the commands of `${cmd:...}` and ask the keyring again.

    Servers whose secrets have changed are restarted. If one cannot be read, the gateway keeps the previous ones.
    """
    with progress("Reading the secrets again ..."):
        answer = ask_gateway(state_dir, "reload_secrets", timeout_s=RELOAD_S)
    if answer["problem"]:
        raise CommandError("The gateway keeps the previous secrets:", *answer["problem"].split("\n"))
    if as_json:
        print_json({"reloaded": True})
    else:
        note("The gateway has read its secrets again.")


def _typed() -> bytes:
    typed: str = click.prompt("Secret", hide_input=True, confirmation_prompt=True, err=True)
    return typed.encode()
