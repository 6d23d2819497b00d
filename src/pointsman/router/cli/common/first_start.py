"""The first start: create a configuration where there is none, and print the first token.

The file is written only when the daemon holds its state folder and its port, so a start that fails leaves nothing
behind. Until a client has used the first token, every start replaces it by a new one and prints that, unless the owner
has created another token: then the first one stays as it is, and the start names it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from pointsman.config.edits import InvalidEntryError, UnknownNameError, replace_token_hash
from pointsman.config.errors import ConfigError
from pointsman.config.files import ReplaceError
from pointsman.config.loader import load, parse
from pointsman.config.model import GatewayConfig
from pointsman.config.paths import SEARCH_API_FILE_NAME, find_config, find_search_api_config, state_folder, user_config
from pointsman.config.purpose import is_only_for_search_api
from pointsman.config.sample import GATEWAY, SEARCH_API, render_sample, write_sample
from pointsman.config.secrets import digest, new_secret
from pointsman.config.settings import Settings
from pointsman.config.yaml.text_edits import EditError
from pointsman.router.cli.common.options import CommandError, ConfigCommandError, load_gateway_config
from pointsman.router.cli.common.secret_environment import secret_reader
from pointsman.router.serving.first_token import GATEWAY_MARKER, SEARCH_API_MARKER, FirstToken

_NO_HASH = "0" * 64

logger = logging.getLogger(__name__)


class ConfigFile(Struct):
    """The configuration file of this start, which `prepare` creates if there is none."""

    path: Path
    missing: bool
    first_token: FirstToken
    sample: str
    read: Callable[[Path], GatewayConfig]
    read_secrets_again: Callable[[], None]  # lets the next `load` ask commands and keyrings again
    secret: str | None = None  # of the token that this start has created
    replaced: bool = False  # it replaces one that no client has used
    kept: str | None = None  # the name of the first token that no client has used, beside others

    def load(self) -> GatewayConfig:
        """Raises ConfigError."""
        if self.missing:
            return parse(render_sample(_NO_HASH, self.sample), str(self.path), os.environ)
        return self.read(self.path)

    def prepare(self, config: GatewayConfig) -> bool:
        """Create what is missing; return whether the file must be read again. Raises CommandError."""
        if self.missing:
            self._create()
            return True
        unused = self.first_token.find(token.sha256 for token in config.tokens.values())
        if unused is None:
            return False
        if len(config.tokens) > 1:  # the owner has another token
            self.kept = next(name for name, token in config.tokens.items() if token.sha256 == unused)
            return False
        return self._replace(unused)

    def prepare_silently(self, config: GatewayConfig) -> bool:
        """`prepare` for a start that cannot show a token: it keeps an unused one for a start that can."""
        if self.missing:
            self._create()
            return True
        self.first_token.find(token.sha256 for token in config.tokens.values())
        return False

    def _create(self) -> None:
        secret = new_secret()
        try:
            self.first_token.announce(digest(secret))
            self.secret = write_sample(self.path, self.sample, secret)
            self.first_token.issued(digest(secret))
        except FileExistsError:  # another process created it first and prints its token
            self.first_token.withdraw()
        except OSError as error:
            raise CommandError(
                f"No configuration found, and a first one could not be written to {self.path}: {error.strerror}. "
                "Pass --config FILE, or set POINTSMAN_CONFIG_DIR to a writable folder."
            ) from error
        self.missing = False

    def _replace(self, unused: str) -> bool:
        secret = new_secret()
        try:
            self.first_token.announce(digest(secret))
            replace_token_hash(self.path, unused, digest(secret), os.environ)
            self.first_token.issued(digest(secret))
        except (ConfigError, EditError, InvalidEntryError, UnknownNameError, ReplaceError) as error:
            logger.warning(
                "no client has used the first token yet, and it could not be replaced by a new one: %s "
                'Create one with `pointsman token create NAME --project "*" --server "*" --config %s`.',
                error,
                self.path,
            )
            return False
        self.secret, self.replaced = secret, True
        return True


def gateway_config_file(option: Path | None, settings: Settings, folder: Path) -> ConfigFile:
    """`folder` is the gateway's state folder. Raises NoHomeError, ConfigCommandError."""
    found = find_config(option, settings, os.environ, Path.cwd())
    if found is not None and is_only_for_search_api(found):
        raise ConfigCommandError(
            f"{found} configures only the search service (`search_api`), no gateway. Start the service with "
            f"`pointsman search-api serve --config {found}`. To use the file for a gateway, too, add `servers:` to it; "
            "to create one for a gateway, move this one to another place or name."
        )
    if option is None and found is not None and found == settings.config and not found.exists():
        raise ConfigCommandError(
            f"{found} does not exist; the variable POINTSMAN_CONFIG names it. Correct the variable or unset it: then "
            "`pointsman serve` creates a first configuration."
        )
    path = found or user_config(settings, os.environ)
    first_token = FirstToken(folder / GATEWAY_MARKER, path)
    secrets = secret_reader(os.environ)

    def read(path: Path) -> GatewayConfig:
        return load_gateway_config(path, secrets=secrets)

    return ConfigFile(path, found is None, first_token, GATEWAY, read, secrets.read_again)


