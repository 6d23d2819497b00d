"""The address at which clients reach the gateway: that of the running one, or the configured one."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from pointsman.config.loader import read_text
from pointsman.config.model import Listen
from pointsman.config.settings import Settings
from pointsman.config.yaml.document import Document
from pointsman.router.cli.common.edited import Edited
from pointsman.router.serving.state_folder import find_running


def gateway_url(config_path: Path | None, settings: Settings, state: Path) -> str:
    """The URL of `/mcp`. Raises ConfigError if the file is not YAML; other problems of the file do not matter here."""
    running = find_running(state)
    return running.url if running is not None else configured_url(config_path, settings)


def edited_url(edited: Edited, settings: Settings) -> str:
    """`gateway_url` of the gateway that uses a configuration: not of one that runs with another. Raises as that."""
    if edited.other is not None:
        return configured_url(edited.path, settings)
    return gateway_url(edited.path, settings, edited.state_dir)


def configured_url(config_path: Path | None, settings: Settings) -> str:
    """Raises as `gateway_url`."""
    listen = _listen(config_path) if config_path is not None else Listen()
    host = settings.host or listen.host
    port = settings.port if settings.port is not None else listen.port
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - every address, so also this one
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def of_project(url: str, project: str | None) -> str:
    return url if project is None else f"{url.removesuffix('/mcp')}/projects/{project}/mcp"


def _listen(path: Path) -> Listen:
    data = Document(read_text(path), str(path), os.environ).data
    try:
        return Listen.model_validate((data.get("listen") if isinstance(data, dict) else None) or {})
    except ValidationError:
        return Listen()
