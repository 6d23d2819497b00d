"""The first start: create a configuration where there is none, and print the first token."""

from __future__ import annotations

import os
from pathlib import Path

from pointsman.config.paths import find_config, user_config
from pointsman.config.sample import GATEWAY, write_sample
from pointsman.config.settings import Settings
from pointsman.router.cli.options import CommandError


def find_or_create_config(option: Path | None, settings: Settings, sample: str = GATEWAY) -> tuple[Path, str | None]:
    """Return the file, and the secret of the first token if the file was created."""
    found = find_config(option, settings, os.environ, Path.cwd())
    if found is not None:
        return found, None
    path = user_config(settings, os.environ)
    try:
        return path, write_sample(path, sample)
    except FileExistsError:  # another process created it first and prints its token
        return path, None
    except OSError as error:
        raise CommandError(
            f"No configuration found, and a first one could not be written to {path}: {error.strerror}. "
            "Pass --config FILE, or set POINTSMAN_CONFIG_DIR to a writable folder."
        ) from error


def welcome(secret: str, url: str, config_path: Path, state_folder: Path) -> str:
    """Return the text of the first start. It holds the token in full, because only its hash is stored."""
    return f"""
Welcome to Pointsman. This is the first start: a configuration and a token have been created.

  configuration   {_short(config_path)}
  state           {_short(state_folder)}
  your token      {secret}
                  It is not shown again. Create more with `pointsman token create NAME`.

Connect a client, for example:

  claude mcp add --transport http pointsman {url} --header "Authorization: Bearer {secret}"

docs/guide/clients.md has setups for other clients; Copilot CLI needs "deferTools": "never" in its entry.

Next: add your MCP servers to the configuration. Changes take effect when you save the file.
"""


def welcome_to_search_api(secret: str, url: str, config_path: Path) -> str:
    """Return the text of the first start of the search service."""
    return f"""
Welcome to the Pointsman search service. This is the first start: a configuration and a token have been created.

  configuration   {_short(config_path)}
  your token      {secret}
                  It is not shown again. Create more with `pointsman token create NAME --project P`.

Add this to the configuration of a gateway:

  cloud_search: {{url: "{url}", token: "{secret}"}}
  unassigned: {{optimization: cloud}}   # likewise for projects
"""


def _short(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