def search_api_config_file(option: Path | None, settings: Settings) -> ConfigFile:
    """Raises NoHomeError."""
    found = find_search_api_config(option, settings, os.environ, Path.cwd())
    path = found or user_config(settings, os.environ, SEARCH_API_FILE_NAME)
    first_token = FirstToken(state_folder(None, settings, os.environ) / SEARCH_API_MARKER, path)
    secrets = secret_reader(os.environ)

    def read(path: Path) -> GatewayConfig:
        return load(path, os.environ, secrets=secrets)

    return ConfigFile(path, found is None, first_token, SEARCH_API, read, secrets.read_again)


def welcome(file: ConfigFile, url: str, folder: Path) -> str:
    """Return the text of a start that has created a token, with its secret: only its hash is stored."""
    from pointsman.router.clients.entry import typed_command  # once in the life of an installation

    command = typed_command()
    return f"""
{_reason(file, "Pointsman")}

  configuration   {_short(file.path)}
  state           {_short(folder)}
  your token      {file.secret}
                  Keep it: only its hash is stored. Until a client uses it, each start replaces it by a new one.
                  Create more with `{command} token create NAME`; this one then stays as it is.

Connect a client, for example:

  claude mcp add --scope user --transport http pointsman {url} --header "Authorization: Bearer {file.secret}"

`{command} client add NAME` sets up Cursor, VS Code and others; `{command} client list` shows which.

Next: add a server with `{command} server add NAME COMMAND`, or edit the configuration: changes take effect when you
save it. `{command} status` shows how everything is, `{command} doctor` what needs you, and
`{command} service install` keeps the gateway running.
{_offer(url, command)}"""


def welcome_to_search_api(file: ConfigFile, url: str) -> str:
    """`welcome` of the search service."""
    return f"""
{_reason(file, "the Pointsman search service")}

  configuration   {_short(file.path)}
  your token      {file.secret}
                  Keep it: only its hash is stored. Until a gateway uses it, each start replaces it by a new one.
                  Create more with `pointsman token create NAME --project P --config {_short(file.path)}`;
                  this one then stays as it is.

Add this to the configuration of a gateway:

  cloud_search: {{url: "{url}", token: "{file.secret}"}}
  unassigned: {{optimization: cloud}}   # likewise for projects
"""


def kept_token(file: ConfigFile) -> str | None:
    """The line of a start that leaves an unused first token valid; None: there is no such token."""
    if file.kept is None:
        return None
    return (
        f"Nothing has used the first token, `{file.kept}`, yet. It stays valid, because there are other tokens. "
        f"If you no longer have it: `pointsman token revoke {file.kept}`, "
        "and `pointsman token create NAME` prints a new one."
    )


def _reason(file: ConfigFile, program: str) -> str:
    if file.replaced:
        return (
            f"Welcome back to {program}. The token of an earlier start was never used; "
            "this start has replaced it by a new one."
        )
    return f"Welcome to {program}. This is the first start: a configuration and a token have been created."


def _offer(url: str, command: str) -> str:
    from pointsman.router.clients.found_servers import offer

    found = offer(os.environ, url)
    return f"Your clients have servers already: {found}. `{command} import` shows and adds them.\n" if found else ""


def _short(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
